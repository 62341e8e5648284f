"""`.pre-commit-config.yaml`: the version and the hooks of each repository of hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners.paths import is_kept_by_hand
from data_builders.mining.miners.stated import Stated, distinctive, form_of, settle
from data_builders.mining.miners.trees import Tree, items, leaf, members, read_yaml, table, text_of
from operators.normal import Form

_HASH = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class PreCommitMiner:
    """Reads `.pre-commit-config.yaml`. A frozen hash counts as the version in the comment behind it."""

    name: str = "pre-commit"
    family: Family = Family.CONFIG

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return {
            "hook-version": ("hook", "pre-commit hook", "rev", "version"),
            "hook": ("hook", "pre-commit hook"),
            "hook-argument": ("argument", "args"),
            "hook-stage": ("stage",),
            "tool-version": ("version",),
            "schedule": ("schedule", "interval"),
            "switch": ("setting", "option"),
        }

    def wants(self, path: str) -> bool:
        return path.rpartition("/")[2] in {
            ".pre-commit-config.yaml",
            ".pre-commit-config.yml",
        } and is_kept_by_hand(path)

    def read(self, path: str, text: str) -> Sequence[Fact]:
        del path
        config = table(read_yaml(text))
        return settle(_config(config))


def _config(config: dict[str, Tree]) -> Iterator[Stated]:
    for key, value in table(config.get("default_language_version")).items():
        yield Stated(key, "tool-version", text_of(value), Form.VERSION)
    if found := leaf(table(config.get("ci")).get("autoupdate_schedule")):
        yield Stated(
            "ci.autoupdate_schedule", "schedule", found.text, Form.NAME, aliases=("autoupdate_schedule",)
        )
    if found := leaf(config.get("fail_fast")):
        yield Stated("fail_fast", "switch", found.text, Form.FLAG)
    for each in items(config.get("repos")):
        yield from _repository(table(each))


def _repository(repository: dict[str, Tree]) -> Iterator[Stated]:
    url = text_of(repository.get("repo")).removesuffix("/").removesuffix(".git")
    name = "/".join(url.split("/")[-2:])
    hooks = [table(each) for each in items(repository.get("hooks"))]
    ids = [text_of(hook.get("id")) for hook in hooks]
    if not name:
        return
    last = name.rpartition("/")[2]
    if found := leaf(repository.get("rev")):
        words = found.note.removeprefix("frozen:").split()
        rev = (words[0] if words else "") if _HASH.fullmatch(found.text) else found.text
        shorter = tuple(
            last.removeprefix(word).removesuffix(word) for word in ("mirrors-", "-pre-commit", "pre-commit-")
        )
        known = (
            last,
            *(each for each in shorter if each not in {last, "hooks"}),
            *(i for each in ids for i in distinctive(each)),
        )
        yield Stated(name, "hook-version", rev, Form.VERSION, (url, f"{url}#{','.join(ids)}"), known)
    for hook_id, hook in zip(ids, hooks, strict=True):
        if not hook_id:
            continue
        yield Stated(name, "hook", hook_id, Form.NAME, aliases=(last,), many=True)
        for found in members(hook.get("args")):
            yield Stated(
                f"{hook_id}.args",
                "hook-argument",
                found.text,
                form_of(found),
                aliases=distinctive(hook_id),
                many=True,
            )
        for found in members(hook.get("stages")):
            yield Stated(
                f"{hook_id}.stages",
                "hook-stage",
                found.text,
                Form.NAME,
                aliases=distinctive(hook_id),
                many=True,
            )
