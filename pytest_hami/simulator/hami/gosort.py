"""The order that Go's ``sort.Sort`` leaves equal elements in.

HAMi 2.10.0 sorts cards with it (pkg/scheduler/policy/gpu_policy.go), and equal cards are common, so the order shows in
every allocation. Up to 12 elements it is an insertion sort and stable; above, it is the pattern-defeating quicksort
of Go 1.19 and later: deterministic, not stable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_SMALL = 12
_NINTHER = 50
_MAX_SWAPS = 12
_SHIFT_TRIES = 5
_SHIFT_MIN = 50
_MASK64 = (1 << 64) - 1


def go_sort(items: list[T], key: Callable[[T], Any]) -> None:
    """Sort ``items`` in place, ascending by ``key``, into exactly the order of Go's ``sort.Sort``.

    >>> cards = [("b", 1), ("a", 0), ("c", 1)]
    >>> go_sort(cards, key=lambda card: card[1]); [name for name, _ in cards]
    ['a', 'b', 'c']
    """
    sorter = _Sorter([(key(item), item) for item in items])
    sorter.sort(0, len(items), len(items).bit_length())
    items[:] = [item for _, item in sorter.rows]


class _Sorter(Generic[T]):
    def __init__(self, rows: list[tuple[Any, T]]) -> None:
        self.rows = rows

    def less(self, i: int, j: int) -> bool:
        return bool(self.rows[i][0] < self.rows[j][0])

    def swap(self, i: int, j: int) -> None:
        self.rows[i], self.rows[j] = self.rows[j], self.rows[i]

    def sort(self, low: int, high: int, budget: int) -> None:
        balanced = partitioned = True
        while high - low > _SMALL:
            size = high - low
            if budget == 0:
                self._heap(low, high)
                return
            if not balanced:
                self._scatter(low, high)
                budget -= 1
            pivot, swaps = self._pivot(low, high)
            rising = swaps == 0
            if swaps == _MAX_SWAPS:
                self.rows[low:high] = self.rows[low:high][::-1]
                pivot = high - 1 - (pivot - low)
                rising = True
            if balanced and partitioned and rising and self._nearly_sorted(low, high):
                return
            if low > 0 and not self.less(low - 1, pivot):
                low = self._skip_equal(low, high, pivot)
                continue
            middle, partitioned = self._partition(low, high, pivot)
            left, right = middle - low, high - middle
            balanced = min(left, right) >= size // 8
            if left < right:
                self.sort(low, middle, budget)
                low = middle + 1
            else:
                self.sort(middle + 1, high, budget)
                high = middle
        self._insertion(low, high)

    def _insertion(self, low: int, high: int) -> None:
        for start in range(low + 1, high):
            at = start
            while at > low and self.less(at, at - 1):
                self.swap(at, at - 1)
                at -= 1

    def _heap(self, low: int, high: int) -> None:
        size = high - low
        for root in range((size - 1) // 2, -1, -1):
            self._sift(root, size, low)
        for end in range(size - 1, -1, -1):
            self.swap(low, low + end)
            self._sift(0, end, low)

    def _sift(self, root: int, size: int, offset: int) -> None:
        while (child := 2 * root + 1) < size:
            if child + 1 < size and self.less(offset + child, offset + child + 1):
                child += 1
            if not self.less(offset + root, offset + child):
                return
            self.swap(offset + root, offset + child)
            root = child

    def _scatter(self, low: int, high: int) -> None:
        # Go seeds its xorshift with the length: equal input gives equal order in every run.
        size = high - low
        state = size
        mask = (1 << size.bit_length()) - 1
        near = low + size // 4 * 2 - 1
        for step in range(3):
            state ^= state << 13 & _MASK64
            state ^= state >> 7
            state ^= state << 17 & _MASK64
            other = state & mask
            self.swap(near + step, low + (other - size if other >= size else other))

    def _pivot(self, low: int, high: int) -> tuple[int, int]:
        quarter = (high - low) // 4
        picks = [low + quarter, low + 2 * quarter, low + 3 * quarter]
        swaps = 0
        if high - low >= _NINTHER:
            for place, pick in enumerate(picks):
                picks[place], more = self._median(pick - 1, pick, pick + 1)
                swaps += more
        median, more = self._median(*picks)
        return median, swaps + more

    def _median(self, a: int, b: int, c: int) -> tuple[int, int]:
        swaps = 0
        if self.less(b, a):
            a, b, swaps = b, a, swaps + 1
        if self.less(c, b):
            b, c, swaps = c, b, swaps + 1
        if self.less(b, a):
            a, b, swaps = b, a, swaps + 1
        return b, swaps

    def _nearly_sorted(self, low: int, high: int) -> bool:
        at = low + 1
        for _ in range(_SHIFT_TRIES):
            while at < high and not self.less(at, at - 1):
                at += 1
            if at == high:
                return True
            if high - low < _SHIFT_MIN:
                return False
            self.swap(at, at - 1)
            down = at - 1
            while at - low >= 2 and down >= 1 and self.less(down, down - 1):
                self.swap(down, down - 1)
                down -= 1
            up = at + 1
            while high - at >= 2 and up < high and self.less(up, up - 1):
                self.swap(up, up - 1)
                up += 1
        return False

    def _partition(self, low: int, high: int, pivot: int) -> tuple[int, bool]:
        self.swap(low, pivot)
        left, right, moved = low + 1, high - 1, False
        while True:
            while left <= right and self.less(left, low):
                left += 1
            while left <= right and not self.less(right, low):
                right -= 1
            if left > right:
                break
            self.swap(left, right)
            left, right, moved = left + 1, right - 1, True
        self.swap(right, low)
        return right, not moved

    def _skip_equal(self, low: int, high: int, pivot: int) -> int:
        self.swap(low, pivot)
        left, right = low + 1, high - 1
        while True:
            while left <= right and not self.less(low, left):
                left += 1
            while left <= right and self.less(low, right):
                right -= 1
            if left > right:
                return left
            self.swap(left, right)
            left, right = left + 1, right - 1
