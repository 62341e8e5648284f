"""The live items of one key: what the memory currently holds for it, and what disputes that."""

from __future__ import annotations

from collections.abc import Iterator

from operators.claims import MemoryItem


class LiveItems:
    """Confirmed and Contested items, found by value in constant time.

    `holders` are the items at the top: one Confirmed item, or several Contested ones of equal rank.
    Every other item is Contested. No two items have the same normal value.
    """

    __slots__ = ("_by_value", "holders")

    def __init__(self) -> None:
        self._by_value: dict[str | None, MemoryItem] = {}
        self.holders: list[MemoryItem] = []

    def __iter__(self) -> Iterator[MemoryItem]:
        return iter(self._by_value.values())

    def __len__(self) -> int:
        return len(self._by_value)

    @property
    def holder(self) -> MemoryItem | None:
        """The item an incoming claim is compared with; None for a key without live items."""
        return self.holders[0] if self.holders else None

    def with_value(self, normal: str | None) -> MemoryItem | None:
        """The live item of that normal value, if there is one."""
        return self._by_value.get(normal)

    def is_holder(self, item: MemoryItem) -> bool:
        """Whether the item is at the top."""
        return any(other.item_id == item.item_id for other in self.holders)

    def put(self, item: MemoryItem, *, holds: bool) -> None:
        """Add the item or replace the one of its value; `holds` puts it among the holders."""
        self._by_value[item.normal] = item
        if self.holders:
            self.holders = [other for other in self.holders if other.item_id != item.item_id]
        if holds:
            self.holders.append(item)

    def retire(self, item: MemoryItem) -> None:
        """Take a superseded item out."""
        del self._by_value[item.normal]
        self.holders = [other for other in self.holders if other.item_id != item.item_id]
