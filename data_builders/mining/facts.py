"""What a miner reads out of one file: facts that the file itself states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from operators.normal import Form


class Family(StrEnum):
    """The five kinds of facts; hand checks and counts go by them."""

    VERSIONS = "versions"
    CONTAINERS_CI = "containers-ci"
    DEFAULTS = "defaults"
    CONFIG = "config"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class Fact:
    """One value of one thing in one file.

    `thing` is its name inside the file (`react`, `DEFAULT_TIMEOUT`, `jobs.test.runs-on`), unique there
    together with `slot` (and, when `many`, with the value). `aliases` are other names a text may use for it.
    `value` is what stands in the file, without quotes; true/false are `on`/`off` where `form` is FLAG.
    """

    thing: str
    slot: str
    value: str
    form: Form
    many: bool = False
    aliases: tuple[str, ...] = ()


class UnreadableError(ValueError):
    """The file is not what its name says (a syntax error, say). It is counted and read as holding no fact."""


class Miner(Protocol):
    """Reads facts from files of one format. Pure: equal path and text, equal facts."""

    @property
    def name(self) -> str:
        """Short and unique, such as `cargo`."""

    @property
    def family(self) -> Family: ...

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        """Every slot the miner fills, with the words a text may use for it."""

    def wants(self, path: str) -> bool:
        """Whether the miner reads a file of that path (`/`-separated, from the root)."""

    def read(self, path: str, text: str) -> Sequence[Fact]:
        """The facts of a file, in its order. Raises: UnreadableError."""
