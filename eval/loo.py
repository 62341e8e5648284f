"""Leave-one-out: the three operators by example, and the loop end to end (paper, Table 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from data_builders.gold import GoldCases, gold_cases
from data_builders.mining.dataset import mined_cases, mined_repositories
from data_builders.trajectory import Trajectory
from eval.metrics import extract_score
from eval.replay import ReplayResult, replay
from operators.assembly import ModelSource, OperatorChoice, build_operators
from operators.claims import Note, StateClaim
from operators.learned.extract import TwoStageExtract
from operators.schema import SlotSchema
from operators.seam import OperatorSet, compare_all, extract_all, update_all

EXAMPLE_STEPS = ("extract", "compare", "update")
STEPS = (*EXAMPLE_STEPS, "state", "queries", "state_given_claims", "queries_given_claims")


@dataclass(frozen=True, slots=True)
class Row:
    """One scored example. `score` is in [0, 1]; `detail` says what was wanted and what came."""

    holdout: str
    step: str
    example: str
    outcome: str
    score: float
    detail: dict[str, object]


Sources = Callable[[str], ModelSource | None]
"""The model that answers for one holdout: one that was not trained on it."""


def no_model(_holdout: str) -> ModelSource | None:
    """The source of a choice that asks no model."""
    return None


def run_holdout(
    trajectory: Trajectory, choice: OperatorChoice, source: ModelSource | None = None
) -> list[Row]:
    """Every row of one holdout; that the source was not trained on it is the caller's to see to."""
    rows = run_cases(trajectory.name, gold_cases(trajectory), choice, source)
    from_notes = replay(trajectory, choice, source=source)
    from_gold = replay(trajectory, choice, gold_claims=True, source=source)
    rows += _replay_rows(trajectory.name, from_notes, "")
    rows += _replay_rows(trajectory.name, from_gold, "_given_claims")
    return rows


def run_cases(
    holdout: str, cases: GoldCases, choice: OperatorChoice, source: ModelSource | None = None
) -> list[Row]:
    """The rows of the three operators on one holdout's cases."""
    operators = build_operators(choice, cases.schema, source)
    return [
        *_extract_rows(holdout, cases, operators),
        *_compare_rows(holdout, cases, operators),
        *_update_rows(holdout, cases, operators),
    ]


def run_loo(
    trajectories: Sequence[Trajectory],
    choice: OperatorChoice,
    *,
    sources: Sources = no_model,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """All holdouts, in the order given; `progress` hears each name as it begins."""
    rows: list[Row] = []
    for trajectory in trajectories:
        progress(trajectory.name)
        rows += run_holdout(trajectory, choice, sources(trajectory.name))
    return rows


def run_mined(
    folder: Path,
    choice: OperatorChoice,
    *,
    sample: int,
    sources: Sources = no_model,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Each mined repository as a holdout: operators by example; there is no hand-written state to replay.

    Raises: InputError when the folder holds no mined repository.
    """
    rows: list[Row] = []
    for repository in mined_repositories(folder):
        progress(repository.name)
        cases = mined_cases(repository, sample=sample)
        rows += run_cases(repository.name, cases, choice, sources(repository.name))
    return rows


def _extract_rows(holdout: str, cases: GoldCases, operators: OperatorSet) -> list[Row]:
    rows = []
    asked = [(case.note, case.schema) for case in cases.extract]
    outcomes = extract_all(operators.extract, asked)
    selected = _selected(operators, asked)
    for case, outcome, pairs in zip(cases.extract, outcomes, selected, strict=True):
        schema = case.schema
        claims = [schema.canonical(claim) for claim in outcome.value or []]
        score = extract_score(claims, case.gold, schema)
        detail: dict[str, object] = {
            **asdict(score),
            "gold": _claims(case.gold, schema),
            "predicted": _claims(claims, schema),
        }
        if pairs is not None:
            detail["selected"] = pairs
        # Without an answer nothing was extracted; that is wrong even where nothing was to be found.
        worth = score.claim_f1 if outcome.value is not None else 0.0
        rows.append(Row(holdout, "extract", case.case_id, outcome.kind.value, worth, detail))
    return rows


def _selected(operators: OperatorSet, asked: Sequence[tuple[Note, SlotSchema]]) -> Sequence[list[str] | None]:
    """What stage 1 of a two-stage extractor chose on each note; None for an extractor of one stage."""
    if not isinstance(operators.extract, TwoStageExtract):
        return [None] * len(asked)
    chosen = operators.extract.select(asked)
    return [[f"{e.entity}.{s.slot}" for e, s in outcome.value or []] for outcome in chosen]


def _compare_rows(holdout: str, cases: GoldCases, operators: OperatorSet) -> list[Row]:
    rows = []
    outcomes = compare_all(operators.compare, [(case.incumbent, case.incoming) for case in cases.compare])
    for case, outcome in zip(cases.compare, outcomes, strict=True):
        got = outcome.value
        detail: dict[str, object] = {
            "gold": [case.gold.relation.value, case.gold.winner.value],
            "predicted": [got.relation.value, got.winner.value] if got else None,
        }
        right = float(got == case.gold)
        rows.append(Row(holdout, "compare", case.case_id, outcome.kind.value, right, detail))
    return rows


def _update_rows(holdout: str, cases: GoldCases, operators: OperatorSet) -> list[Row]:
    rows = []
    outcomes = update_all(operators.update, [(case.items, case.incoming) for case in cases.update])
    for case, outcome in zip(cases.update, outcomes, strict=True):
        got = outcome.value
        detail: dict[str, object] = {
            "gold": [case.action.value, case.target],
            "predicted": [got.action.value, got.target] if got else None,
        }
        right = float(got is not None and (got.action, got.target) == (case.action, case.target))
        rows.append(Row(holdout, "update", case.case_id, outcome.kind.value, right, detail))
    return rows


def _replay_rows(holdout: str, result: ReplayResult, suffix: str) -> list[Row]:
    rows = [
        Row(holdout, f"state{suffix}", f"{holdout}/{s.session_id}/state{suffix}", "scored",
            s.right / s.places, {"right": s.right, "places": s.places})
        for s in result.sessions
        if s.places
    ]  # fmt: skip
    rows += [
        Row(holdout, f"queries{suffix}", f"{holdout}/{q.query_id}{suffix}", "scored",
            float(q.right), {"kind": q.kind, "hops": q.hops, "answer": q.answer})
        for q in result.queries
    ]  # fmt: skip
    return rows


def _claims(claims: Sequence[StateClaim], schema: SlotSchema) -> list[list[str | None]]:
    return sorted(([str(c.key), schema.normal(c), c.retires] for c in claims), key=str)


def outcome_counts(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """How many calls of each operator came to which outcome."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        if row.step in EXAMPLE_STEPS:
            counts.setdefault(row.step, Counter())[row.outcome] += 1
    return {step: dict(sorted(found.items())) for step, found in sorted(counts.items())}
