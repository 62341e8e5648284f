"""Azure pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners.stated import IMAGE_SLOTS, Stated, distinctive, form_of, image_facts, settle
from data_builders.mining.miners.trees import Tree, items, leaf, members, read_yaml, table, tables, text_of
from operators.normal import Form


@dataclass(frozen=True, slots=True)
class AzurePipelinesMiner:
    """Reads `azure-pipelines*.yml` and what lies in `.azure-pipelines/`."""

    name: str = "azure-pipelines"
    family: Family = Family.CONTAINERS_CI

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return {
            **IMAGE_SLOTS,
            "action-version": ("task", "version"),
            "env": ("variable", "environment variable", "env"),
            "input-default": ("parameter", "default"),
            "matrix": ("matrix", "test matrix"),
            "runs-on": ("pool", "vmImage", "runner"),
            "schedule": ("schedule", "cron"),
            "timeout-minutes": ("timeout", "minutes"),
            "tool-version": ("version", "tool"),
            "trigger": ("trigger", "branch"),
        }

    def wants(self, path: str) -> bool:
        folder, _, last = path.lower().rpartition("/")
        in_folder = folder.split("/")[0] in {".azure-pipelines", "azure-pipelines", ".azuredevops"}
        return last.endswith((".yml", ".yaml")) and (last.startswith("azure-pipelines") or in_folder)

    def read(self, path: str, text: str) -> Sequence[Fact]:
        del path
        pipeline = table(read_yaml(text))
        return settle(_pipeline(pipeline))


def _pipeline(pipeline: dict[str, Tree]) -> Iterator[Stated]:
    for event in ("trigger", "pr"):
        settings = pipeline.get(event)
        branches = table(settings).get("branches")
        for member in [*members(settings), *members(branches), *members(table(branches).get("include"))]:
            yield Stated(event, "trigger", member.text, Form.NAME, many=True)
    for each in items(pipeline.get("schedules")):
        cron = text_of(table(each).get("cron"))
        yield Stated("schedules", "schedule", cron, Form.TEXT, aliases=("cron",), many=True)
    for each in items(pipeline.get("parameters")):
        parameter = table(each)
        name = text_of(parameter.get("name"))
        if name and (found := leaf(parameter.get("default"))):
            yield Stated(
                name, "input-default", found.text, form_of(found, key=name), aliases=distinctive(name)
            )
    for each in items(table(pipeline.get("resources")).get("containers")):
        place = f"resources.{text_of(table(each).get('container'))}"
        yield from image_facts(text_of(table(each).get("image")), place=place)
    yield from _job("", pipeline)
    yield from _jobs("", pipeline)
    for index, each in enumerate(items(pipeline.get("stages")), 1):
        stage = table(each)
        scope = f"stages.{text_of(stage.get('stage')) or index}"
        yield from _job(scope, stage)
        yield from _jobs(f"{scope}.", stage)


def _jobs(start: str, stage: dict[str, Tree]) -> Iterator[Stated]:
    for index, each in enumerate(items(stage.get("jobs")), 1):
        job = table(each)
        name = text_of(job.get("job")) or text_of(job.get("deployment")) or str(index)
        yield from _job(f"{start}jobs.{name}", job)


def _job(scope: str, job: dict[str, Tree]) -> Iterator[Stated]:
    start = f"{scope}." if scope else ""
    aliases = distinctive(scope.rpartition(".")[2])
    if found := leaf(table(job.get("pool")).get("vmImage")):
        yield Stated(f"{start}pool.vmImage", "runs-on", found.text, Form.NAME, aliases=("vmImage", *aliases))
    if found := leaf(job.get("timeoutInMinutes")):
        thing = f"{start}timeoutInMinutes"
        yield Stated(
            thing, "timeout-minutes", found.text, Form.NUMBER, aliases=("timeoutInMinutes", *aliases)
        )
    container = job.get("container")
    image = text_of(table(container).get("image") if isinstance(container, dict) else container)
    if ":" in image or "/" in image:
        yield from image_facts(image, place=f"{start}container", aliases=aliases)
    yield from _variables(job.get("variables"), scope)
    for _, row in tables(table(job.get("strategy")).get("matrix")):
        for axis, value in row.items():
            for found in members(value):
                thing = f"{start}matrix.{axis}"
                yield Stated(
                    thing, "matrix", found.text, form_of(found, key=axis), aliases=(axis,), many=True
                )
    for each in items(job.get("steps")):
        yield from _task(scope, table(each))


def _variables(variables: Tree | None, scope: str) -> Iterator[Stated]:
    listed = {text_of(table(each).get("name")): table(each).get("value") for each in items(variables)}
    for key, value in (table(variables) or listed).items():
        found = leaf(value)
        if key and found and "$(" not in found.text:
            scoped = f"{scope}.variables.{key}" if scope else f"variables.{key}"
            yield Stated(key, "env", found.text, form_of(found, key=key), (scoped,), distinctive(key.lower()))


def _task(scope: str, step: dict[str, Tree]) -> Iterator[Stated]:
    name, _, version = text_of(step.get("task")).partition("@")
    start = f"{scope}." if scope else ""
    if version:
        yield Stated(name, "action-version", version, Form.VERSION, (f"{start}{name}",))
    for key, value in table(step.get("inputs")).items():
        found = leaf(value)
        if name and found and key.lower().startswith("version") and "$(" not in found.text:
            yield Stated(f"{name}.{key}", "tool-version", found.text, Form.VERSION, (f"{start}{name}.{key}",))
