"""Who answers for a holdout, and at which threshold: never by the holdout's own notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builders.gold import gold_cases
from data_builders.trajectory import Trajectory, load_trajectories
from eval.loo import run_cases
from eval.metrics import extract_score
from eval.report import summarise
from eval.sources import GRID, ModelOptions, best_threshold, calibrated, sources_for
from operators.assembly import ModelSource, parse_choice
from operators.claims import StateClaim
from operators.errors import ConfigError
from operators.evidence import Evidence, EvidenceType
from operators.models.text import ChoiceRequest, TextRequest
from operators.outcome import Outcome, valid
from operators.prompts import quoted

TRAJECTORIES = load_trajectories(Path(__file__).parents[2] / "configs" / "trajectories")


@dataclass
class Oracle:
    """Knows which pairs the notes state: `yes` for those, `no` for the others; fills nothing."""

    trajectory: Trajectory
    yes: float
    no: float
    identity: str = "oracle"
    asked: list[str] = field(default_factory=list)

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        return [valid('{"claims": []}')] * len(requests)

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        return [self._answer(request.messages[-1]["content"]) for request in requests]

    def _answer(self, prompt: str) -> Outcome[tuple[float, ...]]:
        self.asked.append(prompt)
        for case in gold_cases(self.trajectory).extract:
            if quoted(case.note.text) in prompt:
                stated = any(f"Pair: {c.entity}.{c.slot} " in prompt for c in case.gold)
                found = self.yes if stated else self.no
                return valid((found, 1 - found))
        return valid((0.0, 1.0))


def test_a_threshold_is_that_of_the_best_f1_and_the_middle_of_equal_ones() -> None:
    assert best_threshold([(0.3, True), (0.1, False)], default=0.5) == 0.25
    assert best_threshold([(0.9, True), (0.6, True), (0.5, False)], default=0.5) == 0.6
    assert best_threshold([(0.9, False)], default=0.5) == 0.5
    assert best_threshold([], default=0.4) == 0.4


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30))
def test_a_threshold_is_of_the_grid_or_the_default(pairs: list[tuple[float, bool]]) -> None:
    assert best_threshold(pairs, default=0.5) in {*GRID, 0.5}


def test_a_holdouts_threshold_comes_from_the_other_trajectories_alone() -> None:
    first, second = TRAJECTORIES[:2]
    sources = {
        first.name: ModelSource(Oracle(first, yes=0.30, no=0.10)),
        second.name: ModelSource(Oracle(second, yes=0.90, no=0.80)),
    }
    found = calibrated(sources, (first, second))
    assert 0.80 < found[first.name].threshold <= 0.90
    assert 0.10 < found[second.name].threshold <= 0.30
    alone = calibrated({first.name: sources[first.name]}, (first, second))
    assert alone[first.name].threshold == sources[first.name].threshold


def test_what_stage_one_kept_is_reported_by_itself() -> None:
    first = TRAJECTORIES[0]
    choice = parse_choice("extract=two-stage")
    kept = run_cases(first.name, gold_cases(first), choice, ModelSource(Oracle(first, yes=0.9, no=0.1)))
    lost = run_cases(first.name, gold_cases(first), choice, ModelSource(Oracle(first, yes=0.3, no=0.1)))
    for rows, recall in ((kept, 1.0), (lost, 0.0)):
        assert summarise(rows, str(choice))["holdouts"][0]["stage1_recall"] == recall  # type: ignore[index]
    assert {row.outcome for row in kept if row.step == "extract"} == {"malformed", "empty"}
    assert all(row.score == 0 for row in kept if row.outcome == "malformed")


def test_rules_need_no_model_and_learned_steps_do() -> None:
    rules, learned = parse_choice("rules"), parse_choice("compare=learned")
    with sources_for(TRAJECTORIES, rules, ModelOptions(), holdouts=["browser-surface"]) as sources:
        assert sources == {}
    with (
        pytest.raises(ConfigError, match="asks a model"),
        sources_for(TRAJECTORIES, learned, ModelOptions(), holdouts=["browser-surface"]),
    ):
        pass
    for options, fault in (
        (ModelOptions(adapters=Path("run"), shots=2), "without adapters"),
        (ModelOptions(adapters=Path("nothing-here")), "no compare-claims adapter"),
    ):
        with (
            pytest.raises(ConfigError, match=fault),
            sources_for(TRAJECTORIES, learned, options, holdouts=["browser-surface"]),
        ):
            pass


@pytest.mark.parametrize(
    ("said", "relaxed"),
    [("the quick brown fox", 1.0), ("quick brown fox", 1.0), ("quick", 0.0), (None, 0.0)],
)
def test_a_relaxed_value_has_most_words_of_the_gold_one(said: str | None, relaxed: float) -> None:
    case = gold_cases(TRAJECTORIES[0]).extract[0]
    entity, slot = next(pair for pair in case.schema.pairs() if pair[1].form == "text")
    evidence = Evidence(type=EvidenceType.HUMAN_NOTE, source="s")

    def claim(value: str | None) -> StateClaim:
        return StateClaim(entity.entity, slot.slot, value, evidence, case.note.observed_at)

    score = extract_score([claim(said)], [claim("the quick brown fox")], case.schema)
    assert score.relaxed_f1 == relaxed
    assert score.pair_f1 == 1.0
