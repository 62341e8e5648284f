"""package.json: dependencies of every kind, engines, the package manager, its own version."""

from __future__ import annotations

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
    package_aliases,
    read_json,
    requirement_slot,
    table,
    words_of,
)
from operators.normal import Form

_KINDS = {
    "dependencies": ("dependency", ("dependency", "runtime dependencies")),
    "devDependencies": ("dev_dependency", ("dev dependencies", "dev dependency", "dev-dependencies")),
    "peerDependencies": ("peer_dependency", ("peer dependencies", "peer dependency")),
    "optionalDependencies": ("optional_dependency", ("optional dependencies", "optional dependency")),
    "overrides": ("override", ("override",)),
    "resolutions": ("override", ("resolution",)),
}
_SLOTS = {
    "version": VERSION,
    "engine": REQUIRED_VERSION,
    "package_manager": SlotKind(Form.VERSION, ("package manager", "packageManager", "version")),
    "dependency": DEPENDENCY,
    "dev_dependency": requirement_slot("dev dependency", "dependency"),
    "peer_dependency": requirement_slot("peer dependency", "peer"),
    "optional_dependency": requirement_slot("optional dependency"),
    "override": requirement_slot("override", "resolution"),
    "pinned_version": SlotKind(Form.VERSION, ("pinned version", "volta", "version")),
    "optional_peer": SlotKind(Form.FLAG, ("optional peer", "optional")),
    "dependency_source": SOURCE,
    "dev_dependency_source": SOURCE,
    "peer_dependency_source": SOURCE,
    "optional_dependency_source": SOURCE,
    "override_source": SOURCE,
    "package": PACKAGE,
}


class PackageJsonMiner:
    """Reads npm's `package.json`. Versions that name a place (`workspace:`, `link:`, a URL) are sources."""

    name: ClassVar[str] = "package-json"
    family: ClassVar[Family] = Family.VERSIONS
    slots: ClassVar[dict[str, tuple[str, ...]]] = words_of(_SLOTS)

    def wants(self, path: str) -> bool:
        return base_name(path) == "package.json"

    def read(self, path: str, text: str) -> list[Fact]:  # noqa: ARG002
        """Raises: UnreadableError."""
        document = read_json(text)
        facts = Facts(_SLOTS)
        name = document.get("name")
        thing = name if isinstance(name, str) and name else "package"
        facts.add(thing, "version", document.get("version"), ("package", *package_aliases(thing)))
        for engine, version in table(document, "engines").items():
            facts.add(engine, "engine", version, LANGUAGES.get(engine, ()))
        for tool, version in table(document, "volta").items():
            facts.add(tool, "pinned_version", version, LANGUAGES.get(tool, ()))
        _add_manager(facts, document.get("packageManager"))
        # pnpm's own overrides go first: npm's field outranks what is the same setting by another name
        _add_kind(facts, table(document, "pnpm", "overrides"), kind="overrides")
        for kind in _KINDS:
            _add_kind(facts, table(document, kind), kind=kind)
        for peer, meta in table(document, "peerDependenciesMeta").items():
            facts.add(peer, "optional_peer", table(meta).get("optional"), package_aliases(peer))
        return list(facts)


def _add_manager(facts: Facts, written: object) -> None:
    """`pnpm@10.1.0+sha512.…`: the hash says nothing the version does not."""
    if isinstance(written, str):
        name, _, version = written.partition("@")
        facts.add(name, "package_manager", version.partition("+")[0], ("packageManager", "package manager"))


def _add_kind(facts: Facts, dependencies: dict[str, object], *, kind: str) -> None:
    slot, aliases = _KINDS[kind]
    for name, written in dependencies.items():
        others = package_aliases(name)
        if isinstance(written, str):
            is_place = ":" in written or "/" in written
            facts.add(name, f"{slot}_source" if is_place else slot, written, others)
            facts.add(kind, "package", name, aliases)
