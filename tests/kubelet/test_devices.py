"""kubelet's book of shares: what it advertises and what it hands out."""

from __future__ import annotations

import pytest

from pytest_hami.kubelet.devices import DeviceBook, TooFewShares
from pytest_hami.kubelet.plugin import Share

SHARES = (Share("a-0"), Share("a-1"), Share("b-0", healthy=False), Share("b-1"))


@pytest.fixture
def book() -> DeviceBook:
    return DeviceBook("nvidia.com/gpu", SHARES)


def test_capacity_counts_the_unhealthy_too(book: DeviceBook) -> None:
    assert (book.capacity, book.allocatable) == (4, 3)


def test_what_a_container_holds_is_taken_until_its_pod_ends(book: DeviceBook) -> None:
    book.hold("pod", "main", book.choose(1, book.available()))
    book.hold("pod", "side", book.choose(1, book.available()))
    assert book.available() == ("b-1",)
    book.update(SHARES)
    assert book.available() == ("b-1",)
    book.release("pod")
    assert book.available() == ("a-0", "a-1", "b-1")


def test_too_few_are_refused_in_the_words_of_kubelet(book: DeviceBook) -> None:
    with pytest.raises(TooFewShares) as refused:
        book.choose(4, book.available())
    assert str(refused.value) == (
        "requested number of devices unavailable for nvidia.com/gpu. Requested: 4, Available: 3"
    )


def test_preferred_ids_come_first_if_they_are_there(book: DeviceBook) -> None:
    assert book.choose(2, book.available(), ["b-1", "b-0", "a-1"]) == ("b-1", "a-1")


def test_an_init_container_hands_its_shares_on(book: DeviceBook) -> None:
    book.hold("pod", "init", ("b-1",))
    assert book.available() == ("a-0", "a-1")
    assert book.choose(2, book.available(reusable=("b-1",))) == ("b-1", "a-0")
    assert book.available(reusable=("b-0",)) == ("a-0", "a-1")
