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
    """One holdout's rows. `withheld` counts synthetic rows left out because they hold a held-out value."""

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

    Synthetic rows that happen to hold a held-out value are withheld from that fold and counted. A leak
    between trajectories has no such way out.
    Raises: LeakError when a held-out note, near-duplicate (ratio of at least `near_duplicate`, 0 to 100),
    value or commit is left in a fold's training rows.
    """
    holdouts = sorted({e.origin for e in examples if e.source is Source.TRAJECTORY})
    folds = []
    for holdout in holdouts:
        test = [e for e in examples if e.source is Source.TRAJECTORY and e.origin == holdout]
        values = {value for e in test for value in e.open_values}
        others = [e for e in examples if not (e.source is Source.TRAJECTORY and e.origin == holdout)]
        train = [e for e in others if e.source is Source.TRAJECTORY or not values & set(e.open_values)]
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
    values = {value for e in test for value in e.open_values}
    commits = {commit[:12] for e in test for commit in e.commits}
    leaks = []
    for row in train:
        leaks += [Leak("value", row.id, row.case, value) for value in sorted(values & set(row.open_values))]
        shared = commits & {commit[:12] for commit in row.commits}
        leaks += [Leak("commit", row.id, row.case, commit) for commit in sorted(shared)]
    return leaks + _near_duplicates(train, test, near_duplicate)


def _near_duplicates(train: Sequence[Example], test: Sequence[Example], threshold: float) -> list[Leak]:
    held = [(e, normal_text(e.note)) for e in test if e.note]
    seen = [(e, normal_text(e.note)) for e in train if e.note]
    if not held or not seen:
        return []
    texts = [[text for _, text in side] for side in (held, seen)]
    scores = process.cdist(texts[0], texts[1], scorer=fuzz.ratio, score_cutoff=threshold, workers=-1)
    return [
        Leak("note", seen[j][0].id, seen[j][0].case, held[i][1][:60])
        for i, j in zip(*scores.nonzero(), strict=True)
    ]
