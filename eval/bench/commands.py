"""`latticemind bench`: speed and size, as ratios within one run."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from data_builders.trajectory import load_trajectories
from eval.bench.loop import run_loop_bench
from operators.adapters import list_adapters
from operators.config import load_config
from operators.errors import ConfigError
from operators.models.bases import find_base
from operators.models.endpoint import TOKEN_VARIABLE
from training.commands import needs
from training.config import TrainConfig

CONFIGS = Path(__file__).parents[2] / "configs"
bench_app = typer.Typer(no_args_is_help=True, help=__doc__)
out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)


def _progress(step: str) -> None:
    err.print(step, markup=False, highlight=False)


@bench_app.command("loop")
def bench_loop(
    claims: Annotated[int, typer.Option(min=20_000, help="How many claims.")] = 1_000_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Claims a second through the update loop in memory, and the cost at the end against the start."""
    _progress(f"{claims:,} claims")
    result = run_loop_bench(claims)
    if as_json:
        typer.echo(json.dumps(asdict(result), indent=2))
    else:
        out.print(
            f"{result.claims:,} in-order claims: {result.long_per_s:,.0f} a second "
            f"({result.short_per_s:,.0f} with a log of {result.short_log:,}); "
            f"cost a claim, long log over short: {result.cost_ratio:.2f}"
        )


@bench_app.command("train")
def bench_train(
    data: Annotated[Path, typer.Option(help="A folder that `data build` wrote.")] = Path("runs/data"),
    config: Annotated[Path, typer.Option(help="A train config.")] = CONFIGS / "train/smollm2-135m-cpu.yaml",
    operator: Annotated[str, typer.Option(help="Whose rows.")] = "extract-state",
    cases: Annotated[int, typer.Option(min=1, help="How many cases each adapter trains on.")] = 12,
    folds: Annotated[int, typer.Option(min=1, help="How many adapters the run trains.")] = 5,
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value over the config.")] = None,
) -> None:
    """Row tokens a second of `train` over a plain TRL script: one adapter, and a run of several."""
    bench = needs("eval.bench.train", "train")
    settings = load_config(config, TrainConfig, overrides or [])
    base = find_base(settings.base.name, settings.base.revision)
    done = bench.run_train_bench(
        settings, needs("training.rows", "train").DataFolder(data), base,
        operator=operator, cases=cases, folds=folds, progress=_progress,
    )  # fmt: skip
    out.print(
        f"{done.rows} rows of {done.row_tokens:,} tokens an adapter; row tokens a second:", highlight=False
    )
    for name, ours, plain, ratio in (
        ("one adapter", done.single_ours, done.single_plain, done.single_ratio),
        (f"{done.folds} adapters", done.folds_ours, done.folds_plain, done.folds_ratio),
    ):
        out.print(f"{name}: {ours:,.0f}, plain TRL {plain:,.0f}, ratio {ratio:.2f}", highlight=False)


@bench_app.command("local")
def bench_local(
    adapters: Annotated[Path, typer.Option(help="A folder that `train` wrote.")],
    base: Annotated[str | None, typer.Option(help="Where the base lies, if it is a plain folder.")] = None,
    holdout: Annotated[str, typer.Option(help="Whose notes, and which adapters.")] = "browser-surface",
    requests: Annotated[int, typer.Option(min=1, help="compare-claims requests at each batch size.")] = 64,
    notes: Annotated[int, typer.Option(min=1, help="Notes for both extractors.")] = 32,
) -> None:
    """Requests a second of the local backend, and what two-stage extraction costs over direct."""
    bench = needs("eval.bench.local", "local")
    found = {card.name: path for path, card in list_adapters(adapters) if card.holdout == holdout}
    first = next((card for _, card in list_adapters(adapters) if card.holdout == holdout), None)
    if first is None:
        raise ConfigError(f"{adapters} has no adapter that leaves out {holdout}", hint="see `adapters list`")
    (trajectory,) = (t for t in load_trajectories(CONFIGS / "trajectories") if t.name == holdout)
    done = bench.run_local_bench(
        find_base(base or first.base.id, None if base else first.base.revision).path, found, trajectory,
        requests=requests, notes=notes, progress=_progress,
    )  # fmt: skip
    for (batch, constrained), rate in done.per_second.items():
        how = "with" if constrained else "without"
        out.print(f"batch {batch}, {how} schema: {rate:.1f} requests a second", highlight=False)
    out.print(
        f"batch 32: two-stage {done.two_stage_s:.2f} s a note ({done.two_stage_answered} of {done.notes} "
        f"answered), direct {done.direct_s:.2f} ({done.direct_answered} answered), "
        f"ratio {done.two_stage_cost:.2f}", highlight=False,
    )  # fmt: skip


@bench_app.command("serve")
def bench_serve(
    url: Annotated[str | None, typer.Option(help="A running `serve`; default: a scripted model's.")] = None,
    requests: Annotated[int, typer.Option(min=1, help="Under load.")] = 2_000,
    clients: Annotated[int, typer.Option(min=1, help="At once.")] = 64,
    distinct: Annotated[int, typer.Option(min=1, help="Different requests, each asked alone first.")] = 120,
    holdout: Annotated[str, typer.Option(help="Whose notes and claims.")] = "browser-surface",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Latency under load, answers that went astray, and the HTTP layer's own cost a request."""
    bench = needs("eval.bench.serve", "service")
    trajectories = {t.name: t for t in load_trajectories(CONFIGS / "trajectories")}
    if holdout not in trajectories:
        raise ConfigError(f"no trajectory {holdout!r}", hint=f"there are: {', '.join(trajectories)}")
    calls, token = bench.serve_calls(trajectories[holdout], distinct), os.environ.get(TOKEN_VARIABLE)
    asked = partial(
        bench.run_serve_bench, calls=calls, requests=requests, clients=clients, progress=_progress
    )
    if url is not None:
        done = asked(url, token=token)
    else:
        with bench.scripted_server() as own:
            done = asked(own, direct=bench.direct_calls())
    if as_json:
        typer.echo(json.dumps(asdict(done), indent=2))
        return
    if done.overhead is not None:
        out.print(
            f"alone: {done.alone:.2f} ms over HTTP, {done.direct:.2f} ms directly; the layer costs "
            f"{done.overhead:.2f} ms in the median", highlight=False,
        )  # fmt: skip
    out.print(
        f"{done.clients} clients, {done.requests:,} requests ({done.distinct} different): "
        f"p50 {done.p50:.0f} ms, p95 {done.p95:.0f} ms, {done.per_second:.0f} a second; "
        f"{done.lost} lost, {done.wrong} wrong",
        highlight=False,
    )
