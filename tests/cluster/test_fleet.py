"""Fleets as data: what is accepted, and the line of what is not."""

import pytest

from pytest_hami import resources
from pytest_hami.cluster import fleet


@pytest.mark.parametrize("name", sorted(resources.fleet_files()))
def test_shipped_fleets_load_with_distinct_well_formed_cards(name):
    loaded = fleet.load(name)
    uuids = [card.uuid for node in loaded.nodes for card in node.cards]
    assert len(uuids) == len(set(uuids)) > 0
    assert all(len(uuid) == 40 and uuid.startswith("GPU-") for uuid in uuids)
    assert loaded == fleet.load(name), "the same file must give the same cards"


def test_the_published_fleet_has_two_nodes_of_two_cards():
    loaded = fleet.load("seed-002")
    assert [len(node.cards) for node in loaded.nodes if node.cards] == [2, 2]
    assert {card.memory for node in loaded.nodes for card in node.cards} == {40_960}


def test_a_count_makes_as_many_equal_nodes():
    nodes = fleet.load("scale-200").nodes
    assert [node.name for node in nodes] == [f"n{number}" for number in range(1, 201)]
    assert {len(node.cards) for node in nodes} == {8}


def test_a_card_uuid_names_fleet_node_and_index():
    first = fleet.parse(b"nodes: [{name: a, cards: {count: 2, model: NVIDIA X, memory: 1}}]", "f", "f.yaml")
    other = fleet.parse(b"nodes: [{name: a, cards: {count: 2, model: NVIDIA X, memory: 1}}]", "g", "g.yaml")
    assert not {c.uuid for c in first.nodes[0].cards} & {c.uuid for c in other.nodes[0].cards}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nodes:\n  - name: [", "f.yaml:2: not YAML"),
        ("", "f.yaml:1: expected one key 'nodes'"),
        ("nodes: 3", "f.yaml:1: expected one key 'nodes'"),
        ("nodes:\n  - name: a\n  - nam: b", "f.yaml:3: expected a node with a name"),
        ("nodes:\n  - {name: a, card: 1}", "f.yaml:2: unknown key 'card'"),
        ("nodes:\n  - name: a\n    cards: {model: Foo, memory: 1}", "whose name contains NVIDIA"),
        ("nodes:\n  - name: a\n    cards: {model: NVIDIA A, memory: -1}", "memory must be a whole number"),
        ("nodes:\n  - name: a\n    cards: {model: NVIDIA A, memory: 1, count: true}", "count must be a whole number"),
        ("nodes:\n  - name: a\n    cards: {model: NVIDIA A, memory: 1, uuids: ['a,b']}", "without comma"),
        ("nodes:\n  - &x {name: a}\n  - *x", "aliases are not allowed"),
        ("nodes:\n  - {name: a}", "no node has cards"),
        ("nodes:\n  - {name: a, cards: {model: NVIDIA A, memory: 1}}\n  - {name: a}", "node name 'a' occurs twice"),
        ("nodes:\n  - {name: a, taints: x}", "taints must be a list"),
        ("nodes:\n  - {name: a, labels: {a: 1}}", "labels must map text to text"),
        ("nodes:\n  - {name: a, count: 0}", "f.yaml:2: count must be a whole number from 1 to 1000"),
        (
            "nodes:\n  - {name: a1, cards: {model: NVIDIA A, memory: 1}}\n  - {name: a, count: 2}",
            "f.yaml:3: node name 'a1'",
        ),
        ("\x00", "not YAML"),
    ],
)
def test_a_bad_fleet_is_refused_in_one_line_with_its_place(text, complaint):
    with pytest.raises(fleet.FleetError) as error:
        fleet.parse(text.encode(), "f", "f.yaml")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_fleet_names_the_known_ones():
    with pytest.raises(fleet.FleetError, match=r"shipped are findings, lab, mixed,.* seed-002"):
        fleet.load("seed-003")


def test_a_missing_file_is_named():
    with pytest.raises(fleet.FleetError, match=r"nowhere/x\.yaml: cannot be read"):
        fleet.load("nowhere/x.yaml")
