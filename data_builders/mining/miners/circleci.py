"""CircleCI pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners.stated import IMAGE_SLOTS, Stated, distinctive, form_of, image_facts, settle
from data_builders.mining.miners.trees import Tree, items, leaf, members, read_yaml, table, tables, text_of
from operators.normal import Form


@dataclass(frozen=True, slots=True)
class CircleCiMiner:
    """Reads `.circleci/*.yml`."""

    name: str = "circleci"
    family: Family = Family.CONTAINERS_CI

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return {
            **IMAGE_SLOTS,
            "action-version": ("orb", "version"),
            "env": ("environment variable", "env", "variable"),
            "input-default": ("parameter", "default"),
            "matrix": ("matrix", "test matrix"),
            "parallelism": ("parallelism",),
            "resource-class": ("resource class", "resource_class", "machine size"),
            "runs-on": ("machine", "machine image", "runner"),
            "schedule": ("schedule", "cron"),
            "tool-version": ("xcode", "version"),
        }

    def wants(self, path: str) -> bool:
        folder, _, last = path.rpartition("/")
        return (folder == ".circleci" or folder.endswith("/.circleci")) and last.endswith((".yml", ".yaml"))

    def read(self, path: str, text: str) -> Sequence[Fact]:
        del path
        pipeline = table(read_yaml(text))
        return settle(_pipeline(pipeline))


def _pipeline(pipeline: dict[str, Tree]) -> Iterator[Stated]:
    for orb in table(pipeline.get("orbs")).values():
        name, _, version = text_of(orb).partition("@")
        yield Stated(
            name, "action-version", version, Form.VERSION, aliases=distinctive(name.rpartition("/")[2])
        )
    yield from _parameters(pipeline.get("parameters"), "")
    for kind in ("executors", "jobs"):
        for name, settings in tables(pipeline.get(kind)):
            yield from _executor(f"{kind}.{name}", settings, distinctive(name))
    for name, command in tables(pipeline.get("commands")):
        yield from _parameters(command.get("parameters"), f"commands.{name}")
    for name, workflow in tables(pipeline.get("workflows")):
        yield from _workflow(f"workflows.{name}", workflow)


def _executor(scope: str, settings: dict[str, Tree], aliases: tuple[str, ...]) -> Iterator[Stated]:
    for index, container in enumerate(items(settings.get("docker"))):
        place = f"{scope}.docker" if index == 0 else f"{scope}.docker[{index}]"
        yield from image_facts(text_of(table(container).get("image")), place=place, aliases=aliases)
        yield from _environment(table(container).get("environment"), place)
    machine = settings.get("machine")
    if found := leaf(table(machine).get("image")):
        yield Stated(f"{scope}.machine", "runs-on", found.text, Form.NAME, aliases=aliases)
    if found := leaf(table(settings.get("macos")).get("xcode")):
        yield Stated("xcode", "tool-version", found.text, Form.VERSION, (f"{scope}.xcode",))
    if found := leaf(settings.get("resource_class")):
        yield Stated(f"{scope}.resource_class", "resource-class", found.text, Form.NAME, aliases=aliases)
    if found := leaf(settings.get("parallelism")):
        yield Stated(f"{scope}.parallelism", "parallelism", found.text, Form.NUMBER, aliases=aliases)
    yield from _environment(settings.get("environment"), scope)
    yield from _parameters(settings.get("parameters"), scope)


def _environment(environment: Tree | None, scope: str) -> Iterator[Stated]:
    for key, value in table(environment).items():
        if found := leaf(value):
            names = (f"{scope}.environment.{key}",)
            yield Stated(key, "env", found.text, form_of(found, key=key), names, distinctive(key.lower()))


def _parameters(parameters: Tree | None, scope: str) -> Iterator[Stated]:
    for key, settings in tables(parameters):
        if found := leaf(settings.get("default")):
            names = (f"{scope}.parameters.{key}" if scope else f"parameters.{key}",)
            yield Stated(key, "input-default", found.text, form_of(found, key=key), names, distinctive(key))


def _workflow(scope: str, workflow: dict[str, Tree]) -> Iterator[Stated]:
    for trigger in items(workflow.get("triggers")):
        cron = text_of(table(table(trigger).get("schedule")).get("cron"))
        yield Stated(f"{scope}.triggers", "schedule", cron, Form.TEXT, aliases=("cron",), many=True)
    for job in items(workflow.get("jobs")):
        for name, settings in tables(job):
            parameters = table(table(settings.get("matrix")).get("parameters"))
            for axis, values in parameters.items():
                for found in members(values):
                    thing = f"{scope}.{name}.matrix.{axis}"
                    yield Stated(
                        thing, "matrix", found.text, form_of(found, key=axis), aliases=(axis,), many=True
                    )
