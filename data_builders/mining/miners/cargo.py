"""Cargo.toml: dependencies in every table, features, edition, the Rust it needs, its own version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners.manifests import (
    DEPENDENCY,
    LANGUAGES,
    PACKAGE,
    REQUIRED_VERSION,
    SOURCE,
    VERSION,
    Facts,
    SlotKind,
    base_name,
    items,
    package_aliases,
    read_toml,
    requirement_slot,
    table,
    words_of,
)
from operators.normal import Form

_KINDS = {
    "dependencies": ("dependency", ("dependency", "crate dependencies")),
    "dev-dependencies": ("dev_dependency", ("dev dependencies", "dev dependency")),
    "build-dependencies": ("build_dependency", ("build dependencies", "build dependency")),
    "workspace.dependencies": ("workspace_dependency", ("workspace dependencies", "workspace dependency")),
}
_VERSION_SLOTS = {
    "dependency": DEPENDENCY,
    "dev_dependency": requirement_slot("dev dependency", "dependency"),
    "build_dependency": requirement_slot("build dependency", "dependency"),
    "workspace_dependency": requirement_slot("workspace dependency", "dependency"),
}
_DETAILS = {
    "source": SOURCE,
    "branch": SlotKind(Form.NAME, ("branch", "git branch")),
    "tag": SlotKind(Form.VERSION, ("tag", "git tag")),
    "optional": SlotKind(Form.FLAG, ("optional",)),
    "default_features": SlotKind(Form.FLAG, ("default features", "default-features")),
    "feature": SlotKind(Form.NAME, ("feature", "features"), many=True),
    "renames": SlotKind(Form.NAME, ("package", "crate")),
}
_SLOTS = {
    "version": VERSION,
    "rust_version": REQUIRED_VERSION,
    "edition": SlotKind(Form.VERSION, ("edition",)),
    "resolver": SlotKind(Form.VERSION, ("resolver", "resolver version")),
    "feature": SlotKind(Form.NAME, ("feature", "cargo feature"), many=True),
    "feature_member": SlotKind(Form.NAME, ("enables", "feature", "member"), many=True),
    "package": PACKAGE,
    "patch": SOURCE,
    "patch_branch": _DETAILS["branch"],
    **_VERSION_SLOTS,
    **{f"{kind}_{detail}": found for kind in _VERSION_SLOTS for detail, found in _DETAILS.items()},
}


class CargoMiner:
    """Reads `Cargo.toml`. What `workspace = true` takes from the workspace stands in the workspace's file."""

    name: ClassVar[str] = "cargo"
    family: ClassVar[Family] = Family.VERSIONS
    slots: ClassVar[dict[str, tuple[str, ...]]] = words_of(_SLOTS)

    def wants(self, path: str) -> bool:
        return base_name(path) == "Cargo.toml"

    def read(self, path: str, text: str) -> list[Fact]:  # noqa: ARG002
        """Raises: UnreadableError."""
        document = read_toml(text)
        facts = Facts(_SLOTS)
        workspace, package = table(document, "workspace"), table(document, "package")
        _add_package(facts, table(workspace, "package"), thing="workspace")
        name = package.get("name")
        _add_package(facts, package, thing=name if isinstance(name, str) and name else "package")
        facts.add("cargo", "resolver", package.get("resolver") or workspace.get("resolver"), ("resolver",))
        for feature, members in table(document, "features").items():
            facts.add("features", "feature", feature, ("feature", "cargo features"))
            for member in members if isinstance(members, list) else []:
                facts.add(
                    feature, "feature_member", member, (feature.replace("-", "_"), f"{feature} feature")
                )
        _add_dependencies(facts, table(workspace, "dependencies"), kind="workspace.dependencies")
        for target, tables in (("", document), *_targets(document)):
            for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
                found = table(tables, kind.replace("-", "_")) | table(
                    tables, kind
                )  # `_` as Cargo once took it
                _add_dependencies(facts, found, kind=kind, prefix=f"{target}." if target else "")
        _add_patches(facts, document)
        return list(facts)


def _targets(document: dict[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    for target in table(document, "target"):
        yield target, table(document, "target", target)


def _add_package(facts: Facts, package: dict[str, object], *, thing: str) -> None:
    """The workspace's values go in first: a package's own outrank them in a file that holds both."""
    facts.add(thing, "version", package.get("version"), ("package", "crate", *package_aliases(thing)))
    facts.add(
        "rust", "rust_version", package.get("rust-version"), (*LANGUAGES["rust"], "msrv", "rust-version")
    )
    facts.add("rust", "edition", package.get("edition"), ("rust edition", "edition"))


def _add_dependencies(facts: Facts, found: dict[str, object], *, kind: str, prefix: str = "") -> None:
    slot, aliases = _KINDS[kind]
    for name, written in found.items():
        facts.add(f"{prefix}{kind}", "package", name, (kind, *aliases))
        thing, others = f"{prefix}{name}", (name, *package_aliases(name))
        if isinstance(written, str):
            facts.add(thing, slot, written, others)
            continue
        one = table(written)
        facts.add(thing, slot, one.get("version"), others)
        facts.add(thing, f"{slot}_source", one.get("git") or one.get("path"), others)
        facts.add(thing, f"{slot}_branch", one.get("branch"), others)
        facts.add(thing, f"{slot}_tag", one.get("tag"), others)
        facts.add(thing, f"{slot}_renames", one.get("package"), others)
        facts.add(thing, f"{slot}_optional", one.get("optional"), others)
        defaults = one.get("default-features", one.get("default_features"))
        facts.add(thing, f"{slot}_default_features", defaults, others)
        for feature in items(one, "features"):
            facts.add(thing, f"{slot}_feature", feature, others)


def _add_patches(facts: Facts, document: dict[str, object]) -> None:
    for registry in table(document, "patch"):
        for name, written in table(document, "patch", registry).items():
            thing, one = f"patch.{registry}.{name}", table(written)
            facts.add(thing, "patch", one.get("git") or one.get("path"), (name,))
            facts.add(thing, "patch_branch", one.get("branch"), (name,))
