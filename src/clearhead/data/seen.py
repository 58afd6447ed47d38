"""What was there before, in bounded memory: numbers of 8 bytes in one flat table.

A Python set takes ten times as much. Of ten million texts two different ones have the same 8-byte hash with a chance
of three in a million.
"""

from array import array

FIRST_SIZE = 1 << 12
FULL = 0.65  # the table doubles when this share of it is in use


class Seen:
    """A set of numbers below 2^64 that only grows: open addressing, a place after the other."""

    def __init__(self) -> None:
        self._count = 0
        self._table = array("Q", [0]) * FIRST_SIZE

    def __len__(self) -> int:
        return self._count

    def add(self, number: int) -> bool:
        """Takes a number up; whether it is new."""
        if self._count >= FULL * len(self._table):
            self._grow()
        is_new = _put(self._table, number or 1)  # 0 marks a free place
        self._count += is_new
        return is_new

    def _grow(self) -> None:
        old, self._table = self._table, array("Q", [0]) * (2 * len(self._table))
        for number in old:
            if number:
                _put(self._table, number)


def _put(table: "array[int]", number: int) -> bool:
    """Puts a number into a table with room; whether it was not there yet."""
    last = len(table) - 1
    place = number & last
    while found := table[place]:
        if found == number:
            return False
        place = (place + 1) & last
    table[place] = number
    return True
