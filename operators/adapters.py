"""Adapters on disk: PEFT files with a card that says what they are, on which base, from which data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from operators.artefacts import sha256_of, write_json
from operators.canaries import Canary
from operators.claims import content_hash
from operators.errors import ConfigError, PreflightError
from operators.schema import FrozenModel

WEIGHTS = "adapter_model.safetensors"
CARD = "adapter.json"
VOLATILE = frozenset(("transformers_version", "dtype", "torch_dtype", "_name_or_path"))
"""Keys of a base's config.json that say who saved it and how, and not what the model is."""


class BaseCard(FrozenModel):
    """Which base: hub id and revision, and hashes of its config (volatile keys aside) and tokenizer."""

    id: str
    revision: str
    config_hash: str
    tokenizer_hash: str


class AdapterCard(FrozenModel):
    """adapter.json. `holdout` is what was left out of training, "none" for a shared stage.

    `parent` is the name of the adapter that training went on from; `recipe_hash` decides whether a finished
    adapter can be reused; `training` holds rows, tokens, steps, seconds and losses; `canaries` try a server.
    """

    format: Literal[1] = 1
    operator: str
    tasks: tuple[str, ...]
    holdout: str
    stage: Literal["shared", "fold", "single"]
    parent: str | None
    base: BaseCard
    prompt_version: str
    data_hash: str
    recipe_hash: str
    weights_hash: str
    dtype: str
    config: dict[str, object]
    training: dict[str, object]
    environment: dict[str, object]
    canaries: tuple[Canary, ...] = ()

    @property
    def name(self) -> str:
        """Operator, holdout and a hash of all that decides the weights, the weights included."""
        identity = content_hash(self.recipe_hash, self.data_hash, self.weights_hash, self.prompt_version)
        return f"{self.operator}-{self.holdout}-{identity[:8]}"


def write_card(folder: Path, card: AdapterCard) -> None:
    write_json(folder / CARD, card.model_dump(mode="json"))


def read_card(folder: Path) -> AdapterCard:
    """The card of an adapter folder. Raises: PreflightError where there is none, or one that is damaged."""
    path = folder / CARD
    try:
        return AdapterCard.model_validate_json(path.read_bytes())
    except OSError as fault:
        hint = "give an adapter folder that `latticemind train` wrote"
        raise PreflightError(f"{path}: cannot be read ({fault.strerror})", hint=hint) from fault
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise PreflightError(
            f"{path}: {f'[{field}] ' if field else ''}{first['msg']}",
            hint="the card is not as `latticemind train` writes it: restore it, or train again",
        ) from fault


def adapter_folders(run: Path) -> list[Path]:
    """The folder of every finished adapter of a run, in order of path; none for a run without any."""
    return sorted(path.parent for path in (run / "adapters").glob(f"*/*/{CARD}"))


def list_adapters(run: Path) -> list[tuple[Path, AdapterCard]]:
    """Every finished adapter of a run with its card. Raises: PreflightError for a card that is none."""
    return [(folder, read_card(folder)) for folder in adapter_folders(run)]


def adapter_for(run: Path, *, operator: str, holdout: str) -> tuple[Path, AdapterCard]:
    """The run's adapter for an operator that was not trained on `holdout`; a multi-task one failing that.

    Raises: ConfigError, naming what there is.
    """
    found = list_adapters(run)
    for name in (operator, "multi"):
        for folder, card in found:
            if (card.operator, card.holdout) == (name, holdout):
                return folder, card
    known = ", ".join(f"{card.operator} without {card.holdout}" for _, card in found) or "none"
    raise ConfigError(
        f"{run} has no {operator} adapter that leaves out {holdout}", hint=f"there are: {known}"
    )


def weights_hash(folder: Path) -> str:
    return sha256_of(folder / WEIGHTS)


def base_card(path: Path, *, id: str, revision: str) -> BaseCard:  # noqa: A002 - the card's own word
    """The card of a base in a folder. Raises: ConfigError when config.json or tokenizer.json is missing."""
    for name in ("config.json", "tokenizer.json"):
        if not (path / name).is_file():
            raise ConfigError(f"{path} holds no {name}", hint="give a folder with a whole base model")
    config = json_object(path / "config.json")
    stable = {key: value for key, value in config.items() if key not in VOLATILE}
    return BaseCard(
        id=id, revision=revision, config_hash=content_hash(stable),
        tokenizer_hash=sha256_of(path / "tokenizer.json"),
    )  # fmt: skip


def json_object(path: Path) -> dict[str, object]:
    """The JSON object in a file of a base model. Raises: ConfigError."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as fault:
        raise ConfigError(f"{path} cannot be read ({fault})"[:200], hint="fetch the base again") from fault
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds no JSON object", hint="fetch the base again")
    return data
