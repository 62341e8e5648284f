"""setup.cfg: what setuptools' declarative metadata says of versions."""

from __future__ import annotations

from configparser import Error, RawConfigParser
from typing import ClassVar

from data_builders.mining.facts import Fact, Family, UnreadableError
from data_builders.mining.miners.manifests import (
    DEPENDENCY,
    LANGUAGES,
    REQUIRED_VERSION,
    VERSION,
    Facts,
    base_name,
    read_lines,
    requirement_slot,
    words_of,
)
from data_builders.mining.miners.python_requirements import PYTHON_SLOTS, add_requirements

_SLOTS = {
    "version": VERSION,
    "required_version": REQUIRED_VERSION,
    "dependency": DEPENDENCY,
    "build_dependency": requirement_slot("build dependency", "build requirement"),
    "test_dependency": requirement_slot("test dependency", "test requirement"),
    "extra_dependency": requirement_slot("extra dependency", "optional dependency"),
    **PYTHON_SLOTS,
}
_LISTS = {
    "install_requires": ("dependency", ("dependencies", "dependency", "requirements")),
    "setup_requires": ("build_dependency", ("build dependencies", "build requirements")),
    "tests_require": ("test_dependency", ("test dependencies", "test requirements")),
}


class SetupCfgMiner:
    """Reads setuptools' `setup.cfg`."""

    name: ClassVar[str] = "setup-cfg"
    family: ClassVar[Family] = Family.VERSIONS
    slots: ClassVar[dict[str, tuple[str, ...]]] = words_of(_SLOTS)

    def wants(self, path: str) -> bool:
        return base_name(path) == "setup.cfg"

    def read(self, path: str, text: str) -> list[Fact]:  # noqa: ARG002
        """Raises: UnreadableError."""
        parser = RawConfigParser()
        try:
            parser.read_string("\n".join(read_lines(text)))
        except Error as error:
            raise UnreadableError(f"not an INI file: {str(error)[:120]}") from None
        facts = Facts(_SLOTS)
        metadata, options = _section(parser, "metadata"), _section(parser, "options")
        version = metadata.get("version", "")
        if not version.startswith(("attr:", "file:")):
            facts.add(metadata.get("name", "package"), "version", version, ("package",))
        facts.add("python", "required_version", options.get("python_requires"), LANGUAGES["python"])
        for key, (slot, aliases) in _LISTS.items():
            add_requirements(facts, _list(options.get(key, "")), slot=slot, group=key, aliases=aliases)
        for extra, value in sorted(_section(parser, "options.extras_require").items()):
            add_requirements(facts, _list(value), slot="extra_dependency", group=extra, prefix=f"{extra}.")
        return list(facts)


def _section(parser: RawConfigParser, name: str) -> dict[str, str]:
    """The section's options; setuptools took `-` for `_` in their names."""
    if not parser.has_section(name):
        return {}
    return {key.replace("-", "_"): value for key, value in parser.items(name) if isinstance(value, str)}


def _list(value: str) -> list[str]:
    """setuptools splits at line breaks, and at `;` only where there are none."""
    lines = value.splitlines() if "\n" in value else value.split(";")
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
