"""Examples, splits and the leak check: deterministic, complete, and a planted leak fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_builders.build import DataConfig, Manifest, SyntheticConfig, build_data, verify_data
from data_builders.examples import Example, Source, read_examples
from data_builders.examples import examples as rows_of
from data_builders.gold import gold_cases
from data_builders.mining.training import MinedConfig
from data_builders.scenarios import load_vocabulary
from data_builders.splits import find_leaks, leave_one_out
from data_builders.trajectory import Trajectory, load_trajectories
from operators.errors import InputError, LeakError

FOLDER = Path(__file__).parents[2] / "configs" / "trajectories"
CONFIG = DataConfig(
    near_duplicate=85,
    negatives=4,
    synthetic=SyntheticConfig(scenarios=2, lengths=(6,), long_noise=(False, True)),
    mined=MinedConfig(notes=20, max_characters=600, bot_share=0.1),
)


def built(out: Path, seed: int = 7, trajectories: Path = FOLDER) -> Manifest:
    return build_data(
        out, config=CONFIG, seed=seed, trajectories=load_trajectories(trajectories), vocabulary=load_vocabulary(),
        inputs={},
    )  # fmt: skip


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return [
        row
        for t in load_trajectories(FOLDER)
        for row in rows_of(gold_cases(t), Source.TRAJECTORY, t.name, negatives=4)
    ]


def test_two_builds_of_a_seed_have_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    one, two, other = built(tmp_path / "one"), built(tmp_path / "two"), built(tmp_path / "other", seed=8)
    assert one.files == two.files
    assert (tmp_path / "one/manifest.json").read_bytes() == (tmp_path / "two/manifest.json").read_bytes()
    assert one.files["synthetic-extract-state.jsonl"] != other.files["synthetic-extract-state.jsonl"]
    assert one.files["trajectory-extract-state.jsonl"] == other.files["trajectory-extract-state.jsonl"]


def test_an_existing_folder_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="not written over"):
        built(tmp_path / "out")


def test_the_rows_load_with_datasets_and_their_answers_are_json(tmp_path: Path) -> None:
    from datasets import load_dataset

    built(tmp_path / "data")
    for path in sorted((tmp_path / "data").glob("*.jsonl")):
        rows = load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
        assert len(rows) == len(path.read_text().splitlines())
        assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
        answers = {row["task"]: row["completion"][0]["content"] for row in rows}
        assert answers.pop("select", "yes") in ("yes", "no")
        assert all(isinstance(json.loads(answer), dict) for answer in answers.values())


def test_every_row_is_in_the_test_of_its_holdout_or_in_its_training(examples: list[Example]) -> None:
    for fold in leave_one_out(examples, near_duplicate=85):
        assert set(fold.train).isdisjoint(fold.test)
        assert len(fold.train) + len(fold.test) == len(examples)
        assert {e.origin for e in examples if e.id in set(fold.test)} == {fold.holdout}


def test_ids_are_unique_and_depend_on_content(examples: list[Example]) -> None:
    assert len({e.id for e in examples}) == len(examples)


def first_note(trajectory: Trajectory) -> str:
    return trajectory.sessions[0].note.strip()


def test_a_planted_note_fails_the_build_and_leaves_nothing_behind(tmp_path: Path) -> None:
    donor, target = load_trajectories(FOLDER)[0], load_trajectories(FOLDER)[2]
    stolen = target.model_copy(
        update={"sessions": (*target.sessions, target.sessions[-1].model_copy(
            update={"id": "stolen", "note": first_note(donor) + " Indeed.", "claims": ()}))}
    )  # fmt: skip
    rest = [t for t in load_trajectories(FOLDER) if t.name != target.name]
    with pytest.raises(LeakError, match="note"):
        build_data(
            tmp_path / "out", config=CONFIG, seed=7, trajectories=[*rest, stolen], vocabulary=load_vocabulary(),
            inputs={},
        )  # fmt: skip
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.iterdir())


def test_a_planted_value_or_commit_is_a_leak(examples: list[Example]) -> None:
    test = [e for e in examples if e.origin == "browser-surface"]
    train = [e for e in examples if e.origin != "browser-surface"]
    assert find_leaks(train, test, near_duplicate=85) == []
    value = next(e.open_values[0] for e in test if e.open_values)
    commit = next(e.commits[0] for e in test if e.commits)
    for update in ({"open_values": [value]}, {"commits": [commit]}):
        leaky = [*train[1:], train[0].model_copy(update=update)]
        assert {leak.train_id for leak in find_leaks(leaky, test, near_duplicate=85)} == {train[0].id}


def test_synthetic_rows_that_hold_a_held_out_value_are_withheld_from_that_fold(
    examples: list[Example],
) -> None:
    value = next(e.open_values[0] for e in examples if e.origin == "model-routing" and e.open_values)
    made_up = examples[0].model_copy(
        update={"id": "made-up", "source": Source.SYNTHETIC, "origin": "scenario", "open_values": [value],
                "note": "", "commits": []}
    )  # fmt: skip
    folds = {fold.holdout: fold for fold in leave_one_out([*examples, made_up], near_duplicate=85)}
    assert folds["model-routing"].withheld == 1
    assert "made-up" not in folds["model-routing"].train
    assert "made-up" in folds["browser-surface"].train


def test_a_built_folder_is_checked_as_it_stands_on_disk(tmp_path: Path) -> None:
    out = tmp_path / "data"
    built(out)
    assert len(verify_data(out, near_duplicate=85)) == 5
    path = out / "trajectory-extract-state.jsonl"
    rows = list(read_examples(path))
    leak = rows[0].model_copy(update={"id": "leak", "origin": rows[-1].origin})
    path.write_text("".join(f"{row.json_line()}\n" for row in [*rows, leak]))
    with pytest.raises(LeakError):
        verify_data(out, near_duplicate=85)
    path.write_text("{}\n")
    with pytest.raises(InputError, match="jsonl:1"):
        verify_data(out, near_duplicate=85)


def test_a_changed_split_a_changed_row_and_a_foreign_folder_are_found_out(tmp_path: Path) -> None:
    out = tmp_path / "data"
    built(out)
    split = out / "splits" / "browser-surface.json"
    stored = split.read_text()
    fold = json.loads(stored)
    split.write_text(json.dumps({**fold, "train": fold["train"] + fold["test"]}))
    with pytest.raises(LeakError, match="split"):
        verify_data(out, near_duplicate=85)
    split.write_text(stored)
    rows = out / "synthetic-extract-state.jsonl"
    rows.write_text(rows.read_text().replace("Pairs:", "Known pairs:", 1))
    with pytest.raises(InputError, match="not as it was written"):
        verify_data(out, near_duplicate=85)
    with pytest.raises(InputError, match=r"no manifest\.json"):
        verify_data(tmp_path, near_duplicate=85)
