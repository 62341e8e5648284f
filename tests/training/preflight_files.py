"""A sound recipe, base folder, row, adapter and environment, each to be spoilt in one place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import truncate
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from data_builders.examples import Example, Source
from operators.adapters import CARD, WEIGHTS
from operators.config import load_config
from operators.prompts import prompt_version
from tests import support_adapters
from tests.support_adapters import Tensors
from training.config import TrainConfig
from training.guards.inspected import Environment

CONFIGS = Path(__file__).parents[2] / "configs" / "train"
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
BASE_CARD = support_adapters.BASE.model_dump()
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
        "origin": "s", "case": "c", "prompt_version": prompt_version("compare-claims"),
        "prompt": [{"role": "system", "content": "Compare."}, {"role": "user", "content": "> a note"}],
        "completion": [{"role": "assistant", "content": '{"relation": "same"}'}],
        "note": "", "commits": [], "open_values": [],
    }  # fmt: skip
    return Example.model_validate(row | changes)


def write_adapter(
    folder: Path,
    *,
    config: Mapping[str, Any] | None = None,
    tensors: Tensors | None = None,
    card: Mapping[str, Any] | None = None,
    files: Mapping[str, Any] | None = None,
    size: int | None = None,
) -> Path:
    """A sound adapter of BASE, but for what is given; `size` cuts or (sparse) fills the weights' bytes."""
    support_adapters.write_adapter(
        folder, tensors=tensors, config=support_adapters.peft_config(**(config or {}))
    )
    if size is not None:
        truncate(folder / WEIGHTS, size)
    told = json.loads((folder / CARD).read_text("utf-8")) | dict(card or {})
    for name, data in {CARD: told, **(files or {})}.items():
        (folder / name).write_text(json.dumps(data), "utf-8")
    return folder
