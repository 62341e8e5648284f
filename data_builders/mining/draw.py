"""Drawing stated pairs for a check by hand: a fixed number a family, by seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_builders.mining.dataset import mined_repositories, read_notes
from data_builders.mining.facts import Family
from data_builders.mining.notes import MinedClaim, MinedNote


@dataclass(frozen=True, slots=True)
class DrawnPair:
    """One stated pair: its id (`NOTE#number of the claim`), the note and the claim."""

    id: str
    note: MinedNote
    claim: MinedClaim


def draw_pairs(folder: Path, *, per_family: int, seed: int) -> Iterator[DrawnPair]:
    """Up to `per_family` stated pairs of each family, over all repositories of a mined folder.

    Equal folders and seeds draw equal pairs. Raises: InputError when the folder holds no mined repository.
    """
    pairs = [
        DrawnPair(f"{note.id}#{number}", note, claim)
        for repository in mined_repositories(folder)
        for note in read_notes(repository)
        for number, claim in enumerate(note.claims)
    ]
    rng = random.Random(seed)
    for family in Family:
        found = sorted((pair for pair in pairs if pair.claim.family == family), key=lambda pair: pair.id)
        yield from rng.sample(found, min(per_family, len(found)))
