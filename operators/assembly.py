"""From a choice of operators to the operators: the one place where they are built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from rapidfuzz import process

from operators.errors import ConfigError
from operators.learned.extract import DirectExtract, TwoStageExtract
from operators.learned.judge import LearnedCompare, LearnedUpdate
from operators.models.text import TextModel
from operators.rules.compare import LatestCompare, RuleCompare
from operators.rules.extract import RuleExtract
from operators.rules.update import RuleUpdate
from operators.schema import SlotSchema
from operators.seam import CompareOperator, ExtractOperator, OperatorSet, UpdateOperator


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The model that learned operators ask, and the adapter that answers for each of them.

    `adapters` maps an operator (extract-state, compare-claims, update-memory) to an adapter's name; one that
    is absent is answered by the base. `threshold` is that of the two-stage extractor.
    """

    model: TextModel
    adapters: Mapping[str, str] = field(default_factory=dict)
    threshold: float = 0.5


Extractor = Callable[[ModelSource], ExtractOperator]
LEARNED_EXTRACTORS: dict[str, Extractor] = {
    "direct": lambda source: DirectExtract(source.model, source.adapters.get("extract-state")),
    "two-stage": lambda source: TwoStageExtract(
        source.model, source.adapters.get("extract-state"), source.threshold
    ),
}
COMPARERS: dict[str, Callable[[SlotSchema], CompareOperator]] = {
    "rules": RuleCompare,
    "latest": lambda schema: LatestCompare(RuleCompare(schema)),
}
_STEPS: dict[str, frozenset[str]] = {
    "extract": frozenset({"rules", *LEARNED_EXTRACTORS}),
    "compare": frozenset({*COMPARERS, "learned"}),
    "update": frozenset({"rules", "learned"}),
}
_LEARNED = frozenset({*LEARNED_EXTRACTORS, "learned"})


class OperatorChoice(BaseModel):
    """Which implementation answers each of the three calls."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    extract: str = "rules"
    compare: str = "rules"
    update: str = "rules"

    @property
    def learned(self) -> bool:
        """Whether any step asks a model."""
        return any(name in _LEARNED for name in (self.extract, self.compare, self.update))

    def __str__(self) -> str:
        """Steps other than `rules`, as `parse_choice` reads them; `rules` when there is none."""
        picked = [f"{step}={name}" for step, name in self.model_dump().items() if name != "rules"]
        return ",".join(picked) or "rules"


def local_model(base: Path, *, identity: str, adapters: Mapping[str, Path], batch_size: int) -> TextModel:
    """A model in this process.

    Raises: ConfigError where torch and its companions are not installed.
    """
    try:
        from operators.models.local.model import LocalModel  # noqa: PLC0415 - the extra `local` is optional
    except ImportError as fault:
        hint = "pip install 'latticemind[local]'"
        raise ConfigError(f"a local model needs the extra `local` ({fault.name})", hint=hint) from fault
    return LocalModel.load(base, identity=identity, adapters=adapters, batch_size=batch_size)


def parse_choice(text: str) -> OperatorChoice:
    """`rules`, or `step=name` parts such as `compare=latest` (steps left out stay `rules`).

    Raises: ConfigError that names the nearest right word.
    """
    if text.strip() == "rules":
        return OperatorChoice()
    picked: dict[str, str] = {}
    for part in text.split(","):
        step, equals, name = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ConfigError(f"{part!r} is no operator choice", hint="write `rules` or step=name")
        if step not in _STEPS:
            raise ConfigError(f"no operator step {step!r}", hint=_near(step, _STEPS))
        picked[step] = name
    return _checked(picked)


def build_operators(
    choice: OperatorChoice, schema: SlotSchema, source: ModelSource | None = None
) -> OperatorSet:
    """The operators of a choice, for one schema.

    Raises: ConfigError when a step is learned and there is no model.
    """
    extractor: ExtractOperator = RuleExtract()
    if choice.extract in LEARNED_EXTRACTORS:
        extractor = LEARNED_EXTRACTORS[choice.extract](_needed(source, choice))
    if choice.compare in COMPARERS:
        comparer = COMPARERS[choice.compare](schema)
    else:
        asked = _needed(source, choice)
        comparer = LearnedCompare(schema, asked.model, asked.adapters.get("compare-claims"))
    updater: UpdateOperator = RuleUpdate(schema, comparer)
    if choice.update == "learned":
        asked = _needed(source, choice)
        updater = LearnedUpdate(schema, asked.model, asked.adapters.get("update-memory"))
    return OperatorSet(extractor, comparer, updater)


def _needed(source: ModelSource | None, choice: OperatorChoice) -> ModelSource:
    if source is None:
        hint = "give --adapters RUN (what `train` wrote) or --base NAME"
        raise ConfigError(f"{choice} asks a model and none is given", hint=hint)
    return source


def _checked(picked: dict[str, str]) -> OperatorChoice:
    for step, name in picked.items():
        if name not in _STEPS[step]:
            raise ConfigError(f"no {step} operator {name!r}", hint=_near(name, _STEPS[step]))
    return OperatorChoice(**picked)


def _near(word: str, known: frozenset[str] | dict[str, frozenset[str]]) -> str:
    near = process.extractOne(word, sorted(known), score_cutoff=60)
    return f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(sorted(known))}"
