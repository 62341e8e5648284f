"""Answers a second of the local backend: by batch, with adapters switched, with and without a schema."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from data_builders.gold import gold_cases
from data_builders.trajectory import Trajectory
from operators.adapters import read_card
from operators.assembly import local_model
from operators.claims import Note
from operators.errors import ConfigError
from operators.learned.answers import RELATION_SCHEMA
from operators.learned.extract import DirectExtract, TwoStageExtract
from operators.learned.judge import JUDGE_TOKENS
from operators.models.text import TextModel, TextRequest
from operators.prompts import compare_messages
from operators.schema import SlotSchema
from operators.seam import BatchExtract

BATCHES = (1, 8, 32)


@dataclass(frozen=True, slots=True)
class LocalBench:
    """Requests a second by (batch size, under a schema); seconds a note of both extractors at batch 32.

    `answered` counts the notes with an answer (valid or empty): one that runs to its token limit has none and
    costs the most there is, so a ratio over such answers says little.
    """

    requests: int
    per_second: Mapping[tuple[int, bool], float]
    notes: int
    direct_s: float
    two_stage_s: float
    direct_answered: int
    two_stage_answered: int

    @property
    def two_stage_cost(self) -> float:
        """Two-stage over direct, seconds a note."""
        return self.two_stage_s / self.direct_s


def run_local_bench(
    base: Path,
    adapters: Mapping[str, Path],
    trajectory: Trajectory,
    *,
    requests: int,
    notes: int,
    progress: Callable[[str], None] = lambda _: None,
) -> LocalBench:
    """compare-claims requests over all adapters in turn, then each extractor on the adapter trained for it.

    `adapters` are named folders. Unconstrained answers run to the same token limit.
    Raises: ConfigError without an adapter for extract-state.
    """
    for_two_stage, for_direct = _extractor(adapters, "fill"), _extractor(adapters, "direct")
    rates: dict[tuple[int, bool], float] = {}
    for batch in BATCHES:
        model = local_model(base, identity="bench", adapters=adapters, batch_size=batch)
        for constrained in (True, False):
            progress(f"batch {batch}, {'with' if constrained else 'without'} schema")
            asked = _requests(trajectory, list(adapters), requests, constrained=constrained)
            rates[batch, constrained] = len(asked) / _seconds(partial(_ask, model, asked, batch))
    cases = [(case.note, case.schema) for case in gold_cases(trajectory).extract][:notes]
    progress("two-stage")
    two_stage, by_two_stage = _timed(TwoStageExtract(model, for_two_stage), cases)
    progress("direct")
    direct, by_direct = _timed(DirectExtract(model, for_direct), cases)
    return LocalBench(
        requests, rates, len(cases), direct / len(cases), two_stage / len(cases), by_direct, by_two_stage
    )


def _extractor(adapters: Mapping[str, Path], task: str) -> str:
    """The adapter that was trained on this task of extract-state, or failing that on another of its tasks."""
    cards = {name: read_card(folder) for name, folder in adapters.items()}
    able = [name for name, card in cards.items() if card.operator in ("extract-state", "multi")]
    if not able:
        raise ConfigError("no adapter for extract-state", hint="train one: `train --operator extract-state`")
    return next((name for name in able if task in cards[name].tasks), able[0])


def _timed(operator: BatchExtract, cases: Sequence[tuple[Note, SlotSchema]]) -> tuple[float, int]:
    """Seconds for all cases, and how many of them got an answer."""
    began = time.perf_counter()
    outcomes = operator.extract_batch(cases)
    return time.perf_counter() - began, sum(outcome.value is not None for outcome in outcomes)


def _requests(
    trajectory: Trajectory, adapters: Sequence[str], count: int, *, constrained: bool
) -> list[TextRequest]:
    """Real comparisons, the adapter changing from each to the next."""
    cases = gold_cases(trajectory)
    return [
        TextRequest(
            tuple(compare_messages(case.incumbent, case.incoming, cases.schema)),
            RELATION_SCHEMA if constrained else None,
            JUDGE_TOKENS,
            adapters[number % len(adapters)],
        )
        for number, case in enumerate((cases.compare * count)[:count])
    ]


def _ask(model: TextModel, requests: Sequence[TextRequest], batch: int) -> None:
    for start in range(0, len(requests), batch):
        model.complete(requests[start : start + batch])


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
