"""The store: versions, the label index and the log that watches replay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hami.simulator.apiserver import selectors
from pytest_hami.simulator.apiserver.selectors import Term, parse_labels
from pytest_hami.simulator.apiserver.store import Entry, Store, Table

LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))
SELECTOR = st.sampled_from(["", "a=x", "a!=x", "a in (x,y),b", "!c", "b notin (z),a=y", "c==z,a"])


def entry(name: str, labels: dict[str, str], namespace: str = "default") -> tuple[tuple[str, str], Entry]:
    object_: dict[str, Any] = {"metadata": {"name": name, "namespace": namespace, "labels": labels}}
    return (namespace, name), Entry(object_)


def test_a_selector_with_a_value_looks_only_at_what_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    for number in range(10_000):
        table.put(*entry(f"p{number}", {"app": f"a{number % 1000}", "all": "yes"}))
    looked = 0
    matches = Term.matches

    def counting(self: Term, labels: dict[str, str]) -> bool:
        nonlocal looked
        looked += 1
        return matches(self, labels)

    monkeypatch.setattr(selectors.Term, "matches", counting)
    assert len(list(table.select("default", parse_labels("all=yes,app=a7")))) == 10
    assert looked <= 20
    assert list(table.select("", parse_labels("app=none"))) == []
    assert looked <= 20


@given(st.lists(st.tuples(LABELS, st.sampled_from(["n1", "n2"]), st.booleans()), max_size=20), SELECTOR)
def test_the_index_agrees_with_a_scan(rows: list[tuple[dict[str, str], str, bool]], selector: str) -> None:
    table = Table()
    kept: dict[tuple[str, str], dict[str, str]] = {}
    for number, (labels, namespace, dropped) in enumerate(rows):
        key, made = entry(f"p{number // 2}", labels, namespace)
        table.put(key, made)
        kept[key] = labels
        if dropped:
            table.drop(key)
            del kept[key]
    terms = parse_labels(selector)
    for namespace in ("", "n1"):
        expected = sorted(
            key
            for key, labels in kept.items()
            if namespace in ("", key[0]) and all(term.matches(labels) for term in terms)
        )
        assert [key for key, _ in table.select(namespace, terms)] == expected


def test_every_write_has_a_version_of_its_own() -> None:
    store = Store()
    first = store.write("pods", entry("a", {})[1].object, "ADDED")["metadata"]["resourceVersion"]
    second = store.write("pods", entry("b", {})[1].object, "ADDED")["metadata"]["resourceVersion"]
    last = store.remove("pods", "default", "a")["metadata"]["resourceVersion"]
    assert int(first) < int(second) < int(last)
    assert [(change.type, change.version) for change in store.table("pods").log] == [
        ("ADDED", int(first)), ("ADDED", int(second)), ("DELETED", int(last)),
    ]  # fmt: skip
