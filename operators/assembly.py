"""From a choice of operators to the operators: the one place where they are built."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict
from rapidfuzz import process

from operators.errors import ConfigError
from operators.rules.compare import LatestCompare, RuleCompare
from operators.rules.extract import RuleExtract
from operators.rules.update import RuleUpdate
from operators.schema import SlotSchema
from operators.seam import CompareOperator, ExtractOperator, OperatorSet, UpdateOperator

EXTRACTORS: dict[str, Callable[[], ExtractOperator]] = {"rules": RuleExtract}
COMPARERS: dict[str, Callable[[SlotSchema], CompareOperator]] = {
    "rules": RuleCompare,
    "latest": lambda schema: LatestCompare(RuleCompare(schema)),
}
UPDATERS: dict[str, Callable[[SlotSchema, CompareOperator], UpdateOperator]] = {"rules": RuleUpdate}
_STEPS: dict[str, frozenset[str]] = {
    "extract": frozenset(EXTRACTORS),
    "compare": frozenset(COMPARERS),
    "update": frozenset(UPDATERS),
}


class OperatorChoice(BaseModel):
    """Which implementation answers each of the three calls."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    extract: str = "rules"
    compare: str = "rules"
    update: str = "rules"

    def __str__(self) -> str:
        """Steps other than `rules`, as `parse_choice` reads them; `rules` when there is none."""
        picked = [f"{step}={name}" for step, name in self.model_dump().items() if name != "rules"]
        return ",".join(picked) or "rules"


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


def build_operators(choice: OperatorChoice, schema: SlotSchema) -> OperatorSet:
    """The operators of a choice, for one schema."""
    compare = COMPARERS[choice.compare](schema)
    return OperatorSet(EXTRACTORS[choice.extract](), compare, UPDATERS[choice.update](schema, compare))


def _checked(picked: dict[str, str]) -> OperatorChoice:
    for step, name in picked.items():
        if name not in _STEPS[step]:
            raise ConfigError(f"no {step} operator {name!r}", hint=_near(name, _STEPS[step]))
    return OperatorChoice(**picked)


def _near(word: str, known: frozenset[str] | dict[str, frozenset[str]]) -> str:
    near = process.extractOne(word, sorted(known), score_cutoff=60)
    return f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(sorted(known))}"
