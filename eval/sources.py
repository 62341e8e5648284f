"""Who answers for a holdout: a base as it is, a base with solved examples, or adapters not trained on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from data_builders.examples import Example, Source, examples
from data_builders.gold import ExtractCase, gold_cases
from data_builders.trajectory import Trajectory
from operators.adapter_checks import verify_adapter
from operators.adapters import AdapterCard, BaseCard, adapter_for
from operators.assembly import ModelSource, OperatorChoice, local_model
from operators.claims import content_hash
from operators.errors import ConfigError
from operators.learned.extract import TwoStageExtract
from operators.models.bases import FoundBase, find_base
from operators.models.endpoint import TOKEN_VARIABLE, EndpointModel
from operators.models.few_shot import FewShot
from operators.models.memo import Memo
from operators.models.text import TextModel
from operators.prompts import Message

STEP_OPERATORS = {"extract": "extract-state", "compare": "compare-claims", "update": "update-memory"}
DEFAULT_THRESHOLD = 0.5
GRID = tuple(step / 20 for step in range(1, 20))
"""Thresholds tried in calibration."""


Cards = dict[str, dict[str, tuple[Path, AdapterCard]]]
"""For each holdout, the adapter (folder and card) of every operator that asks a model."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which model answers. `adapters` is a folder that `train` wrote; `base` an alias, hub id or folder.

    `adapters_of` takes the adapters that left out this name (`none`: the shared ones) for every holdout: that
    they have not seen it is then the caller's to know. `shots` puts so many solved examples of the other
    trajectories before each request. `threshold` None: each holdout's is calibrated on the others. `url` asks
    a server instead of loading anything: it has `adapters` under their own names, or `base` under this one.
    """

    adapters: Path | None = None
    base: str | None = None
    adapters_of: str | None = None
    shots: int = 0
    threshold: float | None = None
    batch_size: int = 32
    url: str | None = None


@contextmanager
def sources_for(
    trajectories: Sequence[Trajectory],
    choice: OperatorChoice,
    options: ModelOptions,
    *,
    holdouts: Sequence[str],
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[dict[str, ModelSource]]:
    """The source of each holdout; empty for a choice that asks no model. A server's connections end with it.

    `trajectories` are what solved examples and calibration are taken from, each time without the holdout.
    Raises: ConfigError when no model is named or a holdout has no adapter; PreflightError for a bad adapter.
    """
    if not choice.learned:
        yield {}
        return
    if options.adapters is None and options.base is None:
        raise ConfigError(f"{choice} asks a model", hint="give --adapters RUN or --base NAME")
    if options.adapters is not None and options.shots:
        raise ConfigError("--shots is for a base without adapters", hint="leave one of them out")
    cards = _cards(choice, options, holdouts)
    threshold = DEFAULT_THRESHOLD if options.threshold is None else options.threshold
    with ExitStack() as open_until_the_end:
        if options.url:
            model = Memo(open_until_the_end.enter_context(_served(options, cards)))
        else:
            model = Memo(_loaded(options, cards, progress))
        sources = {}
        for holdout in holdouts:
            others = [t for t in trajectories if t.name != holdout]
            asked: TextModel = _with_shots(model, choice, others, options.shots) if options.shots else model
            names = {operator: card.name for operator, (_, card) in cards[holdout].items()}
            sources[holdout] = ModelSource(asked, names, threshold)
        if options.threshold is None and choice.extract == "two-stage":
            sources = calibrated(sources, trajectories, progress=progress)
        yield sources


def _loaded(options: ModelOptions, cards: Cards, progress: Callable[[str], None]) -> TextModel:
    """The base with all these adapters in this process. Raises: ConfigError, PreflightError."""
    progress("loading the model")
    trained_on = next((card.base for found in cards.values() for _, card in found.values()), None)
    if options.base is not None or trained_on is None:
        base = find_base(options.base or "")
    else:
        base = _trained_base(trained_on)
    for found in cards.values():
        for folder, _ in found.values():
            verify_adapter(folder, base.card)
    loaded = {card.name: folder for found in cards.values() for folder, card in found.values()}
    identity = f"{base.card.id}@{base.card.revision}"
    return local_model(base.path, identity=identity, adapters=loaded, batch_size=options.batch_size)


@contextmanager
def _served(options: ModelOptions, cards: Cards) -> Iterator[TextModel]:
    """A server that has all these adapters. Raises: ConfigError, PreflightError, EndpointError."""
    assert options.url is not None
    adapters = [(folder, card) for found in cards.values() for folder, card in found.values()]
    for folder, _ in adapters:
        verify_adapter(folder)
    base = options.base or next((card.base.id for _, card in adapters), "")
    with EndpointModel(options.url, base=base, token=os.environ.get(TOKEN_VARIABLE)) as model:
        listed = {entry.id for entry in model.models()}
        missing = sorted({base, *(card.name for _, card in adapters)} - listed)
        if missing:
            hint = f"it serves {', '.join(sorted(listed)) or 'nothing'}"
            raise ConfigError(f"{options.url} does not serve {missing[0]}", hint=hint)
        yield model


def _trained_base(card: BaseCard) -> FoundBase:
    try:
        return find_base(card.id, card.revision)
    except ConfigError as fault:
        raise ConfigError(
            f"the adapters' base: {fault}", hint=f"{fault.hint}; if it is a folder: --base FOLDER"
        ) from fault


def calibrated(
    sources: dict[str, ModelSource],
    trajectories: Sequence[Trajectory],
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, ModelSource]:
    """Each holdout's source with the threshold of the best pair F1 on the other trajectories.

    Every other trajectory is scored by its own source, which was not trained on it; the holdout's notes take
    no part. With no other trajectory the threshold stays as it is.
    """
    scored: dict[str, list[tuple[float, bool]]] = {}
    for trajectory in trajectories:
        if trajectory.name in sources:
            progress(f"stage 1 on {trajectory.name}")
            scored[trajectory.name] = pair_scores(gold_cases(trajectory).extract, sources[trajectory.name])
    return {
        holdout: replace(
            source,
            threshold=best_threshold(
                [pair for name, pairs in scored.items() if name != holdout for pair in pairs],
                default=source.threshold,
            ),
        )
        for holdout, source in sources.items()
    }


def best_threshold(pairs: Sequence[tuple[float, bool]], *, default: float) -> float:
    """The grid's threshold with the highest F1 on (probability, stated) pairs; the middle of equal ones."""
    if not any(stated for _, stated in pairs):
        return default
    scores = {threshold: _f1_at(pairs, threshold) for threshold in GRID}
    best = [threshold for threshold, score in scores.items() if score == max(scores.values())]
    return best[len(best) // 2]


def _f1_at(pairs: Sequence[tuple[float, bool]], threshold: float) -> float:
    hits = sum(score >= threshold and stated for score, stated in pairs)
    said = sum(score >= threshold for score, _ in pairs)
    wanted = sum(stated for _, stated in pairs)
    return 2 * hits / (said + wanted)


def pair_scores(cases: Sequence[ExtractCase], source: ModelSource) -> list[tuple[float, bool]]:
    """What stage 1 says of every pair of these notes: the probability of yes, and whether yes is right."""
    operator = TwoStageExtract(source.model, source.adapters.get("extract-state"))
    outcomes = operator.score([(case.note, case.schema) for case in cases])
    found = []
    for case, outcome in zip(cases, outcomes, strict=True):
        stated = {(claim.entity, claim.slot) for claim in case.gold}
        pairs = zip(case.schema.pairs(), outcome.value or [], strict=False)  # a blank note has no scores
        found += [(score, (entity.entity, slot.slot) in stated) for (entity, slot), score in pairs]
    return found


def _cards(choice: OperatorChoice, options: ModelOptions, holdouts: Sequence[str]) -> Cards:
    """For each holdout, the adapter of every operator that the choice asks a model for."""
    if options.adapters is None:
        return {holdout: {} for holdout in holdouts}
    asked = [
        STEP_OPERATORS[step] for step, name in choice.model_dump().items() if name not in ("rules", "latest")
    ]
    return {
        holdout: {
            operator: adapter_for(options.adapters, operator=operator, holdout=options.adapters_of or holdout)
            for operator in asked
        }
        for holdout in holdouts
    }


def _with_shots(
    model: TextModel, choice: OperatorChoice, others: Sequence[Trajectory], shots: int
) -> TextModel:
    """Solved examples of other trajectories for the one task of each kind that this choice asks.

    Raises: ConfigError when two steps are learned: they would share the examples.
    """
    learned = {step: name for step, name in choice.model_dump().items() if name not in ("rules", "latest")}
    if len(learned) > 1:
        raise ConfigError("--shots takes one learned step at a time", hint="run the steps one by one")
    (name,) = learned.values()
    (step,) = learned
    task = {"direct": "direct", "two-stage": "fill"}.get(name, step)
    return FewShot(
        model,
        choosing=_solved(others, "select", shots) if name == "two-stage" else (),
        completing=_solved(others, task, shots),
    )


def _solved(trajectories: Sequence[Trajectory], task: str, shots: int) -> tuple[Message, ...]:
    """So many rows of a task as user and assistant turns: short ones, answers of each kind in turn."""
    rows = [
        row
        for trajectory in trajectories
        for row in examples(gold_cases(trajectory), Source.TRAJECTORY, trajectory.name, negatives=2)
        if row.task == task
    ]
    by_answer: dict[str, list[Example]] = {}
    for row in sorted(rows, key=lambda row: (len(row.prompt[1]["content"]) // 200, content_hash(row.id))):
        kind = row.completion[0]["content"] if task in ("select", "compare", "update") else ""
        by_answer.setdefault(kind, []).append(row)
    picked: list[Example] = []
    while len(picked) < shots and any(by_answer.values()):
        for found in by_answer.values():
            if found and len(picked) < shots:
                picked.append(found.pop(0))
    return tuple(message for row in picked for message in (row.prompt[1], row.completion[0]))
