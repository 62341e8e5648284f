"""Guards on an adapter's folder: plain LoRA that a server loads as it was trained, on its own base."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training.config import PROJECTIONS
from training.guards.findings import Fault
from training.guards.inspected import AdapterFiles, Inspected
from training.guards.recipe import LEGAL_MAX_RANKS, smallest_max_rank

LARGEST_BYTES = 500 * 1024 * 1024

KNOWN_KEYS = frozenset(
    "task_type peft_type auto_mapping peft_version base_model_name_or_path revision inference_mode r "
    "target_modules exclude_modules lora_alpha lora_dropout fan_in_fan_out bias use_rslora "
    "modules_to_save init_lora_weights layers_to_transform layers_pattern rank_pattern alpha_pattern "
    "megatron_config megatron_core trainable_token_indices loftq_config eva_config corda_config "
    "lora_ga_config use_dora velora_config alora_invocation_tokens use_qalora qalora_group_size "
    "monteclora_config layer_replication runtime_config lora_bias target_parameters use_bdlora "
    "arrow_config kasa_config ensure_weight_tying".split()
)
"""The fields of peft 0.21's LoraConfig."""

PLAIN: Mapping[str, tuple[Any, ...]] = {
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "bias": ("none", None),
    "init_lora_weights": (True, None, "gaussian"),
    "alora_invocation_tokens": (None, []),
    "layer_replication": (None, []),
    "use_qalora": (False, None),
    "use_bdlora": (False, None, {}),
    "loftq_config": ({}, None),
    "corda_config": (None, {}),
    "eva_config": (None, {}),
    "lora_ga_config": (None, {}),
    "velora_config": (None, {}),
    "monteclora_config": (None, {}),
    "kasa_config": (None, {}),
    "arrow_config": (None, {}),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, [], {}),
}
"""PEFT's settings with the values that are plain LoRA; vLLM's PEFTHelper refuses or ignores the rest."""

ONE_SCALE: Mapping[str, tuple[Any, ...]] = {
    "use_rslora": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
}

_LORA_KEY = re.compile(rf"\.({'|'.join(PROJECTIONS)})\.lora_[AB]\.(?:default\.)?weight$")


def config_keys_are_known(seen: Inspected) -> Iterator[Fault]:
    """Keys beyond peft's that are not null: newer PEFT and vLLM drop them silently, older PEFT fails."""
    if not seen.adapter:
        return
    for key, value in sorted(seen.adapter.config.items()):
        if key not in KNOWN_KEYS and value is not None:
            yield Fault(
                f"{_config(seen.adapter)} [{key}]", "no field of peft 0.21's LoraConfig: loaders drop it",
                "save the adapter with the peft that serves it (>=0.21), or remove a key without effect",
            )  # fmt: skip


def adapter_is_small(seen: Inspected) -> Iterator[Fault]:
    """Weights below 500 MB: resized embeddings saved along make an adapter huge."""
    if seen.adapter and seen.adapter.weight_bytes >= LARGEST_BYTES:
        yield Fault(
            str(seen.adapter.folder), f"{seen.adapter.weight_bytes:,} bytes of weights, 500 MB or more",
            "train without adding tokens or saving whole modules",
        )  # fmt: skip


def adapter_saves_no_module(seen: Inspected) -> Iterator[Fault]:
    saved = seen.adapter.config.get("modules_to_save") if seen.adapter else None
    if seen.adapter and saved:
        yield Fault(
            f"{_config(seen.adapter)} [modules_to_save]", f"{saved} saved whole; vLLM refuses that",
            "train again without modules_to_save and without chat_template_path",
        )  # fmt: skip


def adapter_lists_no_layer_twice(seen: Inspected) -> Iterator[Fault]:
    if not seen.adapter:
        return
    targets = seen.adapter.config.get("target_modules") or []
    saved = seen.adapter.config.get("modules_to_save") or []
    for name in sorted(set(targets) & set(saved)) if isinstance(targets, list) else ():
        yield Fault(
            _config(seen.adapter), f"{name} is adapted and saved whole", "train again with it listed once"
        )


def tensors_are_lora_only(seen: Inspected) -> Iterator[Fault]:
    """Every tensor is a LoRA A or B of one of the seven projections."""
    if not seen.adapter:
        return
    wrong = [name for name in sorted(seen.adapter.tensors) if not _LORA_KEY.search(name)]
    if wrong:
        yield Fault(
            str(seen.adapter.folder / "adapter_model.safetensors"),
            f"{len(wrong)} tensor(s) that are no LoRA weight of a projection, such as {wrong[0]}",
            f"adapt only {', '.join(PROJECTIONS)}; embeddings and the head cannot be served",
        )  # fmt: skip


def adapter_is_plain_lora(seen: Inspected) -> Iterator[Fault]:
    yield from _unlike(
        seen.adapter, PLAIN, "vLLM serves plain LoRA: bias none, default init, none of the variants"
    )


def adapter_has_one_scale(seen: Inspected) -> Iterator[Fault]:
    yield from _unlike(
        seen.adapter, ONE_SCALE, "train with one r and one alpha: tools scale the rest differently"
    )


def adapter_rank_can_be_served(seen: Inspected) -> Iterator[Fault]:
    """The config's rank is that of every tensor, and some --max-lora-rank takes it."""
    if not seen.adapter:
        return
    rank, where = seen.adapter.config.get("r"), f"{_config(seen.adapter)} [r]"
    if not isinstance(rank, int) or rank < 1:
        yield Fault(where, f"the rank is {rank!r}", "the folder holds no LoRA adapter of ours; train again")
        return
    if smallest_max_rank(rank) is None:
        yield Fault(where, f"no server takes rank {rank}", f"at most {LEGAL_MAX_RANKS[-1]}; train with r: 16")
    for name, shape in sorted(seen.adapter.tensors.items()):
        side = 0 if ".lora_A." in name else 1
        if _LORA_KEY.search(name) and (len(shape) != 2 or shape[side] != rank):
            yield Fault(
                where, f"r is {rank}, but {name} has shape {shape}", "the files do not belong together"
            )
            return


def nothing_was_merged_into_4_bits(seen: Inspected) -> Iterator[Fault]:
    merged = seen.adapter.merged.get("quantization_config") if seen.adapter else None
    if seen.adapter and merged and (merged.get("load_in_4bit") or merged.get("bits") == 4):
        yield Fault(
            str(seen.adapter.folder / "config.json"), "an adapter merged into a 4-bit base is rounded away",
            "serve base and adapter apart, or merge into the bf16 base",
        )  # fmt: skip


def adapter_is_of_this_base(seen: Inspected) -> Iterator[Fault]:
    """adapter.json's base is the one at hand: id, revision, config hash, tokenizer hash."""
    adapter = seen.adapter
    if not adapter:
        return
    recorded, where = adapter.card.get("base"), str(adapter.folder / "adapter.json")
    if not isinstance(recorded, Mapping):
        hint = "only adapters that `latticemind train` wrote can be checked"
        yield Fault(where, "the adapter does not say which base it was trained on", hint)
        return
    at_hand = (seen.base.card if seen.base else None) or _recipe_base(seen)
    for name, value in at_hand.items():
        if recorded.get(name) != value:
            yield Fault(
                f"{where} [base.{name}]", f"trained on {recorded.get(name)}, but the base at hand is {value}",
                "same shapes load without a word: give the adapter its own base with --base",
            )  # fmt: skip


def _recipe_base(seen: Inspected) -> dict[str, str]:
    """What the recipe alone says of the base, when its files are not at hand."""
    revision = seen.recipe.get("base.revision")
    return {"revision": str(revision)} if revision is not None else {}


def _unlike(
    adapter: AdapterFiles | None, allowed: Mapping[str, tuple[Any, ...]], hint: str
) -> Iterator[Fault]:
    if not adapter:
        return
    for key, values in allowed.items():
        value = adapter.config.get(key)
        if value not in values:
            yield Fault(f"{_config(adapter)} [{key}]", f"{key} is {value!r}", hint)


def _config(adapter: AdapterFiles) -> str:
    return str(adapter.folder / "adapter_config.json")
