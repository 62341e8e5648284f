"""`latticemind models` and `latticemind adapters`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from operators.adapter_checks import verify_adapter
from operators.adapters import AdapterCard, adapter_folders, read_card
from operators.errors import ConfigError, PreflightError
from operators.models.bases import KNOWN, NOT_HERE, KnownBase, find_base
from training.commands import needs

models_app = typer.Typer(no_args_is_help=True, help="Base models: where they are, and fetching them.")
adapters_app = typer.Typer(no_args_is_help=True, help="Trained adapters: list, show, verify.")
out = Console(soft_wrap=True)
if not out.is_terminal:
    out.width = 120  # tables in files and pipes
err = Console(stderr=True, soft_wrap=True)

FolderArgument = Annotated[Path, typer.Argument(help="An adapter folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
NUMBERS = frozenset(("MB", "rows", "tokens", "last loss"))
IN_FULL = ("config", "training", "environment", "base")


@models_app.command("fetch")
def models_fetch(
    name: Annotated[str, typer.Argument(help="An alias, a hub id, or a folder.")],
    revision: Annotated[str | None, typer.Option(help="A commit of the hub; default: its newest.")] = None,
) -> None:
    """Bring a base onto this machine; one that is here already is left as it is."""
    try:
        found = find_base(name, revision)
    except ConfigError:
        found = needs("training.bases", "local").fetch_base(
            name, revision=revision, progress=lambda step: err.print(step, markup=False, highlight=False)
        )
        what = f"{name}: {found.path} ({found.card.id}, {found.card.revision})"
        out.print(what, markup=False, highlight=False)
        return
    out.print(f"{name} is here already: {found.path}", markup=False, highlight=False)


@models_app.command("list")
def models_list(as_json: JsonOption = False) -> None:
    """The bases with an alias, and which of them are here."""
    rows = [_base_row(known) for known in KNOWN.values()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    out.print(_table(("alias", "hub id", "licence", "where", "revision", "MB"), rows))


@adapters_app.command("list")
def adapters_list(
    run: Annotated[Path, typer.Argument(help="A folder that `train` wrote.")], as_json: JsonOption = False
) -> None:
    """Every finished adapter of a run, checked; a bad one is listed with what is wrong."""
    folders = adapter_folders(run)
    if not folders:
        raise ConfigError(f"{run} holds no adapter", hint="give a folder that `latticemind train` wrote")
    rows = [_adapter_row(folder) for folder in folders]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    out.print(_table(("name", "stage", "base", "rows", "tokens", "last loss", "check"), rows))


@adapters_app.command("show")
def adapters_show(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """An adapter's card in full."""
    card = read_card(folder)
    data = {"name": card.name} | card.model_dump(mode="json")
    if as_json:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    table = Table(show_header=False)
    for key, value in data.items():
        table.add_row(
            key, json.dumps(value, ensure_ascii=False, indent=2) if key in IN_FULL else _text(value)
        )
    out.print(table, markup=False)


@adapters_app.command("verify")
def adapters_verify(
    folder: FolderArgument,
    base: Annotated[str | None, typer.Option(help="The base it is to run on.")] = None,
) -> None:
    """Refuse an adapter that is damaged, no plain LoRA, without effect, or made for another base."""
    card = verify_adapter(folder, find_base(base).card if base else None)
    out.print(f"{card.name}: ok", markup=False, highlight=False)


def _base_row(known: KnownBase) -> dict[str, object]:
    row: dict[str, object] = {"alias": known.alias, "hub id": known.id, "licence": known.licence}
    try:
        found = find_base(known.alias)
    except ConfigError as fault:
        missing = "not here" if str(fault).endswith(NOT_HERE) else str(fault)
        return row | {"where": missing, "revision": None, "MB": None}
    size = sum(file.stat().st_size for file in found.path.glob("*.safetensors")) / 1e6
    return row | {"where": str(found.path), "revision": found.card.revision, "MB": round(size)}


def _adapter_row(folder: Path) -> dict[str, object]:
    """What the card says, and whether the folder is sound; only the fault where no card can be read."""
    card: AdapterCard | None = None
    try:
        card = read_card(folder)
        verify_adapter(folder)
        check = "ok"
    except PreflightError as fault:
        check = str(fault)
    if card is None:
        return {"name": str(folder), "check": check}
    figures = card.training
    return {
        "name": card.name, "operator": card.operator, "holdout": card.holdout, "stage": card.stage,
        "base": card.base.id, "rows": figures.get("rows"), "tokens": figures.get("row_tokens"),
        "last loss": figures.get("last_loss"), "check": check, "folder": str(folder),
    }  # fmt: skip


def _table(columns: tuple[str, ...], rows: list[dict[str, object]]) -> Table:
    table = Table()
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in NUMBERS else "left"
        table.add_column(column, justify=justify, overflow="fold", no_wrap=column == columns[0])
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in columns))
    return table


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
