"""Adapters on disk: the card that names them, and everything that keeps a bad one from being loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from operators.adapter_checks import smallest_max_lora_rank, verify_adapter
from operators.adapter_weights import MAX_BYTES
from operators.adapters import (
    WEIGHTS,
    adapter_for,
    base_card,
    list_adapters,
    read_card,
    weights_hash,
    write_card,
)
from operators.artefacts import new_folder
from operators.errors import ConfigError, PreflightError
from tests.support_adapters import (
    ABOVE,
    BASE,
    RANK,
    WIDTH,
    Tensors,
    card,
    lora,
    pack,
    peft_config,
    write_adapter,
    write_base_files,
)

Q = f"{ABOVE}.q_proj"


def both(**changes: tuple[str, tuple[int, ...], bytes] | None) -> Tensors:
    """The sound adapter's tensors with q_proj's lora_A or lora_B (by the key A or B) changed or taken out."""
    found = lora("q_proj", "v_proj")
    for side, tensor in changes.items():
        name = f"{Q}.lora_{side}.weight"
        if tensor is None:
            del found[name]
        else:
            found[name] = tensor
    return found


def spoil_weights(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """A change of the file behind a card that was made for it as it is afterwards."""

    def spoil(folder: Path) -> None:
        path = folder / WEIGHTS
        path.write_bytes(change(path.read_bytes()))
        write_card(folder, card(folder))

    return spoil


def test_a_sound_adapter_passes_and_its_name_says_what_it_is(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    found = verify_adapter(folder, BASE)
    assert found == read_card(folder)
    assert found.name.startswith("extract-state-one-")
    assert len(found.name.rpartition("-")[2]) == 8


@pytest.mark.parametrize("field", ["recipe_hash", "data_hash", "weights_hash", "prompt_version", "holdout"])
def test_the_name_changes_with_what_decides_the_weights(tmp_path: Path, field: str) -> None:
    folder = write_adapter(tmp_path / "a")
    assert card(folder, **{field: "another"}).name != read_card(folder).name


def test_the_name_does_not_change_with_what_only_watched_the_training(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    assert card(folder, training={"seconds": 5.0}, environment={"python": "4"}).name == read_card(folder).name


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_precision_is_read_bit_by_bit(tmp_path: Path, dtype: str) -> None:
    ones = {"F16": b"\x00\x3c", "BF16": b"\x80\x3f"}[dtype]
    minus_zero = b"\x00\x80"
    tensors = {name: (dtype, shape, ones * (RANK * WIDTH)) for name, (_, shape, _) in both().items()}
    verify_adapter(write_adapter(tmp_path / "a", tensors=tensors))
    for name in tensors:
        if "lora_B" in name:
            tensors[name] = (dtype, tensors[name][1], minus_zero * (RANK * WIDTH))
    with pytest.raises(PreflightError, match="every lora_B is zero"):
        verify_adapter(write_adapter(tmp_path / "b", tensors=tensors))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"surprise": 1}, r"T09: unknown key 'surprise'"),
        ({"modules_to_save": ["lm_head"]}, "T24: modules_to_save"),
        ({"modules_to_save": ["q_proj"]}, "T25: a layer"),
        ({"target_modules": ["q_proj", "lm_head"]}, "T28: target_modules"),
        ({"target_modules": "all-linear"}, "T28: target_modules"),
        ({"target_modules": []}, "T28: target_modules"),
        ({"target_modules": [["q_proj"]]}, "T28: target_modules"),
        ({"peft_type": "IA3"}, "T29: peft_type"),
        ({"bias": "all"}, "T29: bias"),
        ({"use_dora": True}, "T29: use_dora"),
        ({"lora_bias": True}, "T29: lora_bias"),
        ({"init_lora_weights": "pissa"}, "T29: init_lora_weights"),
        ({"layer_replication": [[0, 1]]}, "T29: layer_replication"),
        ({"alora_invocation_tokens": [1]}, "T29: alora_invocation_tokens"),
        ({"use_qalora": True}, "T29: use_qalora"),
        ({"use_bdlora": True}, "T29: use_bdlora"),
        ({"loftq_config": {"bits": 4}}, "T29: loftq_config"),
        ({"use_rslora": True}, "T30: use_rslora"),
        ({"rank_pattern": {"q_proj": 4}}, "T30: rank_pattern"),
        ({"alpha_pattern": {"q_proj": 4}}, "T30: alpha_pattern"),
        ({"r": 513}, "T31: no --max-lora-rank"),
        ({"r": 0}, "r is 0"),
        ({"r": ...}, "r is None"),
        ({"lora_alpha": 0}, "T34: lora_alpha is 0"),
        ({"lora_alpha": 320}, "lora_alpha is 320, the card's recipe says 16"),
        ({"target_modules": ["q_proj", "k_proj", "v_proj"]}, "differ in k_proj"),
        ({"target_modules": ["q_proj"]}, "differ in v_proj"),
    ],
)  # fmt: skip
def test_a_config_that_would_be_served_otherwise_than_trained_is_refused(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    folder = write_adapter(tmp_path / "a", config=peft_config(**changes))
    with pytest.raises(PreflightError, match=said) as fault:
        verify_adapter(folder)
    assert str(folder) in str(fault.value) or "T31" in said
    assert fault.value.hint


def test_a_card_without_a_recipe_is_held_against_the_weights_alone(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a", config=peft_config(lora_alpha=320))
    write_card(folder, card(folder, config={}))
    verify_adapter(folder)


def test_what_peft_writes_for_features_left_off_is_accepted(tmp_path: Path) -> None:
    off = {
        "use_dora": False,
        "use_rslora": False,
        "loftq_config": {},
        "corda_config": None,
        "new_in_peft": None,
    }
    verify_adapter(write_adapter(tmp_path / "a", config=peft_config(**off)))


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        (lora("q_proj", "v_proj", "gate"), "T28: holds .*gate"),
        (both() | {"base_model.model.lm_head.weight": ("F32", (1, 1), b"\0" * 4)}, "T28: holds .*lm_head"),
        (both() | {f"{Q}.lora_magnitude_vector": ("F32", (1, 1), b"\0" * 4)}, "T28: holds .*magnitude"),
        (lora("q_proj", "v_proj", above="model.layers.0.self_attn"), "T34: holds model.layers"),
        (lora("q_proj", "v_proj", above=f"_orig_mod.{ABOVE}"), "T34: holds _orig_mod"),
        (both(B=None), "q_proj has only lora_A"),
        (both(A=("F32", (4, WIDTH), b"\1" * 4 * 4 * WIDTH), B=("F32", (WIDTH, 4), b"\1" * 4 * 4 * WIDTH)), "r is 8"),
        (both(A=("F32", (RANK * WIDTH,), b"\1" * 4 * RANK * WIDTH)), "does not fill"),
        (both(A=("F32", (RANK, WIDTH + 1), b"\1" * 4 * RANK * WIDTH)), "does not fill"),
        (both(A=("F64", (RANK, WIDTH), b"\1" * 8 * RANK * WIDTH)), "of type F64"),
        (both(A=("F32", (RANK, WIDTH), np.full(RANK * WIDTH, np.nan, "<f4").tobytes())), "NaN or infinity"),
        (both(B=("F32", (WIDTH, RANK), np.full(RANK * WIDTH, np.inf, "<f4").tobytes())), "NaN or infinity"),
        ({n: (d, s, b"\0" * len(data) if "lora_B" in n else data) for n, (d, s, data) in both().items()}, "T34: the adapter has no effect"),
        ({}, "holds no tensor"),
    ],
)  # fmt: skip
def test_weights_that_are_no_working_lora_are_refused(tmp_path: Path, tensors: Tensors, said: str) -> None:
    folder = write_adapter(tmp_path / "a", tensors=tensors)
    with pytest.raises(PreflightError, match=said) as fault:
        verify_adapter(folder)
    assert str(folder / WEIGHTS) in str(fault.value)
    assert fault.value.hint


def test_one_trained_b_among_zeros_is_an_effect(tmp_path: Path) -> None:
    verify_adapter(
        write_adapter(tmp_path / "a", tensors=both(B=("F32", (WIDTH, RANK), b"\0" * 4 * RANK * WIDTH)))
    )


def shifted(data: bytes) -> bytes:
    """The same file with a hole of four bytes before its last tensor."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    last = list(header)[-1]
    header[last]["data_offsets"] = [place + 4 for place in header[last]["data_offsets"]]
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + data[8 + length :] + b"\0" * 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _: b"", "no safetensors file"),
        (lambda data: data[:5], "no safetensors file"),
        (lambda data: data[:40], "no safetensors file"),
        (lambda data: data[:-1], "its header says"),
        (lambda data: data + b"\0", "its header says"),
        (lambda data: b"\xff" * 8 + data[8:], "no safetensors file"),
        (lambda data: data[:8] + b"\xff" + data[9:], "no safetensors file"),
        (lambda _: pack({}).replace(b"__metadata__", b"__metadate__"), "no safetensors file"),
        (lambda _: (2).to_bytes(8, "little") + b"[]", "holds no tensor"),
        (lambda _: (1).to_bytes(8, "little") + b"7", "no safetensors file"),
        (shifted, "is not where the one before ends"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_even_if_its_hash_fits(
    tmp_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    folder = write_adapter(tmp_path / "a")
    spoil_weights(change)(folder)
    with pytest.raises(PreflightError, match=said):
        verify_adapter(folder)


def test_edited_weights_are_refused(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(PreflightError, match="is not as it was written"):
        verify_adapter(folder)


def test_an_enormous_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    with (folder / WEIGHTS).open("r+b") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(PreflightError, match="T23"):
        verify_adapter(folder)


@pytest.mark.parametrize("name", [WEIGHTS, "adapter_config.json", "adapter.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_adapter(tmp_path / "a")
    (folder / name).unlink()
    with pytest.raises(PreflightError, match=name) as fault:
        verify_adapter(folder)
    assert fault.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", "\udcff"])
@pytest.mark.parametrize("name", ["adapter_config.json", "adapter.json"])
def test_an_unreadable_json_is_named(tmp_path: Path, name: str, text: str) -> None:
    folder = write_adapter(tmp_path / "a")
    (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(PreflightError, match=name):
        verify_adapter(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [("surprise", 1), ("format", 2), ("stage", "final"), ("weights_hash", None), ("base", {"id": "x"})],
)
def test_a_card_of_another_form_is_refused_by_its_key(tmp_path: Path, key: str, value: object) -> None:
    folder = write_adapter(tmp_path / "a")
    data = json.loads((folder / "adapter.json").read_text())
    (folder / "adapter.json").write_text(json.dumps(data | {key: value}))
    with pytest.raises(PreflightError, match=rf"adapter\.json: \[{key}"):
        read_card(folder)


def test_an_adapter_of_another_prompt_version_is_refused(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a", prompt_version="0")
    with pytest.raises(PreflightError, match="trained on prompt version 0"):
        verify_adapter(folder)


@pytest.mark.parametrize("field", ["id", "revision", "config_hash", "tokenizer_hash"])
def test_an_adapter_of_another_base_of_the_same_shape_is_refused(tmp_path: Path, field: str) -> None:
    folder = write_adapter(tmp_path / "a")
    with pytest.raises(PreflightError, match=f"T33: .*{field}"):
        verify_adapter(folder, BASE.model_copy(update={field: "other"}))


@pytest.mark.parametrize(("rank", "legal"), [(1, 1), (4, 8), (16, 16), (17, 32), (300, 320), (512, 512)])
def test_the_smallest_legal_max_lora_rank(rank: int, legal: int) -> None:
    assert smallest_max_lora_rank(rank) == legal


def test_a_run_lists_its_adapters_and_finds_the_one_that_left_a_holdout_out(tmp_path: Path) -> None:
    for operator, holdout, stage in (
        ("extract-state", "none", "shared"), ("extract-state", "one", "fold"), ("multi", "one", "single"),
    ):  # fmt: skip
        place = tmp_path / "adapters" / operator / (holdout if stage != "shared" else "shared")
        write_adapter(place, operator=operator, holdout=holdout, stage=stage)
    assert [found.holdout for _, found in list_adapters(tmp_path)] == ["one", "none", "one"]
    assert adapter_for(tmp_path, operator="extract-state", holdout="one")[1].operator == "extract-state"
    assert adapter_for(tmp_path, operator="compare-claims", holdout="one")[1].operator == "multi"
    with pytest.raises(ConfigError, match="leaves out two") as fault:
        adapter_for(tmp_path, operator="extract-state", holdout="two")
    assert "extract-state without one" in fault.value.hint
    assert list_adapters(tmp_path / "nowhere") == []


def test_a_folder_that_fails_halfway_is_not_there(tmp_path: Path) -> None:
    def half() -> None:
        with new_folder(tmp_path / "adapters" / "extract-state" / "one") as draft:
            (draft / WEIGHTS).write_bytes(pack(lora("q_proj", "v_proj")))
            write_card(draft, card(draft))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert list_adapters(tmp_path) == []
    assert list((tmp_path / "adapters" / "extract-state").iterdir()) == []


def test_weights_hash_is_that_of_the_file(tmp_path: Path) -> None:
    first, second = write_adapter(tmp_path / "a"), write_adapter(tmp_path / "b")
    assert weights_hash(first) == weights_hash(second)
    (second / WEIGHTS).write_bytes(pack(lora("q_proj")))
    assert weights_hash(first) != weights_hash(second)


def test_a_base_card_forgets_who_saved_the_config_and_nothing_else(tmp_path: Path) -> None:
    folder = write_base_files(tmp_path / "base")
    before = base_card(folder, id="org/small", revision="r1")
    config = json.loads((folder / "config.json").read_text())
    noise = {"transformers_version": "9", "dtype": "float16", "torch_dtype": "float16", "_name_or_path": "/x"}
    (folder / "config.json").write_text(json.dumps(config | noise))
    assert base_card(folder, id="org/small", revision="r1") == before
    (folder / "config.json").write_text(json.dumps(config | {"rope_theta": 1.0}))
    assert base_card(folder, id="org/small", revision="r1").config_hash != before.config_hash
    (folder / "tokenizer.json").write_text("{ }")
    assert base_card(folder, id="org/small", revision="r1").tokenizer_hash != before.tokenizer_hash


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_base_without_a_part_has_no_card(tmp_path: Path, name: str) -> None:
    folder = write_base_files(tmp_path / "base")
    (folder / name).unlink()
    with pytest.raises(ConfigError, match=f"holds no {name}"):
        base_card(folder, id="x", revision="y")


@pytest.mark.parametrize(("text", "said"), [("{", "cannot be read"), ("[]", "holds no JSON object")])
def test_a_damaged_config_of_a_base_is_named(tmp_path: Path, text: str, said: str) -> None:
    folder = write_base_files(tmp_path / "base")
    (folder / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=rf"config\.json {said}"):
        base_card(folder, id="x", revision="y")
