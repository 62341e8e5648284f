"""What a call of an operator or model came to: only `valid` and `empty` are answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class OutcomeKind(StrEnum):
    VALID = "valid"
    EMPTY = "empty"  # a considered "nothing"
    MALFORMED = "malformed"
    TRUNCATED = "truncated"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """An answer, or the reason why there is none. `value` is None exactly when it is no answer."""

    kind: OutcomeKind
    value: T | None = None
    detail: str = ""


def valid(value: T) -> Outcome[T]:
    return Outcome(OutcomeKind.VALID, value)


def empty(value: T, detail: str) -> Outcome[T]:
    return Outcome(OutcomeKind.EMPTY, value, detail)
