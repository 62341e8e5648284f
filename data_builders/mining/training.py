"""Which mined notes train: short enough, people's before programs', a fixed number of each repository."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from data_builders.gold import GoldCases
from data_builders.mining.dataset import mined_cases, read_notes
from operators.claims import content_hash
from operators.schema import FrozenModel


class MinedConfig(FrozenModel):
    """How many mined notes of one repository train, how long they may be, and how many of them bots wrote.

    `bot_share` (0 to 1) bounds the share of bots' notes: version bumps all read alike and would crowd out
    prose.
    """

    notes: int = Field(ge=0)
    max_characters: int = Field(ge=1)
    bot_share: float = Field(ge=0, le=1)


def training_cases(folder: Path, config: MinedConfig) -> GoldCases:
    """The notes of one mined repository that train (drawn by hash), with its chain cases."""
    notes = [note for note in read_notes(folder) if len(note.text) <= config.max_characters]
    notes.sort(key=lambda note: content_hash(note.id))
    people = [note for note in notes if not note.by_bot]
    bots = [note for note in notes if note.by_bot]
    by_bots = min(len(bots), round(config.notes * config.bot_share))
    by_people = people[: config.notes - by_bots]
    if config.bot_share < 1:
        by_bots = min(by_bots, round(len(by_people) * config.bot_share / (1 - config.bot_share)))
    chains = mined_cases(folder, sample=0)
    picked = [*by_people, *bots[:by_bots]]
    return GoldCases(chains.schema, tuple(note.case() for note in picked), chains.compare, chains.update)
