"""`latticemind preflight`: everything files can tell of a recipe, base, rows or adapter that would go wrong.

No torch and no weights are loaded. All faults are reported at once, each with the number of the guard that
found it (`training/guards`) and a hint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import RootModel, ValidationError
from rapidfuzz import process

from data_builders.examples import Example, read_examples
from operators.adapter_checks import LEGAL_MAX_RANKS, smallest_max_lora_rank
from operators.config import override_value
from operators.errors import ConfigError, InputError, PreflightError
from operators.models.bases import find_base
from operators.sources import load_yaml
from training.config import TrainConfig
from training.guards import Finding, Inspected, find_faults
from training.guards.adapter import verified
from training.guards.inspected import AdapterFiles, BaseFiles, Environment, Recipe, RenderedRow
from training.guards.options import option_hint
from training.guards.reading import read_adapter, read_base, read_environment, render_rows


class RawConfig(RootModel[dict[str, Any]]):
    """A YAML mapping of any keys: what a config says before its model judges it."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a preflight found. `facts` are lines for people; `sample` is a rendered row, if any."""

    findings: tuple[Finding, ...]
    facts: tuple[str, ...]
    sample: RenderedRow | None = None

    def refuse(self) -> None:
        """Raises: PreflightError that tells every finding; nothing happens without one."""
        if self.findings:
            lines = [f"{f.guard} {f.where}: {f.message} ({f.hint})" for f in self.findings]
            raise PreflightError(
                f"preflight found {len(lines)} fault(s):\n" + "\n".join(lines),
                hint="mend them all; `latticemind preflight` shows them as a table",
            )


def preflight(
    path: Path,
    *,
    overrides: Sequence[str] = (),
    data: Path | None = None,
    adapter: Path | None = None,
    base: str | None = None,
    environment: Environment | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Check the recipe in `path` and whatever else is given.

    `data` is a folder of `data build`; its rows are rendered with the base's template and tokenizer. `base`
    is an alias or a folder and defaults to the recipe's; one that is not on this machine is left out, unless
    it was named or rows need it.
    Raises: InputError for a file that cannot be read, ConfigError for a base that is needed and not found.
    """
    raw = with_overrides(load_yaml(path, RawConfig).value.root, overrides)
    files, facts = _base_files(Recipe(raw), base, needed=base is not None or data is not None)
    stored = read_adapter(adapter) if adapter is not None else None
    facts += _adapter_facts(stored)
    seen = Inspected(Recipe(raw), environment or read_environment(), files, (), stored)
    if data is None or files is None:
        return Report(tuple(findings_of(seen)), tuple(facts))
    examples = _examples(data, seen.recipe)
    shown = f"of {len(examples):,} rows rendered"
    try:
        rows = tuple(render_rows(examples, files, lambda done: progress(f"{done:,} {shown}")))
    except InputError as refused:  # a base's template refuses; that it does is among the findings, or is news
        found = findings_of(seen)
        if not found:
            raise
        return Report(tuple(found), (*facts, f"rows are not checked: {refused} ({refused.hint})"))
    findings = findings_of(replace(seen, rows=rows))
    return Report(tuple(findings), (*facts, *_row_facts(rows)), rows[0] if rows else None)


def findings_of(seen: Inspected) -> list[Finding]:
    """The guards' faults, then what config model and `verify_adapter` refuse where no guard spoke."""
    found = find_faults(seen)
    fields = [f"{finding.where}." for finding in found]
    config = [
        fault
        for fault in config_faults(seen.recipe.data)
        if not any(place.startswith(f"{fault.where}.") for place in fields)
    ]
    files = [finding.where for finding in found]
    adapter = [fault for fault in verified(seen) if not any(place.startswith(fault.where) for place in files)]
    return found + config + adapter


def config_faults(data: Mapping[str, Any]) -> list[Finding]:
    """Every fault that the train config's model finds, with a mapped or nearest name for an unknown key."""
    try:
        TrainConfig.model_validate(data)
    except ValidationError as fault:
        return [_config_finding(error) for error in fault.errors(include_url=False)]
    return []


def with_overrides(data: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of the raw config with `key=value` applied. Raises: ConfigError for one that is no key=value."""
    changed = _copy(data)
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(f"{override!r} is no key=value", hint="write for example optim.seed=7")
        place, *parts = changed, *name.split(".")
        for part in parts[:-1]:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{name!r}: {part} holds no keys", hint="see the file for its keys")
        place[parts[-1]] = override_value(value, place.get(parts[-1]), name)
    return changed


def _copy(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in data.items()}


def _config_finding(error: Any) -> Finding:
    where = ".".join(map(str, error["loc"]))
    key = str(error["loc"][-1]) if error["loc"] else ""
    hint = "see configs/train/ for complete recipes"
    if error["type"] == "extra_forbidden":
        near = process.extractOne(key, sorted(_field_names()), score_cutoff=60)
        hint = option_hint(key) or (f"did you mean `{near[0]}`?" if near else "remove it")
    elif error["type"] == "missing":
        hint = f"state {where}: nothing in a recipe is defaulted"
    return Finding("config", where, error["msg"].removeprefix("Value error, "), hint)


def _field_names() -> set[str]:
    schema = TrainConfig.model_json_schema()
    parts = (schema, *schema.get("$defs", {}).values())
    return {name for part in parts for name in part.get("properties", {})}


def _base_files(recipe: Recipe, named: str | None, *, needed: bool) -> tuple[BaseFiles | None, list[str]]:
    name = named or recipe.get("base.name")
    if name is None:
        return None, ["the recipe names no base: its files are not checked"]
    try:
        found = find_base(str(name), None if named else recipe.get("base.revision"))
    except ConfigError as fault:
        if needed:
            raise
        return None, [f"base {name} is not on this machine, so its files are not checked ({fault.hint})"]
    return read_base(found.path, found.card.model_dump()), [f"base {name} at {found.path}"]


def _examples(folder: Path, recipe: Recipe) -> list[Example]:
    """The folder's rows of the tasks that the recipe trains; all of them where it names none."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise InputError("no rows (*.jsonl) here", file=folder, hint="give a folder that `data build` wrote")
    tasks = recipe.get("tasks")
    trained = {task for names in tasks.values() for task in names} if isinstance(tasks, Mapping) else None
    return [
        example
        for file in files
        for example in read_examples(file)
        if trained is None or example.task in trained
    ]


def _row_facts(rows: Sequence[RenderedRow]) -> list[str]:
    if not rows:
        return ["the data folder holds no rows"]
    lengths = sorted(row.tokens for row in rows)
    labelled = sum(len(row.labels) for row in rows)
    return [
        f"{len(rows):,} rows, {sum(lengths):,} tokens of which {labelled:,} are trained; "
        f"median {lengths[len(lengths) // 2]:,}, longest {lengths[-1]:,} tokens"
    ]


def _adapter_facts(adapter: AdapterFiles | None) -> list[str]:
    rank = adapter.config.get("r") if adapter else None
    if not isinstance(rank, int) or not 1 <= rank <= LEGAL_MAX_RANKS[-1]:
        return []
    return [f"adapter of rank {rank}: serve with --max-lora-rank {smallest_max_lora_rank(rank)}"]
