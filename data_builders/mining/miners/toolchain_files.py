"""Files that pin one tool: rust-toolchain(.toml), .python-version, .nvmrc, .node-version."""

from __future__ import annotations

from typing import ClassVar

from data_builders.mining.facts import Fact, Family, UnreadableError
from data_builders.mining.miners.manifests import (
    LANGUAGES,
    Facts,
    SlotKind,
    base_name,
    items,
    read_lines,
    read_toml,
    table,
    words_of,
)
from operators.normal import Form

_RUST_SLOTS = {
    "toolchain": SlotKind(Form.VERSION, ("toolchain", "channel", "version")),
    "toolchain_profile": SlotKind(Form.NAME, ("profile",)),
    "toolchain_component": SlotKind(Form.NAME, ("component", "components"), many=True),
    "toolchain_target": SlotKind(Form.NAME, ("target", "targets"), many=True),
}
_PIN_SLOTS = {"pinned_version": SlotKind(Form.VERSION, ("version", "pinned version"))}
_PIN_FILES = {".python-version": "python", ".nvmrc": "node", ".node-version": "node"}


class RustToolchainMiner:
    """Reads rustup's `rust-toolchain.toml`, and `rust-toolchain` in both its forms (TOML or a channel)."""

    name: ClassVar[str] = "rust-toolchain"
    family: ClassVar[Family] = Family.VERSIONS
    slots: ClassVar[dict[str, tuple[str, ...]]] = words_of(_RUST_SLOTS)

    def wants(self, path: str) -> bool:
        return base_name(path) in {"rust-toolchain", "rust-toolchain.toml"}

    def read(self, path: str, text: str) -> list[Fact]:
        """Raises: UnreadableError."""
        facts = Facts(_RUST_SLOTS)
        aliases = LANGUAGES["rust"]
        words = " ".join(read_lines(text)).split()
        if base_name(path) == "rust-toolchain" and len(words) == 1 and "=" not in text and "[" not in text:
            facts.add("rust", "toolchain", words[0], aliases)
            return list(facts)
        toolchain = table(read_toml(text), "toolchain")
        facts.add("rust", "toolchain", toolchain.get("channel"), aliases)
        facts.add("rust", "toolchain_profile", toolchain.get("profile"), aliases)
        for component in items(toolchain, "components"):
            facts.add("rust", "toolchain_component", component, aliases)
        for target in items(toolchain, "targets"):
            facts.add("rust", "toolchain_target", target, aliases)
        return list(facts)


class VersionFileMiner:
    """Reads the files in which pyenv, nvm and their like keep the version of one language.

    Of several versions (pyenv, one a line) the first is the one that runs.
    """

    name: ClassVar[str] = "version-file"
    family: ClassVar[Family] = Family.VERSIONS
    slots: ClassVar[dict[str, tuple[str, ...]]] = words_of(_PIN_SLOTS)

    def wants(self, path: str) -> bool:
        return base_name(path) in _PIN_FILES

    def read(self, path: str, text: str) -> list[Fact]:
        """Raises: UnreadableError where the first line is more than a version."""
        facts = Facts(_PIN_SLOTS)
        language = _PIN_FILES.get(base_name(path), "")
        stripped = (line.partition("#")[0].split() for line in read_lines(text))
        words = next((words for words in stripped if words), [])
        if len(words) > 1 and language != "python":
            raise UnreadableError(f"more than a version: {' '.join(words)[:80]}")
        if words:
            facts.add(language, "pinned_version", words[0], LANGUAGES.get(language, ()))
        return list(facts)
