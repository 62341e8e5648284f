"""From a built data folder to token rows: which cases a stage trains on, and the checks every row passes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from data_builders.examples import Example
from operators.claims import content_hash
from operators.errors import InputError
from operators.models.local.prefix_tree import TokenRow
from operators.models.local.render import completion_ids, prompt_ids
from operators.prompts import PROMPT_VERSIONS
from training.config import Counts, TrainConfig


@dataclass(frozen=True, slots=True)
class Case:
    """The rows that are read together: those of one note, or one compare or update row."""

    name: str
    operator: str
    source: str
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """The cases one job trains on. `data_hash` is a content hash of their rows' ids in order."""

    cases: tuple[Case, ...]

    @property
    def data_hash(self) -> str:
        return content_hash([row.id for case in self.cases for row in case.examples])

    @property
    def rows(self) -> int:
        return sum(len(case.examples) for case in self.cases)


@dataclass(frozen=True, slots=True)
class Draw:
    """At most `count` cases, those whose names the seed puts first."""

    seed: int
    count: int


class DataFolder:
    """A folder that `data build` wrote."""

    def __init__(self, folder: Path) -> None:
        """Raises: InputError for a folder that is none of ours or was made with other prompts."""
        manifest = folder / "manifest.json"
        if not manifest.is_file():
            raise InputError(
                "no manifest.json here", file=folder, hint="give a folder that `data build` wrote"
            )
        versions = json.loads(manifest.read_text(encoding="utf-8")).get("prompt_versions")
        if versions != PROMPT_VERSIONS:
            raise InputError(
                f"rows of prompt versions {versions}, these are {PROMPT_VERSIONS}", file=manifest,
                hint="build the data again",
            )  # fmt: skip
        self.folder = folder

    @cached_property
    def splits(self) -> dict[str, frozenset[str]]:
        """For each holdout, the ids of the rows that may train."""
        found = sorted((self.folder / "splits").glob("*.json"))
        return {path.stem: frozenset(json.loads(path.read_text("utf-8"))["train"]) for path in found}

    def shared_ids(self) -> frozenset[str]:
        """Rows that may train whatever is held out: every fold continues from them."""
        return frozenset.intersection(*self.splits.values()) if self.splits else frozenset()

    def fold_ids(self, holdout: str) -> frozenset[str]:
        """Rows that may train when `holdout` is left out. Raises: InputError for an unknown holdout."""
        if holdout not in self.splits:
            known = ", ".join(self.splits) or "none"
            raise InputError(f"no split leaves out {holdout!r}", file=self.folder, hint=f"there are: {known}")
        return self.splits[holdout]

    def cases(
        self,
        source: str,
        operator: str,
        tasks: Collection[str],
        ids: frozenset[str],
        draw: Draw | None = None,
    ) -> list[Case]:
        """The cases of one source and operator whose rows all may train: in the file's order, or as drawn."""
        path = self.folder / f"{source}-{operator}.jsonl"
        if not path.is_file():
            return []
        grouped: dict[str, list[dict[str, Any]]] = {}
        barred = set()
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if row["id"] not in ids:
                    barred.add(row["case"])
                elif row["task"] in tasks:
                    grouped.setdefault(row["case"], []).append(row)
        names = [name for name in grouped if name not in barred]
        if draw is not None:
            names = sorted(names, key=lambda name: content_hash(draw.seed, name))[: draw.count]
        return [
            Case(name, operator, source, tuple(Example.model_validate(row) for row in grouped[name]))
            for name in names
        ]


def select(
    data: DataFolder, config: TrainConfig, operators: Sequence[str], *, stage: str, holdout: str | None
) -> Selection:
    """The cases of a stage: `shared`, `fold`, or `single` for those of both.

    `holdout` None means that nothing is held out but what no fold may see.
    Raises: InputError when nothing is left to train on.
    """
    stages = ("shared", "fold") if stage == "single" else (stage,)
    cases = [case for name in stages for case in _drawn(data, config, operators, name, holdout)]
    if not cases:
        raise InputError(
            f"the {stage} stage of {', '.join(operators)} has no rows", file=data.folder,
            hint="see `mixture` in the config, and whether the data hold these sources",
        )  # fmt: skip
    return Selection(tuple(cases))


def _drawn(
    data: DataFolder, config: TrainConfig, operators: Sequence[str], stage: str, holdout: str | None
) -> list[Case]:
    """One stage's cases, drawn by the seed and mixed; shared ones are those that every fold may see."""
    wanted: dict[str, Counts] = dict(getattr(config.mixture, stage))
    ids = data.shared_ids() if stage == "shared" else data.fold_ids(holdout or "")
    picked: list[Case] = []
    for source, counts in wanted.items():
        for operator in operators:
            count = dict(counts).get(operator, 0)  # type: ignore[call-overload]
            if count:
                tasks = config.tasks[operator]  # type: ignore[index]
                picked += data.cases(source, operator, tasks, ids, Draw(config.optim.seed, count))
    picked.sort(key=lambda case: content_hash("order", config.optim.seed, case.name))
    return picked


def tokenise(
    tokenizer: PreTrainedTokenizerBase, examples: Iterable[Example], *, max_length: int
) -> list[TokenRow]:
    """One token row an example: none is dropped or cut.

    Raises: InputError, naming the row, for one that is too long or has no labelled end of turn.
    """
    return [_row(tokenizer, example, max_length) for example in examples]


def _row(tokenizer: PreTrainedTokenizerBase, example: Example, max_length: int) -> TokenRow:
    before = len(prompt_ids(tokenizer, example.prompt))
    ids = completion_ids(tokenizer, example.prompt, example.completion[0]["content"])
    place = f"row {example.id} ({example.case}, {example.task})"
    if len(ids) > max_length:
        raise InputError(
            f"{place} has {len(ids)} tokens, max_length is {max_length}",
            hint="raise max_length, or leave longer notes out of the data",
        )
    if len(ids) - before < 2 or ids[-1] != tokenizer.eos_token_id:
        raise InputError(
            f"{place} has no answer that ends with the end of turn", hint="see T18 in docs/gpu.md"
        )
    return TokenRow(tuple(ids), before)
