"""Leave-one-out splits by example id, and the check that nothing held out reaches a fold's training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, process

from data_builders.examples import Example, Source
from operators.errors import LeakError
from operators.normal import normal_text


@dataclass(frozen=True, slots=True)
class Fold:
    """One holdout's rows; `withheld` counts synthetic and mined rows left out as they hold its material."""

    holdout: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    withheld: int


@dataclass(frozen=True, slots=True)
class Leak:
    """One piece of held-out material in one training row."""

    kind: str
    train_id: str
    origin: str
    what: str


def leave_one_out(examples: Sequence[Example], *, near_duplicate: float) -> list[Fold]:
    """A fold for each trajectory: its rows are the test, all other rows train.

    Synthetic rows that happen to hold a held-out value, and mined rows with a held-out value, commit or note,
    are withheld from that fold and counted. A leak between trajectories has no such way out.
    Raises: LeakError when a held-out note, near-duplicate (ratio of at least `near_duplicate`, 0 to 100),
    value or commit is left in a fold's training rows.
    """
    holdouts = sorted({e.origin for e in examples if e.source is Source.TRAJECTORY})
    folds = []
    for holdout in holdouts:
        test = [e for e in examples if e.source is Source.TRAJECTORY and e.origin == holdout]
        others = [e for e in examples if not (e.source is Source.TRAJECTORY and e.origin == holdout)]
        given = [e for e in others if e.source is not Source.TRAJECTORY]
        mined = [e for e in given if e.source is Source.MINED]
        spoilt = {leak.train_id for leak in _values_and_commits(given, test)}
        spoilt |= {leak.train_id for leak in _near_duplicates(mined, test, near_duplicate)}
        train = [e for e in others if e.source is Source.TRAJECTORY or e.id not in spoilt]
        leaks = find_leaks(train, test, near_duplicate=near_duplicate)
        if leaks:
            shown = "; ".join(f"{leak.kind} {leak.what!r} in {leak.origin}" for leak in leaks[:5])
            raise LeakError(
                f"{len(leaks)} leak(s) into the fold that holds out {holdout}: {shown}",
                hint="reword or move what both hold; a value in two trajectories gives one of them away",
            )
        folds.append(
            Fold(holdout, tuple(e.id for e in train), tuple(e.id for e in test), len(others) - len(train))
        )
    return folds


def find_leaks(train: Sequence[Example], test: Sequence[Example], *, near_duplicate: float) -> list[Leak]:
    """Every way in which a training row holds test material."""
    return _values_and_commits(train, test) + _near_duplicates(train, test, near_duplicate)


def _values_and_commits(train: Sequence[Example], test: Sequence[Example]) -> list[Leak]:
    values = {value for e in test for value in e.open_values}
    commits = {commit[:12] for e in test for commit in e.commits}
    leaks = []
    for row in train:
        leaks += [Leak("value", row.id, row.case, value) for value in sorted(values & set(row.open_values))]
        shared = commits & {commit[:12] for commit in row.commits}
        leaks += [Leak("commit", row.id, row.case, commit) for commit in sorted(shared)]
    return leaks


def _near_duplicates(train: Sequence[Example], test: Sequence[Example], threshold: float) -> list[Leak]:
    """Every training row whose note is nearly one of the test's; each note is compared once."""
    held = list(dict.fromkeys(normal_text(e.note) for e in test if e.note))
    seen: dict[str, list[Example]] = {}
    for row in train:
        if row.note:
            seen.setdefault(row.note, []).append(row)
    if not held or not seen:
        return []
    texts = [normal_text(note) for note in seen]
    scores = process.cdist(held, texts, scorer=fuzz.ratio, score_cutoff=threshold, workers=-1)
    groups = list(seen.values())
    return [
        Leak("note", row.id, row.case, held[i][:60])
        for i, j in zip(*scores.nonzero(), strict=True)
        for row in groups[j]
    ]
