"""GitLab pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners.stated import IMAGE_SLOTS, Stated, distinctive, form_of, image_facts, settle
from data_builders.mining.miners.trees import Tree, items, leaf, members, read_yaml, table, tables, text_of
from operators.normal import Form

_NOT_JOBS = frozenset({"include", "spec", "stages", "variables", "workflow"})


@dataclass(frozen=True, slots=True)
class GitlabCiMiner:
    """Reads `.gitlab-ci.yml` and what lies in `.gitlab/ci/`."""

    name: str = "gitlab-ci"
    family: Family = Family.CONTAINERS_CI

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return {
            **IMAGE_SLOTS,
            "env": ("variable", "environment variable", "env"),
            "interruptible": ("interruptible",),
            "matrix": ("matrix", "parallel"),
            "retry": ("retry", "retries"),
            "runner-label": ("runner", "tag"),
            "stage": ("stage",),
            "timeout": ("timeout",),
        }

    def wants(self, path: str) -> bool:
        last = path.rpartition("/")[2]
        is_included = path.startswith((".gitlab/ci/", ".gitlab-ci/")) and last.endswith((".yml", ".yaml"))
        return is_included or last.endswith((".gitlab-ci.yml", ".gitlab-ci.yaml"))

    def read(self, path: str, text: str) -> Sequence[Fact]:
        del path
        pipeline = table(read_yaml(text))
        return settle(_pipeline(pipeline))


def _pipeline(pipeline: dict[str, Tree]) -> Iterator[Stated]:
    yield from _variables(pipeline.get("variables"), "")
    for member in members(pipeline.get("stages")):
        yield Stated("stages", "stage", member.text, Form.NAME, many=True)
    yield from _images("", pipeline)
    for job_id, job in tables(pipeline):
        if job_id not in _NOT_JOBS:
            yield from _job(job_id, job)


def _job(job_id: str, job: dict[str, Tree]) -> Iterator[Stated]:
    aliases = distinctive(job_id)
    yield from _images(job_id, job)
    yield from _variables(job.get("variables"), job_id)
    for member in members(job.get("tags")):
        yield Stated(f"{job_id}.tags", "runner-label", member.text, Form.NAME, aliases=aliases, many=True)
    if found := leaf(job.get("stage")):
        yield Stated(f"{job_id}.stage", "stage", found.text, Form.NAME, aliases=aliases)
    if found := leaf(job.get("timeout")):
        yield Stated(f"{job_id}.timeout", "timeout", found.text, Form.NUMBER, aliases=aliases)
    if found := leaf(job.get("interruptible")):
        yield Stated(f"{job_id}.interruptible", "interruptible", found.text, Form.FLAG, aliases=aliases)
    retry = job.get("retry")
    if found := leaf(table(retry).get("max") if isinstance(retry, dict) else retry):
        yield Stated(f"{job_id}.retry", "retry", found.text, Form.NUMBER, aliases=aliases)
    for row in items(table(job.get("parallel")).get("matrix")):
        for axis, values in table(row).items():
            for found in members(values):
                form = form_of(found, key=axis)
                yield Stated(
                    f"{job_id}.matrix.{axis}", "matrix", found.text, form, aliases=(axis,), many=True
                )


def _images(job_id: str, job: dict[str, Tree]) -> Iterator[Stated]:
    start = f"{job_id}." if job_id else ""
    yield from image_facts(_image(job.get("image")), place=f"{start}image", aliases=distinctive(job_id))
    for each in items(job.get("services")):
        image = _image(each)
        short = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
        yield from image_facts(image, place=f"{start}services.{short}", aliases=distinctive(short))


def _image(image: Tree | None) -> str:
    return text_of(table(image).get("name") if isinstance(image, dict) else image)


def _variables(variables: Tree | None, scope: str) -> Iterator[Stated]:
    for key, value in table(variables).items():
        found = leaf(table(value).get("value") if isinstance(value, dict) else value)
        if found and "$" not in found.text:
            scoped = f"{scope}.variables.{key}" if scope else f"variables.{key}"
            yield Stated(key, "env", found.text, form_of(found, key=key), (scoped,), distinctive(key.lower()))
