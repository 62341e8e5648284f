"""Configs: frozen models from YAML, with `key=value` overrides from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from rapidfuzz import process

from operators.errors import ConfigError
from operators.sources import load_yaml

ConfigT = TypeVar("ConfigT", bound=BaseModel)


def load_config(path: Path, model: type[ConfigT], overrides: Sequence[str] = ()) -> ConfigT:
    """The file's config with overrides such as `synthetic.scenarios=4` applied; the value `null` is none.

    In place of a list or mapping stands one, as YAML writes it: `synthetic.lengths=[6, 12]`.

    Raises: InputError for the file, ConfigError for an override that is no `key=value`, names an unknown
    key (with the nearest right one) or does not fit.
    """
    data = load_yaml(path, model).value.model_dump(mode="json")
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(f"{override!r} is no key=value", hint="write for example seed=7")
        place, *parts = data, *name.split(".")
        for part in parts[:-1]:
            place = _inside(place, part, name)
        _inside(place, parts[-1], name)
        place[parts[-1]] = override_value(value, place[parts[-1]], name)
    try:
        return model.model_validate(data)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{field}: {first['msg']}", hint=f"see {path}") from fault


def override_value(text: str, before: object, name: str) -> object:
    """What `name=text` puts in the place of `before`. Raises: ConfigError where a list's text is no YAML."""
    if text == "null":
        return None
    if not isinstance(before, list | dict):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as fault:
        raise ConfigError(f"{name}: {text!r} is no YAML", hint="write for example [6, 12]") from fault


def _inside(place: dict[str, object], part: str, name: str) -> dict[str, object]:
    if part not in place:
        near = process.extractOne(part, sorted(place), score_cutoff=60)
        hint = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(sorted(place))}"
        raise ConfigError(f"unknown key {name!r}", hint=hint)
    found = place[part]
    return found if isinstance(found, dict) else {}
