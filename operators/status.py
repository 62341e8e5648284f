"""The life of a memory item: four statuses and the legal moves between them (paper, A.9)."""

from __future__ import annotations

from enum import StrEnum

from operators.errors import IllegalTransition


class Status(StrEnum):
    PROPOSED = "Proposed"
    CONFIRMED = "Confirmed"
    CONTESTED = "Contested"
    SUPERSEDED = "Superseded"


LEGAL_MOVES: dict[Status, frozenset[Status]] = {
    Status.PROPOSED: frozenset({Status.CONFIRMED, Status.CONTESTED, Status.SUPERSEDED}),
    Status.CONFIRMED: frozenset({Status.CONTESTED, Status.SUPERSEDED}),
    Status.CONTESTED: frozenset({Status.CONFIRMED, Status.SUPERSEDED}),
    Status.SUPERSEDED: frozenset(),
}


def move(current: Status, new: Status) -> Status:
    """The new status, if the table allows the move; staying is always allowed.

    Raises: IllegalTransition, for example for anything out of Superseded.
    """
    if new is not current and new not in LEGAL_MOVES[current]:
        raise IllegalTransition(
            f"an item cannot go from {current} to {new}",
            hint="a value that returns is a new item; the superseded one stays as it is",
        )
    return new
