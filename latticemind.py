"""LatticeMind: a memory for agents that decides at write time which claim is current."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.status import Status

from data_builders.build import DataConfig, build_data, verify_data
from data_builders.git_replay import GitHistory, with_repository
from data_builders.mining.dataset import mine_repositories, mined_repositories, origin_of
from data_builders.mining.draw import draw_pairs
from data_builders.mining.history import RepositoryMiner
from data_builders.scenarios import load_vocabulary
from data_builders.trajectory import Trajectory, load_trajectories, load_trajectory, trajectory_files
from eval.bench.commands import bench_app
from eval.demo import run_demo
from eval.demo_training import run_training_demo
from eval.loo import run_loo, run_mined
from eval.report import compare_runs, loo_table, mcnemar_table, mined_table, pool_runs, summarise
from eval.repository import check_head, replay_mined, replay_repository
from eval.runs import load_run, record_scores, save_run
from eval.sources import ModelOptions, sources_for
from eval.stats import McNemar
from operators.artefacts import sha256_of
from operators.assembly import parse_choice
from operators.config import load_config
from operators.errors import ConfigError, LatticeMindError
from operators.schema import SlotSchema
from operators.sources import load_yaml
from pipeline.render import explain, parse_key, render
from serving.commands import parity, serve
from training.commands import train
from training.commands_models import adapters_app, models_app
from training.commands_preflight import preflight

CONFIGS = Path(__file__).parent / "configs"
TRAJECTORIES = CONFIGS / "trajectories"

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
data_app = typer.Typer(no_args_is_help=True, help="Trajectories, scenarios, examples, splits.")
eval_app = typer.Typer(no_args_is_help=True, help="Leave-one-out and its statistics.")
app.add_typer(data_app, name="data")
app.add_typer(eval_app, name="eval")
app.add_typer(bench_app, name="bench")
app.add_typer(models_app, name="models")
app.add_typer(adapters_app, name="adapters")
app.command("train")(train)
app.command("preflight")(preflight)
app.command("serve")(serve)
app.command("parity")(parity)
out = Console(soft_wrap=True)
if not out.is_terminal:
    out.width = 120  # tables in files and pipes
err = Console(stderr=True, soft_wrap=True)

TrajectoriesOption = Annotated[Path, typer.Option("--trajectories", help="Folder of trajectory YAMLs.")]
RepoOption = Annotated[
    Path | None, typer.Option("--repo", help="A local clone: adds real subjects and touched files by sha.")
]
AdaptersOption = Annotated[
    Path | None, typer.Option("--adapters", help="A folder that `train` wrote: each holdout's own adapters.")
]
BaseOption = Annotated[
    str | None, typer.Option("--base", help="A base without adapters: alias, id or folder.")
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Stage 1 of two-stage; default: calibrated on the other trajectories."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@data_app.command("check")
def data_check(files: Annotated[list[Path], typer.Argument(help="Trajectory files.")]) -> None:
    """Check trajectory files; a fault names file, line and field."""
    for file in files:
        found = load_trajectory(file)
        out.print(
            f"{file}: {len(found.commit_sessions)} commit sessions, "
            f"{len(found.sessions) - len(found.commit_sessions)} distractors, "
            f"{len(list(found.claims()))} claims, {len(found.queries)} queries"
        )


@data_app.command("build")
def data_build(
    target: Annotated[Path, typer.Option("--out", help="Folder to write; must not exist.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value over the config.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the synthetic scenarios.")] = 7,
    config: Annotated[Path, typer.Option(help="Data config.")] = CONFIGS / "data.yaml",
    trajectories: TrajectoriesOption = TRAJECTORIES,
    repo: RepoOption = None,
    mined: Annotated[
        Path | None, typer.Option(help="A folder that `data mine` wrote: adds its rows.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write examples, leave-one-out splits and a manifest; a leak fails the build."""
    settings = load_config(config, DataConfig, overrides or [])
    with _status() as progress:
        manifest = build_data(
            target,
            config=settings,
            seed=seed,
            trajectories=_read(trajectories, repo),
            vocabulary=load_vocabulary(),
            inputs=_hashes(trajectories) | ({"mined": sha256_of(mined / "manifest.json")} if mined else {}),
            mined=mined,
            progress=progress,
        )
    if as_json:
        _print_json(manifest.model_dump(mode="json"))
        return
    out.print(f"{target}: {manifest.examples:,} examples")
    for name, count in manifest.counts.items():
        out.print(f"  {name}: {count:,}")
    for name, fold in manifest.folds.items():
        counts = f"{fold['train']:,} train, {fold['test']} test, {fold['withheld']} withheld"
        out.print(f"  without {name}: {counts}")


@data_app.command("verify")
def data_verify(
    folder: Annotated[Path, typer.Argument(help="A folder that `data build` wrote.")],
    config: Annotated[Path, typer.Option(help="Data config.")] = CONFIGS / "data.yaml",
) -> None:
    """Read a built folder back and repeat the leak check on the rows as they stand."""
    folds = verify_data(folder, near_duplicate=load_config(config, DataConfig).near_duplicate)
    out.print(f"{folder}: no leak in {len(folds)} folds")


@data_app.command("mine")
def data_mine(
    target: Annotated[Path, typer.Option("--out", help="Folder to write; must not exist.")],
    repo: Annotated[list[str], typer.Option(help="A git repository, PATH or NAME=PATH; repeat for more.")],
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 2,
    limit: Annotated[int | None, typer.Option(min=1, help="The newest so many commits of each.")] = None,
    previous: Annotated[
        Path | None, typer.Option(help="An earlier folder: only new commits are mined.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Pair what diffs changed with what commit messages say: gold without an annotator."""
    with Progress(console=err, disable=not err.is_terminal, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def advance(name: str, done: int, of: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=of)
            bar.update(tasks[name], completed=done)

        manifest = mine_repositories(
            target, [origin_of(text) for text in repo], processes=processes, limit=limit, previous=previous,
            progress=advance,
        )  # fmt: skip
    _print_json(manifest) if as_json else out.print(mined_table(manifest))


@data_app.command("draw")
def data_draw(
    folder: Annotated[Path, typer.Argument(help="A folder that `data mine` wrote.")],
    per_family: Annotated[int, typer.Option(min=1, help="Pairs of each miner family.")] = 30,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 7,
) -> None:
    """Draw stated pairs at random, for a check by hand: id, claim, and the note it stands in."""
    for pair in draw_pairs(folder, per_family=per_family, seed=seed):
        claim = pair.claim
        what = claim.value or f"removed {claim.retires or ''}".strip()
        _print_json({"id": pair.id, "claim": f"{claim.entity}.{claim.slot} = {what}", "note": pair.note.text})


@eval_app.command("loo")
def eval_loo(
    operators: Annotated[
        list[str] | None, typer.Option(help="`rules`, or step=name parts; repeat to compare choices.")
    ] = None,
    trajectories: TrajectoriesOption = TRAJECTORIES,
    mined: Annotated[
        Path | None, typer.Option(help="A folder that `data mine` wrote: each repository is a holdout.")
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Mined notes a repository, drawn by hash.")] = 600,
    repo: RepoOption = None,
    adapters: AdaptersOption = None,
    base: BaseOption = None,
    adapters_of: Annotated[
        str | None,
        typer.Option(help="For every holdout the adapters that left out this one; `none`: shared."),
    ] = None,
    shots: Annotated[int, typer.Option(min=0, help="Solved examples before each request to a base.")] = 0,
    threshold: ThresholdOption = None,
    url: Annotated[
        str | None, typer.Option(help="A server that answers (`serve`, or another OpenAI-compatible one).")
    ] = None,
    holdout: Annotated[str, typer.Option(help="`all`, or trajectories with commas between.")] = "all",
    runs: Annotated[Path, typer.Option(help="Where the folder with every scored row goes.")] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Hold each trajectory (or mined repository) out in turn: operators by example, the loop end to end."""
    choices = [parse_choice(text) for text in operators or ["rules"]]
    read = _read(trajectories, repo)
    found = [t for t in read if holdout == "all" or t.name in holdout.split(",")]
    options = ModelOptions(adapters, base, adapters_of, shots, threshold, url=url)
    if mined is None:
        inputs = _hashes(trajectories)
    else:
        mined_repositories(mined)
        inputs = {"manifest.json": sha256_of(mined / "manifest.json")}
    done = []
    for choice in choices:
        with _status() as progress:
            if mined is None:
                names = [trajectory.name for trajectory in found]
                with sources_for(read, choice, options, holdouts=names, progress=progress) as sources:
                    rows = run_loo(found, choice, sources=sources.get, progress=progress)
                if adapters is not None and adapters_of is None:
                    record_scores(adapters, rows, choice, sources)
            else:
                names = [repository.name for repository in mined_repositories(mined)]
                with sources_for((), choice, options, holdouts=names, progress=progress) as sources:
                    rows = run_mined(mined, choice, sample=sample, sources=sources.get, progress=progress)
        folder = save_run(rows, runs, operators=str(choice), inputs=inputs, sources=sources)
        done.append((str(choice), rows, folder))
    if as_json:
        summaries = [summarise(rows, name) for name, rows, _ in done]
        if len(done) == 1:
            _print_json(summaries[0])
            return
        tests = {name: _tests(compare_runs(done[0][1], rows)) for name, rows, _ in done[1:]}
        _print_json({"runs": summaries, "mcnemar": {"first": done[0][0], "against": tests}})
        return
    for name, rows, folder in done:
        out.print(loo_table(summarise(rows, name)))
        out.print(f"rows: {folder}/rows.jsonl")
    for name, rows, _ in done[1:]:
        out.print(mcnemar_table(compare_runs(done[0][1], rows), done[0][0], name))


@eval_app.command("stats")
def eval_stats(
    runs: Annotated[
        list[Path], typer.Argument(help="A run folder; several of one choice (seeds) are pooled.")
    ],
    against: Annotated[Path | None, typer.Option(help="Another run; holdouts that both have count.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute every number of a run from its rows; exact McNemar against another run."""
    name, rows = pool_runs([load_run(run) for run in runs])
    summary = summarise(rows, name)
    if against is None:
        _print_json(summary) if as_json else out.print(loo_table(summary))
        return
    if len(runs) > 1:
        raise ConfigError("McNemar pairs one run with one other", hint="give --against with one run")
    other, others = load_run(against)
    tests = compare_runs(rows, others)
    if as_json:
        _print_json({"mcnemar": {"first": name, "against": {other: _tests(tests)}}})
    else:
        out.print(mcnemar_table(tests, name, other))


@app.command()
def replay(
    repo: Annotated[Path, typer.Option(help="A git repository; it is only read.")],
    mine: Annotated[bool, typer.Option("--mine", help="Feed what the diffs prove; needs no schema.")] = False,
    schema: Annotated[Path, typer.Option(help="Slot schema.")] = CONFIGS / "schemas" / "software.yaml",
    since: Annotated[str | None, typer.Option(help="ISO date: commits from then on.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The newest so many commits.")] = None,
    operators: Annotated[str, typer.Option(help="`rules`, or step=name parts.")] = "rules",
    budget: Annotated[int | None, typer.Option(min=200, help="At most so many characters.")] = None,
    show: Annotated[str | None, typer.Option(help="Only lines with this text.")] = None,
    why: Annotated[str | None, typer.Option(help="The whole history of one key, entity.slot.")] = None,
    check: Annotated[bool, typer.Option("--check", help="With --mine: hold it against HEAD's tree.")] = False,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the mining.")] = 2,
) -> None:
    """Read a repository's history into a memory and print it: messages as notes, with --mine diffs too."""
    choice = parse_choice(operators)
    with Progress(console=err, disable=not err.is_terminal, transient=True) as bar:
        task = bar.add_task("commits", total=None)
        if mine:
            if since or limit:
                raise ConfigError("--mine reads the whole mainline", hint="leave --since and --limit out")
            if RepositoryMiner(repo).is_shallow:
                err.print("warning: a shallow clone; what is older seems to come from its oldest commit")
            done = replay_mined(
                repo,
                choice,
                processes=processes,
                progress=lambda n, of: bar.update(task, completed=n, total=of),
            )
        else:
            history, start = GitHistory(repo), _moment(since) if since else None
            bar.update(task, total=history.count(since=start, limit=limit))
            slots = load_yaml(schema, SlotSchema).value
            done = replay_repository(
                history, slots, choice, since=start, limit=limit, progress=lambda: bar.advance(task)
            )
    if mine and check:
        found = check_head(repo, done.memory)
        out.print(f"{found.agree:,} facts of HEAD agree, {len(found.differences):,} differ", highlight=False)
        out.print("\n".join(found.differences[:50]), markup=False, highlight=False)
        raise typer.Exit(1 if found.differences else 0)
    text = explain(done.memory, parse_key(why)) if why else render(done.memory, budget=budget, only=show)
    out.print(text, markup=False, highlight=False, end="")
    err.print(f"{done.commits:,} commits, {done.speaking_commits:,} of them speaking; {done.claims:,} claims")


@app.command()
def demo(
    target: Annotated[Path, typer.Option("--out", help="Folder the demo owns.")] = Path("runs/demo"),
    quick: Annotated[bool, typer.Option("--quick", help="Without the training.")] = False,
) -> None:
    """Real history to the five-way leave-one-out table; then three small adapters beside the rules."""
    with _status() as progress:
        result = run_demo(target, configs=CONFIGS, progress=progress)
    for line in result.lines:
        out.print(line, highlight=False)
    out.print(result.table)
    for test in result.tests:
        out.print(test)
    if quick:
        return
    trained = run_training_demo(
        target, configs=CONFIGS, progress=lambda step: err.print(step, markup=False, highlight=False)
    )
    for line in trained.lines:
        out.print(line, highlight=False)
    for table in trained.tables:
        out.print(table)


def _read(folder: Path, repo: Path | None) -> tuple[Trajectory, ...]:
    found = load_trajectories(folder)
    if repo is None:
        return found
    history = GitHistory(repo)
    return tuple(with_repository(trajectory, history) for trajectory in found)


def _hashes(folder: Path) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in trajectory_files(folder)}


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError as fault:
        raise ConfigError(f"--since {text!r} is no ISO date", hint="write for example 2026-01-31") from fault


def _tests(found: dict[str, McNemar]) -> dict[str, dict[str, object]]:
    return {step: asdict(test) for step, test in found.items()}


def _print_json(data: object) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """A spinner that names the step under way; silent when standard error is no terminal."""
    if not err.is_terminal:
        yield lambda _: None
        return
    with Status("", console=err) as status:
        yield status.update


def main() -> None:
    """Console entry: an error of ours prints its message and hint, without a traceback."""
    # Threads that spin while they wait for a busy core slow a shared machine down tenfold; torch reads this.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except LatticeMindError as fault:
        err.print(f"error: {fault}", style="red", markup=False)
        if fault.hint:
            err.print(f"hint: {fault.hint}", markup=False)
        raise SystemExit(fault.exit_code) from None


if __name__ == "__main__":
    main()
