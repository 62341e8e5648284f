"""The command that serves a registry with vLLM, as a list and as the line that a shell takes."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from operators.errors import ConfigError
from operators.models.bases import FoundBase
from serving.registry import Registry, ServedAdapter, read_registry
from serving.vllm_command import MAX_LORAS, VllmCommand, vllm_command, vllm_python
from tests.serving.support import adapter
from tests.support_adapters import BASE, write_adapter

MODEL = Path("/models/small")
ODD = 'it\'s "odd" $HOME `x` \\ *;&|<>() é #1'
"""Everything that means something to a shell."""


def served(folder: Path, *, rank: int = 8, holdout: str = "one") -> ServedAdapter:
    """An adapter of which only PEFT's file is there."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank}), encoding="utf-8")
    return ServedAdapter(folder, adapter("compare-claims", holdout).card, {})


def command(*adapters: ServedAdapter, path: Path = MODEL, **settings: object) -> VllmCommand:
    known: dict[str, object] = {"python": "python", "host": "127.0.0.1", "port": 8000} | settings
    return vllm_command(Registry(adapters), FoundBase(path, BASE), **known)  # type: ignore[arg-type]


def option(made: VllmCommand, flag: str) -> str:
    assert made.argv.count(flag) == 1, flag
    return made.argv[made.argv.index(flag) + 1]


def read_back(line: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Environment and words of a line whose ends are continued."""
    words = shlex.split(line.replace(" \\\n", ""))
    settings = {}
    while "=" in words[0]:
        name, _, settings[name] = words.pop(0).partition("=")
    return settings, tuple(words)


def test_it_starts_vllms_server_on_the_base_under_the_bases_id(tmp_path: Path) -> None:
    made = command(served(tmp_path / "a"), python="/opt/vllm/bin/python", host="::1", port=8001)
    assert made.argv[:3] == ("/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server")
    assert option(made, "--model") == str(MODEL)
    assert option(made, "--served-model-name") == made.base_name == BASE.id
    assert (option(made, "--host"), option(made, "--port")) == ("::1", "8001")
    assert option(made, "--dtype") == "bfloat16"


def test_every_adapter_of_a_run_is_named_with_the_hash_of_its_content(tmp_path: Path) -> None:
    for holdout in ("one", "two"):
        write_adapter(tmp_path / "run" / "adapters" / "extract-state" / holdout, holdout=holdout)
    registry = read_registry([tmp_path / "run"])
    made = vllm_command(registry, FoundBase(MODEL, BASE), python="python", host="h", port=1)
    place = made.argv.index("--lora-modules")
    assert made.argv[place + 1 :] == tuple(f"{one.card.name}={one.folder}" for one in registry.adapters)
    names = [word.partition("=")[0] for word in made.argv[place + 1 :]]
    assert [name.rpartition("-")[0] for name in names] == ["extract-state-one", "extract-state-two"]
    assert all(len(name.rpartition("-")[2]) == 8 for name in names)


@pytest.mark.parametrize(
    ("ranks", "legal"),
    [
        ((1,), "1"),
        ((4,), "8"),
        ((8,), "8"),
        ((9,), "16"),
        ((8, 17, 4), "32"),
        ((257,), "320"),
        ((512,), "512"),
    ],
)
def test_the_rank_is_the_smallest_legal_one_that_all_adapters_fit(
    tmp_path: Path, ranks: tuple[int, ...], legal: str
) -> None:
    made = command(*(served(tmp_path / str(n), rank=rank) for n, rank in enumerate(ranks)))
    assert option(made, "--max-lora-rank") == legal


@pytest.mark.parametrize("count", [1, 3, MAX_LORAS])
def test_all_adapters_are_in_one_batch_while_they_are_few(tmp_path: Path, count: int) -> None:
    made = command(*(served(tmp_path / str(n)) for n in range(count)))
    assert option(made, "--max-loras") == str(count)
    assert "--max-cpu-loras" not in made.argv


def test_more_adapters_wait_on_the_cpu(tmp_path: Path) -> None:
    made = command(*(served(tmp_path / str(n)) for n in range(MAX_LORAS + 1)))
    assert option(made, "--max-loras") == str(MAX_LORAS)
    assert option(made, "--max-cpu-loras") == str(MAX_LORAS + 1)


def test_neither_sampling_defaults_nor_free_whitespace_come_from_the_server(tmp_path: Path) -> None:
    made = command(served(tmp_path / "a"))
    assert "--enable-lora" in made.argv
    assert option(made, "--generation-config") == "vllm"
    structured = json.loads(option(made, "--structured-outputs-config"))
    assert structured == {"backend": "xgrammar", "disable_any_whitespace": True}


def test_what_is_not_asked_for_is_left_to_vllm(tmp_path: Path) -> None:
    made = command(served(tmp_path / "a"))
    for flag in ("--max-model-len", "--tensor-parallel-size", "--data-parallel-size", "--chat-template"):
        assert flag not in made.argv


def test_what_is_asked_for_is_passed_and_further_options_stand_last(tmp_path: Path) -> None:
    extra = ("--gpu-memory-utilization", "0.8", "--enforce-eager")
    made = command(
        served(tmp_path / "a"), dtype="float32", max_model_len=4096, tensor_parallel=2, data_parallel=4,
        extra=extra,
    )  # fmt: skip
    assert option(made, "--dtype") == "float32"
    assert option(made, "--max-model-len") == "4096"
    assert option(made, "--tensor-parallel-size") == "2"
    assert option(made, "--data-parallel-size") == "4"
    assert made.argv[-len(extra) :] == extra
    assert made.argv[-len(extra) - 1].startswith("compare-claims-one-")


def test_the_environment_keeps_vllm_off_the_net_and_holds_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATTICEMIND_TOKEN", "open-sesame")
    monkeypatch.setenv("VLLM_API_KEY", "open-sesame")
    made = command(served(tmp_path / "a"))
    assert made.environment == {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    assert "open-sesame" not in made.line()
    assert not any("key" in word for word in made.argv if word.startswith("--"))


def test_the_line_has_one_option_a_line(tmp_path: Path) -> None:
    lines = command(served(tmp_path / "a")).line().split(" \\\n")
    assert lines[0] == "HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 python -m vllm.entrypoints.openai.api_server"
    assert all(line.startswith("  --") for line in lines[1:])
    assert f"  --model {MODEL}" in lines


@pytest.mark.parametrize("name", ["plain", ODD, "a b", "--dashes", "trailing\\"])
def test_the_line_is_read_back_as_the_environment_and_the_words(tmp_path: Path, name: str) -> None:
    made = command(
        served(tmp_path / name),
        python=str(tmp_path / name / "python"),
        path=tmp_path / name,
        extra=("--x", name),
    )
    assert read_back(made.line()) == (made.environment, made.argv)


def test_a_shell_runs_exactly_the_words_of_the_line(tmp_path: Path) -> None:
    program = tmp_path / ODD / "python"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$HF_HUB_OFFLINE$VLLM_NO_USAGE_STATS" "$0" "$@"\n', "utf-8")
    program.chmod(0o755)
    made = command(
        served(tmp_path / ODD / "a"), python=str(program), path=tmp_path / ODD, extra=("--x", "two\nlines")
    )
    done = subprocess.run(["sh", "-c", made.line()], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == ["11", *made.argv]


def test_an_empty_word_is_not_lost(tmp_path: Path) -> None:
    made = command(served(tmp_path / "a"), extra=("--revision", "", "--enforce-eager"))
    assert read_back(made.line())[1] == made.argv


def test_the_interpreter_is_the_one_given_then_the_environments_then_the_one_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LATTICEMIND_VLLM", raising=False)
    with pytest.raises(ConfigError) as left:
        vllm_python(None)
    assert "--vllm-python" in left.value.hint
    here = tmp_path / ".venv-vllm" / "bin" / "python"
    here.parent.mkdir(parents=True)
    here.touch()
    assert vllm_python(None) == str(here)
    monkeypatch.setenv("LATTICEMIND_VLLM", "other/python")
    assert vllm_python(None) == str(tmp_path / "other" / "python")
    assert vllm_python("python-of-the-path") == "python-of-the-path"
