"""A sound recipe, base folder, row, adapter and environment, each to be spoilt in one place."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from data_builders.examples import Example, Source
from operators.config import load_config
from operators.prompts import PROMPT_VERSION
from training.config import PROJECTIONS, TrainConfig
from training.guards.inspected import Environment

CONFIGS = Path(__file__).parents[2] / "configs" / "train"
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CARD = {"id": "tiny", "revision": "r1", "config_hash": "c1", "tokenizer_hash": "t1"}
ENVIRONMENT = Environment(
    versions={"torch": "2.13.0+cpu", "transformers": "5.19.0", "trl": "1.16.0", "bitsandbytes": "0.50.2"},
    ranges={"torch": ">=2.9", "transformers": ">=5.16.1,<5.20", "trl": ">=1.16", "bitsandbytes": ">=0.50"},
)
TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful default persona<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def recipe_data() -> dict[str, Any]:
    """The shipped 14B recipe as plain data."""
    return load_config(CONFIGS / "qwen2.5-14b-qlora.yaml", TrainConfig).model_dump(mode="json")


def changed(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy with dotted keys set; a value of `...` takes the key out."""
    copy: dict[str, Any] = json.loads(json.dumps(data))
    for dotted, value in changes.items():
        *above, last = dotted.split(".")
        place = copy
        for part in above:
            place = place.setdefault(part, {})
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return copy


def write_base(folder: Path) -> Path:
    """A byte-level tokenizer with Qwen's control tokens, the files of a small base, weights of no size."""
    folder.mkdir(parents=True)
    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in (PAD, START, END)])
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {token: tokenizer.token_to_id(token) for token in (PAD, END)}
    config = {"model_type": "qwen2", "vocab_size": 320, "bos_token_id": ids[PAD], "eos_token_id": ids[END]}
    generation = {"eos_token_id": [ids[END], ids[PAD]], "pad_token_id": ids[PAD]}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    (folder / "generation_config.json").write_text(json.dumps(generation), "utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    (folder / "model.safetensors").touch()
    return folder


def example(**changes: Any) -> Example:
    """A compare row in the form that `data build` writes."""
    row: dict[str, Any] = {
        "id": "row-1", "operator": "compare-claims", "task": "compare", "source": Source.SYNTHETIC,
        "origin": "s", "case": "c", "prompt_version": PROMPT_VERSION,
        "prompt": [{"role": "system", "content": "Compare."}, {"role": "user", "content": "> a note"}],
        "completion": [{"role": "assistant", "content": '{"relation": "same"}'}],
        "note": "", "commits": [], "open_values": [],
    }  # fmt: skip
    return Example.model_validate(row | changes)


def adapter_config() -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "r": 16,
        "lora_alpha": 32,
        "bias": "none",
        "target_modules": list(PROJECTIONS),
    }


def write_adapter(
    folder: Path,
    *,
    config: Mapping[str, Any] | None = None,
    tensors: Mapping[str, tuple[int, ...]] | None = None,
    card: Mapping[str, Any] | None = None,
    files: Mapping[str, Any] | None = None,
    size: int = 0,
) -> Path:
    """An adapter folder whose weights are a header and, sparse, `size` bytes of nothing."""
    folder.mkdir(parents=True)
    layer = "base_model.model.model.layers.0.self_attn.q_proj"
    shapes = tensors or {f"{layer}.lora_A.weight": (16, 64), f"{layer}.lora_B.weight": (64, 16)}
    header = {
        name: {"dtype": "F32", "shape": list(shape), "data_offsets": [0, 0]} for name, shape in shapes.items()
    }
    head = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    with (folder / "adapter_model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.truncate(max(size, file.tell()))
    (folder / "adapter_config.json").write_text(json.dumps(adapter_config() | dict(config or {})), "utf-8")
    (folder / "adapter.json").write_text(json.dumps({"base": CARD} | dict(card or {})), "utf-8")
    for name, data in (files or {}).items():
        (folder / name).write_text(json.dumps(data), "utf-8")
    return folder
