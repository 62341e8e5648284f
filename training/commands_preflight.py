"""The command `latticemind preflight`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from training.guards.inspected import RenderedRow
from training.preflight import Report
from training.preflight import preflight as run_preflight

out = Console(soft_wrap=True)
if not out.is_terminal:
    out.width = 120  # tables in files and pipes
err = Console(stderr=True, soft_wrap=True)


def preflight(
    config: Annotated[Path, typer.Argument(help="A train config (configs/train/*.yaml).")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value over the config.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of `data build`: its rows are checked.")] = None,
    adapter: Annotated[Path | None, typer.Option(help="Folder of a trained adapter.")] = None,
    base: Annotated[str | None, typer.Option(help="Alias or folder of the base; else the recipe's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Refuse what would train or serve wrongly, from files alone: all faults at once, exit code 2."""
    with err.status("reading") as status:
        report = run_preflight(
            config, overrides=overrides or [], data=data, adapter=adapter, base=base, progress=status.update
        )
    if as_json:
        found = [asdict(finding) for finding in report.findings]
        typer.echo(json.dumps({"findings": found, "facts": report.facts}, indent=2, ensure_ascii=False))
    else:
        _show(report, config)
    if report.findings:
        raise typer.Exit(2)


def _show(report: Report, config: Path) -> None:
    for fact in report.facts:
        out.print(fact, markup=False, highlight=False)
    if report.sample is not None:
        out.print(sample_text(report.sample))
    if not report.findings:
        out.print(f"{config}: nothing found that would go wrong", markup=False)
        return
    table = Table(title=f"{config}: {len(report.findings)} fault(s)")
    for name in ("guard", "where", "what", "what to do"):
        table.add_column(name, overflow="fold")
    for finding in report.findings:
        table.add_row(*(Text(part) for part in (finding.guard, finding.where, finding.message, finding.hint)))
    out.print(table)


def sample_text(row: RenderedRow) -> Text:
    """The end of a row's prompt, and its trained tokens one by one between bars."""
    text = Text(f"row {row.id}, trained tokens between bars: …{row.tail}")
    text.append("|" + "|".join(row.labels) + "|", style="bold")
    return text
