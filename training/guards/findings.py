"""What a guard says: a fault, and the guard that found it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from training.guards.inspected import Inspected


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong at a place (a dotted field, a file, a row id), and what to do about it."""

    where: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Guard:
    """One thing that is known to go wrong. `id` is its number in the list of them (T01 …)."""

    id: str
    about: str
    check: Callable[[Inspected], Iterable[Fault]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault with the guard that found it; `guard` is `config` for what the config's own model refuses."""

    guard: str
    where: str
    message: str
    hint: str
