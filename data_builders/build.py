"""`data build`: trajectories, seeded scenarios and mined notes become examples, splits and a manifest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import Field

from data_builders.examples import Example, Source, examples, read_examples
from data_builders.gold import GoldCases, gold_cases
from data_builders.mining.dataset import mined_repositories
from data_builders.mining.training import MinedConfig, training_cases
from data_builders.scenarios import Family, Vocabulary, generate
from data_builders.splits import Fold, leave_one_out
from data_builders.trajectory import Trajectory
from operators.artefacts import environment, new_folder, sha256_of, write_json
from operators.errors import InputError, LeakError
from operators.prompts import PROMPT_VERSIONS
from operators.schema import FrozenModel


class SyntheticConfig(FrozenModel):
    """How many scenarios: `scenarios` for each family, each length and each noise mode."""

    scenarios: int = Field(ge=0)
    lengths: tuple[int, ...] = Field(min_length=1)
    long_noise: tuple[bool, ...] = Field(min_length=1)


class DataConfig(FrozenModel):
    """`near_duplicate` is the rapidfuzz ratio (0 to 100) from which two notes count as one.

    `negatives` bounds how many pairs that a note does not state are asked about (select rows).
    """

    near_duplicate: float = Field(gt=0, le=100)
    negatives: int = Field(ge=0)
    synthetic: SyntheticConfig
    mined: MinedConfig


class Manifest(FrozenModel):
    """What a build made, from what: equal manifests mean equal bytes."""

    config: DataConfig
    seed: int
    prompt_versions: dict[str, str]
    examples: int
    counts: dict[str, int]
    folds: dict[str, dict[str, int]]
    inputs: dict[str, str]
    files: dict[str, str]
    environment: dict[str, object]


def scenarios(config: SyntheticConfig, *, seed: int, vocabulary: Vocabulary) -> Iterator[Trajectory]:
    """Every synthetic scenario of a build, in a fixed order; each has a seed of its own."""
    number = 0
    for family in Family:
        for length in config.lengths:
            for noisy in config.long_noise:
                for _ in range(config.scenarios):
                    yield generate(
                        family, seed=seed * 1_000_000 + number, length=length, long_noise=noisy,
                        vocabulary=vocabulary,
                    )  # fmt: skip
                    number += 1


def build_data(
    out: Path,
    *,
    config: DataConfig,
    seed: int,
    trajectories: Sequence[Trajectory],
    vocabulary: Vocabulary,
    inputs: dict[str, str],
    mined: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Manifest:
    """Write `out` with examples, splits and manifest.json, whole or not at all; returns the manifest.

    `mined` is a folder that `data mine` wrote; without it there are no mined rows. `inputs` maps the files
    read to their hashes, for the record.
    Raises: InputError for an existing `out` or a `mined` that is none, LeakError for a leak.
    """
    if out.exists():
        raise InputError("this exists already and is not written over", file=out, hint="choose another place")
    rows: list[Example] = []

    def add(cases: GoldCases, source: Source, origin: str) -> None:
        rows.extend(examples(cases, source, origin, negatives=config.negatives))

    for trajectory in trajectories:
        progress(f"trajectory {trajectory.name}")
        add(gold_cases(trajectory), Source.TRAJECTORY, trajectory.name)
    progress("synthetic scenarios")
    for scenario in scenarios(config.synthetic, seed=seed, vocabulary=vocabulary):
        add(gold_cases(scenario), Source.SYNTHETIC, scenario.name)
    for repository in mined_repositories(mined) if mined is not None else ():
        progress(f"mined {repository.name}")
        add(training_cases(repository, config.mined), Source.MINED, repository.name)
    progress("splits and leak check")
    folds = leave_one_out(rows, near_duplicate=config.near_duplicate)
    with new_folder(out) as draft:
        _write_rows(draft, rows)
        _write_folds(draft, folds)
        manifest = Manifest(
            config=config,
            seed=seed,
            prompt_versions=PROMPT_VERSIONS,
            examples=len(rows),
            counts=_counts(rows),
            folds={
                f.holdout: {"train": len(f.train), "test": len(f.test), "withheld": f.withheld} for f in folds
            },
            inputs=inputs,
            files=_file_hashes(draft),
            environment=environment(),
        )
        write_json(draft / "manifest.json", manifest.model_dump(mode="json"))
    return manifest


def verify_data(folder: Path, *, near_duplicate: float) -> list[Fold]:
    """Read the rows of a built folder back and repeat the leak check on what stands there.

    Raises: InputError for a folder that is none of ours, a row that cannot be read, or a file that is not as
    it was written; LeakError for a leak, in the rows or in a split that was changed.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        raise InputError("no manifest.json here", file=folder, hint="give a folder that `data build` wrote")
    rows = [row for path in sorted(folder.glob("*.jsonl")) for row in read_examples(path)]
    folds = leave_one_out(rows, near_duplicate=near_duplicate)
    for fold in folds:
        stored = folder / "splits" / f"{fold.holdout}.json"
        if not stored.is_file() or _as_sets(json.loads(stored.read_text("utf-8"))) != _as_sets(asdict(fold)):
            raise LeakError("this split is not the one its rows give", file=stored, hint="build again")
    manifest = Manifest.model_validate_json(path.read_text(encoding="utf-8"))
    for name, digest in manifest.files.items():
        if not (folder / name).is_file() or sha256_of(folder / name) != digest:
            raise InputError("this file is not as it was written", file=folder / name, hint="build again")
    return folds


def _as_sets(fold: dict[str, Any]) -> list[tuple[str, object]]:
    """A split without the order of its ids."""
    return sorted((key, sorted(ids) if key in ("train", "test") else ids) for key, ids in fold.items())


def _write_rows(draft: Path, rows: Sequence[Example]) -> None:
    for source, operator in sorted({(row.source, row.operator) for row in rows}):
        lines = [row.json_line() for row in rows if (row.source, row.operator) == (source, operator)]
        path = draft / f"{source.value}-{operator}.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_folds(draft: Path, folds: Sequence[Fold]) -> None:
    (draft / "splits").mkdir()
    for fold in folds:
        write_json(draft / "splits" / f"{fold.holdout}.json", asdict(fold))


def _counts(rows: Sequence[Example]) -> dict[str, int]:
    return dict(sorted(Counter(f"{row.source.value} {row.operator}" for row in rows).items()))


def _file_hashes(draft: Path) -> dict[str, str]:
    files = (path for path in sorted(draft.rglob("*")) if path.is_file())
    return {str(path.relative_to(draft)): sha256_of(path) for path in files}
