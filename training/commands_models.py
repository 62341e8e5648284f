"""`latticemind models` and `latticemind adapters`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from operators.adapter_checks import verify_adapter
from operators.adapters import list_adapters, read_card
from operators.errors import ConfigError, PreflightError
from operators.models.bases import KNOWN, find_base
from training.commands import needs

models_app = typer.Typer(no_args_is_help=True, help="Base models: where they are, and fetching them.")
adapters_app = typer.Typer(no_args_is_help=True, help="Trained adapters: list, show, verify.")
out = Console(soft_wrap=True)
if not out.is_terminal:
    out.width = 120  # tables in files and pipes
err = Console(stderr=True, soft_wrap=True)


@models_app.command("fetch")
def models_fetch(name: Annotated[str, typer.Argument(help="An alias, a hub id, or a folder.")]) -> None:
    """Bring a base onto this machine; one that is here already is left as it is."""
    try:
        found = find_base(name)
    except ConfigError:
        found = needs("training.bases", "local").fetch_base(
            name, progress=lambda step: err.print(step, highlight=False)
        )
        out.print(f"{name}: {found.path} ({found.card.id}, {found.card.revision})", highlight=False)
        return
    out.print(f"{name} is here already: {found.path}", highlight=False)


@models_app.command("list")
def models_list() -> None:
    """The bases with an alias, and which of them are here."""
    table = Table()
    for column in ("alias", "hub id", "licence", "where", "MB"):
        table.add_column(column, justify="right" if column == "MB" else "left")
    for known in KNOWN.values():
        try:
            path = find_base(known.alias).path
        except ConfigError:
            table.add_row(known.alias, known.id, known.licence, "not here", "-")
            continue
        size = sum(file.stat().st_size for file in path.glob("*.safetensors")) / 1e6
        table.add_row(known.alias, known.id, known.licence, str(path), f"{size:,.0f}")
    out.print(table)


@adapters_app.command("list")
def adapters_list(run: Annotated[Path, typer.Argument(help="A folder that `train` wrote.")]) -> None:
    """Every finished adapter of a run, checked."""
    found = list_adapters(run)
    if not found:
        raise ConfigError(f"{run} holds no adapter", hint="give a folder that `latticemind train` wrote")
    table = Table()
    for column in ("name", "stage", "base", "rows", "last loss", "check"):
        table.add_column(column, justify="right" if column in ("rows", "last loss") else "left")
    for folder, card in found:
        try:
            verify_adapter(folder)
            verdict = "ok"
        except PreflightError as fault:
            verdict = str(fault)
        rows, loss = card.training.get("rows"), card.training.get("last_loss")
        table.add_row(card.name, card.stage, card.base.id, str(rows), _rounded(loss), verdict)
    out.print(table)


def _rounded(loss: object) -> str:
    return f"{loss:.3f}" if isinstance(loss, float) else "-"


@adapters_app.command("show")
def adapters_show(folder: Annotated[Path, typer.Argument(help="An adapter folder.")]) -> None:
    """An adapter's card as JSON, its name first."""
    card = read_card(folder)
    err.print(card.name, highlight=False)
    typer.echo(card.model_dump_json(indent=2))


@adapters_app.command("verify")
def adapters_verify(
    folder: Annotated[Path, typer.Argument(help="An adapter folder.")],
    base: Annotated[str | None, typer.Option(help="The base it is to run on.")] = None,
) -> None:
    """Refuse an adapter that is damaged, no plain LoRA, without effect, or made for another base."""
    card = verify_adapter(folder, find_base(base).card if base else None)
    out.print(f"{card.name}: ok", highlight=False)
