"""Commands a project offers: npm scripts and bins, Python entry points, Cargo binaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners.paths import is_kept_by_hand
from data_builders.mining.miners.stated import Stated, distinctive, dotted, settle
from data_builders.mining.miners.trees import Tree, items, leaf, read_json, read_toml, table, tables, text_of
from operators.normal import Form

_SLOTS: dict[str, tuple[str, ...]] = {"command": ("command", "script", "binary", "entry point")}


@dataclass(frozen=True, slots=True)
class PackageCommandsMiner:
    """Reads `scripts` and `bin` of package.json."""

    name: str = "package-commands"
    family: Family = Family.FILES

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return _SLOTS

    def wants(self, path: str) -> bool:
        return path.rpartition("/")[2] == "package.json" and is_kept_by_hand(path)

    def read(self, path: str, text: str) -> Sequence[Fact]:
        del path
        package = table(read_json(text))
        binaries = package.get("bin")
        if found := leaf(binaries):
            binaries = {text_of(package.get("name")).rpartition("/")[2] or "bin": found}
        return settle([*_commands(package.get("scripts"), "scripts"), *_commands(binaries, "bin")])


@dataclass(frozen=True, slots=True)
class PythonCommandsMiner:
    """Reads the scripts and entry points of pyproject.toml (poetry's and pdm's too)."""

    name: str = "python-commands"
    family: Family = Family.FILES

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return _SLOTS

    def wants(self, path: str) -> bool:
        return path.rpartition("/")[2] == "pyproject.toml" and is_kept_by_hand(path)

    def read(self, path: str, text: str) -> Sequence[Fact]:
        del path
        found = table(read_toml(text))
        project, tool = table(found.get("project")), table(found.get("tool"))
        stated = [*_commands(project.get("scripts"), "project.scripts")]
        stated += _commands(project.get("gui-scripts"), "project.gui-scripts")
        for group, points in tables(project.get("entry-points")):
            stated += _commands(points, dotted("project", "entry-points", group))
        for each in ("poetry", "pdm"):
            stated += _commands(table(tool.get(each)).get("scripts"), f"tool.{each}.scripts")
        return settle(stated)


@dataclass(frozen=True, slots=True)
class CargoCommandsMiner:
    """Reads `[[bin]]` and `default-run` of Cargo.toml. Without a path, the value is the binary's name."""

    name: str = "cargo-commands"
    family: Family = Family.FILES

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return _SLOTS

    def wants(self, path: str) -> bool:
        return path.rpartition("/")[2] == "Cargo.toml" and is_kept_by_hand(path)

    def read(self, path: str, text: str) -> Sequence[Fact]:
        del path
        manifest = table(read_toml(text))
        stated = list(
            _commands({"default-run": table(manifest.get("package")).get("default-run") or {}}, "package")
        )
        for each in items(manifest.get("bin")):
            binary = table(each)
            name = text_of(binary.get("name"))
            stated.append(_command(name, text_of(binary.get("path")) or name, "bin"))
        return settle(stated)


def _commands(commands: Tree | None, scope: str) -> Iterator[Stated]:
    for name, value in table(commands).items():
        found = leaf(
            table(value).get("cmd") or table(value).get("reference") if isinstance(value, dict) else value
        )
        if found:
            yield _command(name, found.text, scope)


def _command(name: str, value: str, scope: str) -> Stated:
    return Stated(name, "command", value, Form.NAME, (dotted(scope, name),), distinctive(name))
