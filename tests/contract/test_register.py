"""The register and score annotations of a node."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hami.contract.register import Device, MigProfile, RegisterError, encode, parse, parse_scores

DEVICES = st.lists(
    st.builds(
        Device,
        id=st.text(max_size=20),
        index=st.integers(0, 63),
        count=st.integers(0, 2**31 - 1),
        devmem=st.integers(0, 2**31 - 1),
        devcore=st.integers(0, 1000),
        type=st.text(max_size=20),
        numa=st.integers(0, 7),
        mode=st.sampled_from(("", "hami-core", "mig", "mps")),
        health=st.booleans(),
    ),
    max_size=8,
).map(tuple)
WORKED = (
    '[{"id":"GPU-8dcd427f","count":10,"devmem":24576,"devcore":100,"type":"NVIDIA A10","mode":"hami-core",'
    '"health":true},'
    '{"id":"GPU-ebe7c3f7","index":1,"count":10,"devmem":24576,"devcore":100,"type":"NVIDIA A10","numa":1,'
    '"mode":"hami-core"}]'
)


@given(DEVICES)
def test_what_is_written_is_read_again(devices: tuple[Device, ...]) -> None:
    text = encode(devices)
    assert parse(text) == devices
    assert not {"<", ">", "&"} & set(text)


def test_zero_values_are_absent_in_both_directions() -> None:
    first, second = parse(WORKED)
    assert (first.index, first.numa, first.health) == (0, 0, True)
    assert (second.index, second.numa, second.health) == (1, 1, False)
    assert encode((first, second)) == WORKED
    assert encode([Device()]) == "[{}]"


def test_missing_fields_are_zero_and_unknown_ones_ignored() -> None:
    (device,) = parse('[{"id":"GPU-a","migProfiles":[{"name":"1g.5gb"}],"devicevendor":"NVIDIA","health":null}]')
    assert device == Device(id="GPU-a", profiles=(MigProfile("1g.5gb", 0, 0, 0, ()),))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "[null]",
        '[{"id":1}]',
        '[{"index":"1"}]',
        '[{"count":true}]',
        '[{"health":1}]',
        '[{"devmem":1.5}]',
        "GPU-a,10,24576,100,NVIDIA A10,0,true:",
        "[" * 100_000,
    ],
)
def test_other_text_is_a_typed_error(text: str) -> None:
    with pytest.raises(RegisterError):
        parse(text)


def test_scores_of_card_pairs() -> None:
    assert parse_scores('[{"uuid":"GPU-a","score":{"GPU-b":100}},{"uuid":"GPU-b"}]') == {
        "GPU-a": {"GPU-b": 100},
        "GPU-b": {},
    }


@pytest.mark.parametrize("text", ["", "3", "null", '[{"score":{}}]', '[{"uuid":"a","score":[1]}]', '["a"]'])
def test_malformed_scores_are_a_typed_error(text: str) -> None:
    with pytest.raises(RegisterError):
        parse_scores(text)


def test_text_is_json_without_blanks() -> None:
    text = encode([Device(id="GPU-<a>&", type="NVIDIA A10")])
    assert json.loads(text) == [{"id": "GPU-<a>&", "type": "NVIDIA A10"}]
    assert text == '[{"id":"GPU-\\u003ca\\u003e\\u0026","type":"NVIDIA A10"}]'
