"""That a file is there, where that matters to people: the root, the workflows and the scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from data_builders.mining.facts import Fact, Family
from operators.normal import Form

_FOLDERS = (".github/workflows/", "scripts/", "script/", "bin/")


@dataclass(frozen=True, slots=True)
class FilePresenceMiner:
    """States that files of the root, `.github/workflows`, `scripts` and `bin` exist, whatever they hold."""

    name: str = "file-presence"
    family: Family = Family.FILES

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return {"file": ("file", "script", "workflow")}

    def wants(self, path: str) -> bool:
        return bool(path) and ("/" not in path or path.startswith(_FOLDERS))

    def read(self, path: str, text: str) -> Sequence[Fact]:
        del text
        last = path.rpartition("/")[2]
        aliases = (path,) if path != last else ()
        return (Fact(last, "file", "present", Form.NAME, aliases=aliases),)
