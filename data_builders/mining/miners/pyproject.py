"""pyproject.toml: dependencies, the Python it needs, its own version; also as Poetry and uv write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from packaging.utils import canonicalize_name

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners.manifests import (
    DEPENDENCY,
    LANGUAGES,
    REQUIRED_VERSION,
    VERSION,
    Facts,
    SlotKind,
    base_name,
    items,
    read_toml,
    requirement_slot,
    table,
    words_of,
)
from data_builders.mining.miners.python_requirements import PYTHON_SLOTS, add_requirements
from operators.normal import Form

_SLOTS = {
    "version": VERSION,
    "required_version": REQUIRED_VERSION,
    "supported_version": SlotKind(Form.VERSION, ("supported version", "classifier", "support"), many=True),
    "classifier": SlotKind(Form.TEXT, ("classifier", "trove classifier"), many=True),
    "build_backend": SlotKind(Form.NAME, ("build backend", "build system")),
    "dependency": DEPENDENCY,
    "build_dependency": requirement_slot("build dependency", "build requirement"),
    "extra_dependency": requirement_slot("extra dependency", "optional dependency"),
    "group_dependency": requirement_slot("group dependency", "dev dependency"),
    "constraint": requirement_slot("constraint"),
    "override": requirement_slot("override"),
    "optional": SlotKind(Form.FLAG, ("optional",)),
    "git_branch": SlotKind(Form.NAME, ("branch",)),
    "git_tag": SlotKind(Form.VERSION, ("tag",)),
    **PYTHON_SLOTS,
}
_MAIN = ("dependency", "project dependencies")
_PYTHON_CLASSIFIER = "Programming Language :: Python :: "


class PyprojectMiner:
    """Reads `pyproject.toml`: the standard tables (PEP 518, 621, 735), then Poetry's and uv's own."""

    name: ClassVar[str] = "pyproject"
    family: ClassVar[Family] = Family.VERSIONS
    slots: ClassVar[dict[str, tuple[str, ...]]] = words_of(_SLOTS)

    def wants(self, path: str) -> bool:
        return base_name(path) == "pyproject.toml"

    def read(self, path: str, text: str) -> list[Fact]:  # noqa: ARG002
        """Raises: UnreadableError."""
        document = read_toml(text)
        facts = Facts(_SLOTS)
        _read_poetry(facts, table(document, "tool", "poetry"))  # first: the standard tables outrank it
        _read_project(facts, table(document, "project"))
        build = table(document, "build-system")
        facts.add("build-system", "build_backend", build.get("build-backend"), ("build backend",))
        add_requirements(
            facts, items(build, "requires"), slot="build_dependency", group="build-system",
            aliases=("build dependencies", "build requirements"),
        )  # fmt: skip
        for group, requirements in sorted(table(document, "dependency-groups").items()):
            _add_group(facts, requirements, slot="group_dependency", group=group)
        _read_uv(facts, table(document, "tool", "uv"))
        return list(facts)


def _add_group(facts: Facts, requirements: object, *, slot: str, group: str) -> None:
    if isinstance(requirements, list):
        aliases = (f"{group} dependencies", f"{group} group", f"{group} extra")
        add_requirements(facts, requirements, slot=slot, group=group, prefix=f"{group}.", aliases=aliases)


def _read_project(facts: Facts, project: dict[str, object]) -> None:
    facts.add(project.get("name", "package"), "version", project.get("version"), ("package", "project"))
    facts.add("python", "required_version", project.get("requires-python"), LANGUAGES["python"])
    for classifier in items(project, "classifiers"):
        version = classifier.removeprefix(_PYTHON_CLASSIFIER) if isinstance(classifier, str) else ""
        if version != classifier and version.replace(".", "").isdigit():
            facts.add("python", "supported_version", version, LANGUAGES["python"])
        else:
            facts.add("classifiers", "classifier", classifier, ("classifier", "trove classifier"))
    main = items(project, "dependencies")
    add_requirements(facts, main, slot="dependency", group="dependencies", aliases=_MAIN)
    for extra, requirements in sorted(table(project, "optional-dependencies").items()):
        _add_group(facts, requirements, slot="extra_dependency", group=extra)


def _read_uv(facts: Facts, uv: dict[str, object]) -> None:
    facts.add("uv", "required_version", uv.get("required-version"))
    add_requirements(
        facts, items(uv, "constraint-dependencies"), slot="constraint", group="constraint-dependencies",
        aliases=("constraints",),
    )  # fmt: skip
    add_requirements(
        facts, items(uv, "override-dependencies"), slot="override", group="override-dependencies",
        aliases=("overrides",),
    )  # fmt: skip
    # uv reads these as one more part of the group `dev`
    _add_group(facts, items(uv, "dev-dependencies"), slot="group_dependency", group="dev")


def _read_poetry(facts: Facts, poetry: dict[str, object]) -> None:
    facts.add(poetry.get("name", "package"), "version", poetry.get("version"), ("package", "project"))
    main = table(poetry, "dependencies")
    for one in _constraints(main.get("python")):
        facts.add("python", "required_version", one.get("version"), LANGUAGES["python"])
    _add_poetry(facts, main, slot="dependency", group="dependencies")
    _add_poetry(facts, table(poetry, "dev-dependencies"), slot="group_dependency", group="dev")
    for group in sorted(table(poetry, "group")):
        _add_poetry(
            facts, table(poetry, "group", group, "dependencies"), slot="group_dependency", group=group
        )


def _add_poetry(facts: Facts, dependencies: dict[str, object], *, slot: str, group: str) -> None:
    is_main = slot == "dependency"
    aliases = _MAIN if is_main else (f"{group} dependencies", f"{group} group")
    for written, value in dependencies.items():
        name = canonicalize_name(written)
        if name == "python" and is_main:
            continue
        facts.add(group, "package", name, aliases)
        thing = name if is_main else f"{group}.{name}"
        constraints = list(_constraints(value))
        for one in constraints:
            place = one.get("markers") or one.get("python") or one.get("platform")
            full = f"{thing}({place})" if len(constraints) > 1 and place else thing
            _add_constraint(facts, full, one, slot=slot, name=written)


def _constraints(value: object) -> Iterator[dict[str, object]]:
    """Poetry's short form `"^1"`, a table, or several tables for several environments."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str):
            yield {"version": one}
        elif isinstance(one, dict):
            yield one


def _add_constraint(facts: Facts, thing: str, one: dict[str, object], *, slot: str, name: str) -> None:
    aliases = (name, canonicalize_name(name), name.replace("-", "_"))
    facts.add(thing, slot, one.get("version"), aliases)
    facts.add(thing, "source", one.get("git") or one.get("url") or one.get("path"), aliases)
    facts.add(thing, "git_branch", one.get("branch"), aliases)
    facts.add(thing, "git_tag", one.get("tag"), aliases)
    facts.add(thing, "optional", one.get("optional"), aliases)
    for extra in items(one, "extras"):
        facts.add(thing, "dependency_extra", extra, aliases)
