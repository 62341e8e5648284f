"""GitHub workflows and composite actions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners.paths import is_kept_by_hand
from data_builders.mining.miners.stated import IMAGE_SLOTS, Stated, distinctive, form_of, image_facts, settle
from data_builders.mining.miners.trees import (
    Leaf,
    Tree,
    items,
    leaf,
    members,
    read_yaml,
    table,
    tables,
    text_of,
)
from operators.normal import Form

_HASH = re.compile(r"[0-9a-f]{40}")
_NOTED_VERSION = re.compile(
    r"(?:[\w./:-]*[@=] ?|v(?=v)|(?:tag|pin|version):? )?(v?\d[\w.+-]*|[\w./-]+)(?: .*)?"
)
_INPUT_PREFIXES = ("setup-", "action-", "install-")


@dataclass(frozen=True, slots=True)
class GithubActionsMiner:
    """Reads workflows and `action.yml`. An action's hash counts as the version in the comment behind it."""

    name: str = "github-actions"
    family: Family = Family.CONTAINERS_CI

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return {
            **IMAGE_SLOTS,
            "action-version": ("action", "version"),
            "env": ("environment variable", "env", "variable"),
            "fail-fast": ("fail-fast", "fail fast"),
            "input-default": ("input", "default"),
            "matrix": ("matrix", "test matrix", "build matrix"),
            "max-parallel": ("max-parallel", "parallel jobs"),
            "permission": ("permission", "permissions"),
            "runner-label": ("runner", "runner label"),
            "runs-on": ("runner", "runs-on", "runs on"),
            "runtime": ("runtime", "node"),
            "schedule": ("schedule", "cron"),
            "timeout-minutes": ("timeout", "minutes"),
            "tool-version": ("version", "tool"),
            "trigger": ("trigger", "event"),
        }

    def wants(self, path: str) -> bool:
        folder, _, last = path.rpartition("/")
        if not last.endswith((".yml", ".yaml")):
            return False
        in_workflows = folder == ".github/workflows" or folder.endswith("/.github/workflows")
        return in_workflows or (last.rpartition(".")[0] == "action" and is_kept_by_hand(path))

    def read(self, path: str, text: str) -> Sequence[Fact]:
        del path
        workflow = table(read_yaml(text))
        return settle(_workflow(workflow))


def _workflow(workflow: dict[str, Tree]) -> Iterator[Stated]:
    yield from _triggers(workflow.get("on"))
    yield from _permissions(workflow.get("permissions"), "")
    yield from _env(workflow.get("env"), ())
    for job_id, job in tables(workflow.get("jobs")):
        yield from _job(f"jobs.{job_id}", job, _job_aliases(job_id, job))
    runs = table(workflow.get("runs"))
    if using := text_of(runs.get("using")):
        yield Stated("runs.using", "runtime", using, Form.NAME, aliases=("using",))
    if image := text_of(runs.get("image")):
        yield from image_facts(image, place="runs.image")
    yield from _steps("runs", runs.get("steps"))
    yield from _inputs(workflow.get("inputs"), "")


def _job_aliases(job_id: str, job: dict[str, Tree]) -> tuple[str, ...]:
    title = text_of(job.get("name"))
    return (*distinctive(job_id), *(distinctive(title) if "${{" not in title and len(title) < 60 else ()))


def _triggers(on: Tree | None) -> Iterator[Stated]:
    for event in [*(found.text for found in members(on)), *table(on)]:
        yield Stated("on", "trigger", event, Form.NAME, many=True)
    for event, settings in table(on).items():
        for cron in items(settings) if event == "schedule" else ():
            yield Stated(
                "on.schedule",
                "schedule",
                text_of(table(cron).get("cron")),
                Form.TEXT,
                many=True,
                aliases=("cron",),
            )
        for key in ("branches", "types", "tags"):
            for found in members(table(settings).get(key)):
                yield Stated(
                    f"on.{event}.{key}",
                    "trigger",
                    found.text,
                    Form.NAME,
                    many=True,
                    aliases=(f"{event} {key}",),
                )
        yield from _inputs(table(settings).get("inputs"), f"on.{event}")


def _inputs(inputs: Tree | None, scope: str) -> Iterator[Stated]:
    for key, each in tables(inputs):
        if found := leaf(each.get("default")):
            scopes = (f"{scope}.inputs.{key}",) if scope else (f"inputs.{key}",)
            yield Stated(key, "input-default", found.text, form_of(found, key=key), scopes, distinctive(key))


def _permissions(permissions: Tree | None, scope: str) -> Iterator[Stated]:
    start = f"{scope}.permissions" if scope else "permissions"
    if found := leaf(permissions):
        yield Stated(start, "permission", found.text, Form.NAME)
    for key, value in table(permissions).items():
        yield Stated(f"{start}.{key}", "permission", text_of(value), Form.NAME, aliases=distinctive(key))


def _env(env: Tree | None, scopes: tuple[str, ...]) -> Iterator[Stated]:
    for key, value in table(env).items():
        if found := leaf(value):
            names = tuple(f"{scope}.env.{key}" for scope in scopes) or (f"env.{key}",)
            yield Stated(key, "env", found.text, form_of(found, key=key), names, distinctive(key.lower()))


def _job(scope: str, job: dict[str, Tree], aliases: tuple[str, ...]) -> Iterator[Stated]:
    runs_on = job.get("runs-on")
    labels = members(table(runs_on).get("labels") if isinstance(runs_on, dict) else runs_on)
    for found in labels:
        slot = "runs-on" if len(labels) == 1 else "runner-label"
        short = ("runs-on", *aliases)
        yield Stated(f"{scope}.runs-on", slot, found.text, Form.NAME, aliases=short, many=len(labels) > 1)
    yield from _timeout(scope, job, aliases)
    yield from _permissions(job.get("permissions"), scope)
    yield from _env(job.get("env"), (scope,))
    yield from _strategy(scope, table(job.get("strategy")))
    container = job.get("container")
    yield from image_facts(
        text_of(table(container).get("image") if isinstance(container, dict) else container),
        place=f"{scope}.container",
        aliases=aliases,
    )
    for service, settings in tables(job.get("services")):
        yield from image_facts(
            text_of(settings.get("image")), place=f"{scope}.services.{service}", aliases=distinctive(service)
        )
    yield from _uses(job.get("uses"), (scope,))
    yield from _steps(scope, job.get("steps"))


def _timeout(scope: str, settings: dict[str, Tree], aliases: tuple[str, ...]) -> Iterator[Stated]:
    if found := text_of(settings.get("timeout-minutes")):
        thing = f"{scope}.timeout-minutes"
        yield Stated(thing, "timeout-minutes", found, Form.NUMBER, aliases=("timeout-minutes", *aliases))


def _strategy(scope: str, strategy: dict[str, Tree]) -> Iterator[Stated]:
    if found := leaf(strategy.get("fail-fast")):
        yield Stated(f"{scope}.fail-fast", "fail-fast", found.text, Form.FLAG, aliases=("fail-fast",))
    if found := leaf(strategy.get("max-parallel")):
        yield Stated(
            f"{scope}.max-parallel", "max-parallel", found.text, Form.NUMBER, aliases=("max-parallel",)
        )
    matrix = table(strategy.get("matrix"))
    for axis, values in matrix.items():
        if axis == "include":
            for extra in items(values):
                for key, value in table(extra).items():
                    yield from _axis(f"{scope}.matrix.{key}", key, members(value))
        elif axis != "exclude":
            yield from _axis(f"{scope}.matrix.{axis}", axis, members(values))
            for entry in items(values):
                for key, value in table(entry).items():
                    yield from _axis(f"{scope}.matrix.{axis}.{key}", key, members(value))


def _axis(thing: str, axis: str, values: list[Leaf]) -> Iterator[Stated]:
    for found in values:
        form = form_of(found, key=axis)
        yield Stated(thing, "matrix", found.text, form, aliases=(axis, *_tool(axis)), many=True)


def _steps(scope: str, steps: Tree | None) -> Iterator[Stated]:
    for index, each in enumerate(items(steps), 1):
        step = table(each)
        label = text_of(step.get("id")) or text_of(step.get("name"))
        where = f"{scope}.steps[{label if 0 < len(label) <= 60 and '${{' not in label else index}]"
        scopes = (scope, where, f"{scope}.steps[{index}]")
        yield from _timeout(where, step, ())
        yield from _env(step.get("env"), scopes)
        yield from _uses(step.get("uses"), scopes)
        yield from _tool_inputs(step, scopes)


def _uses(uses: Tree | None, scopes: tuple[str, ...]) -> Iterator[Stated]:
    found = leaf(uses)
    if found is None or found.text.startswith(("./", "../")):
        return
    if found.text.startswith("docker://"):
        yield from image_facts(found.text, place=f"{scopes[-1]}.uses")
        return
    name, _, reference = found.text.partition("@")
    version = _noted(found.note) if _HASH.fullmatch(reference) else reference
    if version and "/" in name:
        names = tuple(f"{scope}.{name}" for scope in scopes)
        whole = "/".join(name.split("/")[:2])
        last = name.rpartition("/")[2].removesuffix(".yml").removesuffix(".yaml")
        yield Stated(name, "action-version", version, Form.VERSION, names, (whole, *distinctive(last)))


def _noted(note: str) -> str:
    """The version in the comment behind a hash (`v4.2.2`, `tag=v4`, `ratchet:a/b@v4`), or nothing."""
    match = _NOTED_VERSION.fullmatch(note[:120])
    if match is None:
        return ""
    version = match[1]
    is_numbered = version.lstrip("v")[:1].isdigit()
    return version if is_numbered or note == version else ""


def _tool_inputs(step: dict[str, Tree], scopes: tuple[str, ...]) -> Iterator[Stated]:
    action = text_of(step.get("uses")).partition("@")[0]
    for key, value in table(step.get("with")).items():
        found = leaf(value)
        if found is None or not key.lower().endswith("version") or not action:
            continue
        last = action.rpartition("/")[2]
        thing = f"{last}.version" if key == "version" else key
        names = tuple(f"{scope}.{thing}" for scope in scopes)
        yield Stated(
            thing, "tool-version", found.text, Form.VERSION, names, _tool(last if key == "version" else key)
        )


def _tool(name: str) -> tuple[str, ...]:
    """What people call the tool of an input, an axis or an action: `python` for `python-version`."""
    plain = name
    for ending in ("-version", "_version", "-versions"):
        plain = plain.removesuffix(ending)
    for start in _INPUT_PREFIXES:
        plain = plain.removeprefix(start)
    return (plain,) if plain != name else ()
