"""The adapters that one server answers with: checked, on one base, each under a name of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from operators.adapter_checks import verify_adapter
from operators.adapters import CARD, AdapterCard, BaseCard, adapter_folders
from operators.errors import ConfigError, PreflightError

SCORES = "scores.json"
"""Beside a run's adapters: what `eval loo` measured of each, by its name."""

DEFAULT_THRESHOLD = 0.5


class _Measured(BaseModel):
    """What is read of an adapter's scores; the rest is only shown."""

    model_config = ConfigDict(strict=True)

    threshold: float = Field(default=DEFAULT_THRESHOLD, ge=0, le=1)


_MEASURED = TypeAdapter(dict[str, _Measured])


@dataclass(frozen=True, slots=True)
class ServedAdapter:
    """An adapter folder with its card; `scores` is what the evaluation wrote of it, {} for none.

    `threshold` is two-stage extraction's, as the evaluation found it; 0.5 where it did not.
    """

    folder: Path
    card: AdapterCard
    scores: dict[str, object]

    @property
    def threshold(self) -> float:
        return _Measured.model_validate(self.scores).threshold

    @property
    def name(self) -> str:
        return self.card.name

    def answers(self, operator: str) -> bool:
        return self.card.operator in (operator, "multi")


@dataclass(frozen=True, slots=True)
class Registry:
    """All adapters of a server. `holdout` names whose adapters answer where a request names none."""

    adapters: tuple[ServedAdapter, ...]
    holdout: str | None = None

    @property
    def base(self) -> BaseCard:
        """The one base of all."""
        return self.adapters[0].card.base

    def named(self, name: str) -> ServedAdapter:
        """Raises: ConfigError, naming what there is."""
        for adapter in self.adapters:
            if adapter.name == name:
                return adapter
        known = ", ".join(adapter.name for adapter in self.adapters)
        raise ConfigError(f"no adapter {name!r} is served", hint=f"there are: {known}")

    def answering(self, operator: str, asked: str | None = None) -> ServedAdapter:
        """The adapter asked for by name, or the operator's own: of `holdout`, else the only one.

        Raises: ConfigError for an adapter of another operator, or where none or several would do.
        """
        able = [adapter for adapter in self.adapters if adapter.answers(operator)]
        if asked is not None:
            adapter = self.named(asked)
            if adapter not in able:
                raise ConfigError(f"{asked} is trained for {adapter.card.operator}, not {operator}")
            return adapter
        chosen = [a for a in able if self.holdout is None or a.card.holdout == self.holdout]
        own = [a for a in chosen if a.card.operator == operator] or chosen
        if len(own) == 1:
            return own[0]
        if not able:
            raise ConfigError(f"no adapter for {operator} is served", hint="train one and serve it")
        names = ", ".join(adapter.name for adapter in able)
        raise ConfigError(
            f"{'several adapters' if own else 'no adapter of this holdout'} could answer {operator}",
            hint=f"say `adapter` in the request, or start with --holdout; there are: {names}",
        )

    def default_name(self, operator: str) -> str | None:
        """The name of the adapter that answers where none is asked for; None where the request has to say."""
        try:
            return self.answering(operator).name
        except ConfigError:
            return None


def read_registry(
    places: Sequence[Path], *, base: BaseCard | None = None, holdout: str | None = None
) -> Registry:
    """Every adapter in runs or adapter folders, verified from its files.

    Raises: ConfigError where there is none, for an unknown holdout or two of one name; PreflightError for a
    bad adapter, or adapters of two bases.
    """
    found: list[ServedAdapter] = []
    for place in places:
        folders = [place] if (place / CARD).is_file() else adapter_folders(place)
        if not folders:
            raise ConfigError(f"{place} holds no adapter", hint="give what `latticemind train` wrote")
        scores = _scores(place / SCORES)
        for folder in folders:
            card = verify_adapter(folder, base or (found[0].card.base if found else None))
            found.append(ServedAdapter(folder.resolve(), card, scores.get(card.name, {})))
    if not found:
        raise ConfigError("no adapter is given", hint="give --adapters RUN")
    names = [adapter.name for adapter in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{twice[0]} is given twice", hint="name each run once")
    holdouts = sorted({adapter.card.holdout for adapter in found})
    if holdout is not None and holdout not in holdouts:
        raise ConfigError(f"no adapter leaves out {holdout!r}", hint=f"there are: {', '.join(holdouts)}")
    return Registry(tuple(found), holdout)


def _scores(path: Path) -> dict[str, dict[str, object]]:
    if not path.is_file():
        return {}
    try:
        data: dict[str, dict[str, object]] = json.loads(path.read_bytes())
        _MEASURED.validate_python(data)
    except ValueError as fault:  # pydantic's and json's
        raise PreflightError(
            f"{path} holds no scores ({fault})", hint="evaluate again, or remove it"
        ) from fault
    return data
