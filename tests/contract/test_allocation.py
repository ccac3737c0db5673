"""Allocation strings: grammar, the rewrite of an Allocate call, and which container a group belongs to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hami.contract.allocation import (
    AllocationError,
    DeviceShare,
    Groups,
    assign,
    encode,
    erase_next,
    parse,
    pop_next,
)

UUIDS = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters="-_."), min_size=1, max_size=40)
SHARES = st.builds(
    DeviceShare, UUIDS, st.integers(0, 2**31 - 1), st.integers(-(2**31), 2**31 - 1), st.sampled_from(("NVIDIA", "DCU"))
)
GROUPS = st.lists(st.lists(SHARES, max_size=4).map(tuple), max_size=6).map(tuple)
A, B = DeviceShare("GPU-A", 4096, 25), DeviceShare("GPU-B", 2048, 0)
A_TEXT, B_TEXT = "GPU-A,NVIDIA,4096,25:", "GPU-B,NVIDIA,2048,0:"


@given(GROUPS)
def test_what_is_written_is_read_again(groups: Groups) -> None:
    assert parse(encode(groups)) == groups


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("", ()),
        (";", ((),)),
        (";;", ((), ())),
        (f"{A_TEXT};", ((A,),)),
        (f"{A_TEXT}{B_TEXT};", ((A, B),)),
        (f"{A_TEXT};;", ((A,), ())),
        (f";{A_TEXT};;", ((), (A,), ())),
    ],
)
def test_only_the_piece_behind_the_last_semicolon_is_dropped(text: str, groups: Groups) -> None:
    assert parse(text) == groups
    assert encode(groups) == text


@pytest.mark.parametrize(
    "text",
    [
        "GPU-A,NVIDIA,4096,25:",
        "GPU-A,NVIDIA,4096,25;",
        "GPU-A,NVIDIA,4096:;",
        "GPU-A,NVIDIA,4096,25,1:;",
        "GPU-A,NVIDIA,4Gi,25:;",
        "GPU-A,NVIDIA,4096,half:;",
        "GPU-A,NVIDIA,\u0664,25:;",
        ",NVIDIA,4096,25:;",
        "GPU-A,NVIDIA,--1,25:;",
        f"GPU-A,NVIDIA,{'9' * 5000},25:;",
        "::;",
    ],
)
def test_malformed_text_is_a_typed_error(text: str) -> None:
    with pytest.raises(AllocationError):
        parse(text)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        groups = parse(text)
    except AllocationError:
        return
    assert parse(encode(groups)) == groups


@given(GROUPS)
def test_each_call_empties_one_group_and_adds_a_semicolon(groups: Groups) -> None:
    waiting = [index for index, group in enumerate(groups) if group]
    text = encode(groups)
    for calls, index in enumerate(waiting, start=1):
        assert pop_next(text) == (index, groups[index])
        text = erase_next(text)
        assert text.count(";") == len(groups) + calls
    assert text.strip(";") == ""
    with pytest.raises(AllocationError, match="no pending device allocation found"):
        erase_next(text)


@given(GROUPS)
def test_one_call_for_all_containers_adds_one_semicolon(groups: Groups) -> None:
    waiting = sum(1 for group in groups if group)
    assert erase_next(encode(groups), waiting) == ";" * (len(groups) + 1)


def test_the_recorded_erase_chain() -> None:
    first = erase_next(f"{A_TEXT};{B_TEXT};")
    assert first == f";{B_TEXT};;"
    assert erase_next(first) == ";;;;"


G, N = True, False


@pytest.mark.parametrize(
    ("asks", "lost", "kept"),
    [
        ([G], "a;", "a;"),
        ([G, G], "a;b;", "a;b;"),
        ([G, N], "a;", "a;;"),
        ([N, G], "a;", ";a;"),
        ([N, G, N], "a;", ";a;;"),
        ([G, N, G], "a;b;", "a;;b;"),
        ([N], "", ";"),
        ([N, N], "", ";;"),
    ],
)
def test_groups_go_to_the_containers_that_ask(asks: list[bool], lost: str, kept: str) -> None:
    containers = [(f"c{index}", asking) for index, asking in enumerate(asks)]
    texts = {"a": A_TEXT, "b": B_TEXT}
    expected_shares = iter(((A,), (B,)))
    expected = {name: next(expected_shares) if asking else () for name, asking in containers}
    for text, positions_kept in ((lost, False), (kept, True), (kept, False)):
        groups = parse("".join(texts.get(letter, letter) for letter in text))
        assert assign(groups, containers, positions_kept=positions_kept) == expected


@pytest.mark.parametrize(
    ("groups", "asks", "positions_kept"),
    [
        (((A,),), [G, N], True),
        (((A,), ()), [N, G], True),
        (((A,), (B,)), [G, N], False),
        (((A,),), [G, G], False),
        ((), [G], False),
        ((), [G], True),
        (((), ()), [G, N], True),
    ],
)
def test_a_group_without_its_container_is_an_error(groups: Groups, asks: list[bool], positions_kept: bool) -> None:
    with pytest.raises(AllocationError):
        assign(groups, [(f"c{index}", asking) for index, asking in enumerate(asks)], positions_kept=positions_kept)
