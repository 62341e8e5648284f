"""A small adapter folder in the form that training writes, made without torch, to be spoilt in one place."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from operators.adapters import WEIGHTS, AdapterCard, BaseCard, weights_hash, write_card
from operators.prompts import prompt_version

BASE = BaseCard(id="org/small", revision="r1", config_hash="c1", tokenizer_hash="t1")
RANK, WIDTH = 8, 32
ABOVE = "base_model.model.model.layers.0.self_attn"
Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]
"""Name to safetensors type, shape and bytes."""


def lora(*modules: str, above: str = ABOVE) -> Tensors:
    """A and B in float32 of each module, A of ones and B of halves."""
    found: Tensors = {}
    for module in modules:
        for side, shape, value in (("A", (RANK, WIDTH), 1.0), ("B", (WIDTH, RANK), 0.5)):
            found[f"{above}.{module}.lora_{side}.weight"] = (
                "F32", shape, np.full(shape, value, dtype="<f4").tobytes()
            )  # fmt: skip
    return found


def pack(tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """The bytes of a safetensors file."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place, body = 0, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + len(data)]}
        place, body = place + len(data), body + data
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + body


def peft_config(**changes: object) -> dict[str, object]:
    """What PEFT writes, in short; a value of `...` takes the key out."""
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 16, "bias": "none",
        "target_modules": ["q_proj", "v_proj"], "modules_to_save": None, "rank_pattern": {},
        "use_dora": False, "init_lora_weights": True, "inference_mode": True, "lora_dropout": 0.0,
    } | changes  # fmt: skip
    return {key: value for key, value in config.items() if value is not ...}


def card(folder: Path, **changes: object) -> AdapterCard:
    """The card of what lies in the folder."""
    data: dict[str, object] = {
        "operator": "extract-state", "tasks": ["select", "fill"], "holdout": "one", "stage": "fold",
        "parent": None, "base": BASE.model_dump(), "prompt_version": prompt_version(str(changes.get("operator", "extract-state"))), "data_hash": "d1",
        "recipe_hash": "h1", "weights_hash": weights_hash(folder), "dtype": "float32",
        "config": {"lora": {"r": RANK, "alpha": 16}}, "environment": {},
        "training": {"rows": 1200, "row_tokens": 34_567, "last_loss": 0.25},
    }  # fmt: skip
    return AdapterCard.model_validate(data | changes)


def write_adapter(
    folder: Path,
    *,
    tensors: Tensors | None = None,
    config: Mapping[str, object] | None = None,
    **changes: object,
) -> Path:
    """A sound adapter, but for what is given."""
    folder.mkdir(parents=True)
    (folder / WEIGHTS).write_bytes(pack(lora("q_proj", "v_proj") if tensors is None else tensors))
    (folder / "adapter_config.json").write_text(json.dumps(config or peft_config()), encoding="utf-8")
    write_card(folder, card(folder, **changes))
    return folder


def write_base_files(folder: Path, *, fill: bytes = b"\x01") -> Path:
    """The files of a base that are read without torch; its weights are no tensors."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama", "hidden_size": 32}', encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(fill * 200_000)
    return folder
