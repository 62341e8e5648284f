"""What an adapter folder must be before anything loads it; files only, no torch.

The numbers T09 to T34 are the traps of this stack, listed in docs/gpu.md.
"""

from __future__ import annotations

import json
from pathlib import Path

from operators.adapter_weights import PROJECTIONS, LoraTensor, fault, read_header, refuse_dead
from operators.adapters import CARD, WEIGHTS, AdapterCard, BaseCard, read_card, weights_hash
from operators.errors import PreflightError
from operators.prompts import prompt_version

PEFT_CONFIG = "adapter_config.json"
LEGAL_MAX_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM's --max-lora-rank takes (T31)."""

PLAIN: dict[str, tuple[object, ...]] = {
    "alora_invocation_tokens": (None,), "alpha_pattern": ({},), "arrow_config": (None,), "bias": ("none",),
    "corda_config": (None,), "ensure_weight_tying": (False,), "eva_config": (None,), "exclude_modules": ([],),
    "fan_in_fan_out": (False,), "init_lora_weights": (True,), "kasa_config": (None,),
    "layer_replication": (None,), "layers_pattern": (None,), "layers_to_transform": (None,),
    "loftq_config": ({},), "lora_bias": (False,), "lora_ga_config": (None,), "megatron_config": (None,),
    "modules_to_save": ([],), "monteclora_config": (None,), "peft_type": ("LORA",), "rank_pattern": ({},),
    "target_parameters": ([],), "task_type": ("CAUSAL_LM",), "trainable_token_indices": (None,),
    "use_bdlora": (False,), "use_dora": (False,), "use_qalora": (False,), "use_rslora": (False,),
    "velora_config": (None,),
}  # fmt: skip
"""Every feature that a server refuses, ignores or scales differently: what (beside null) leaves it off."""

FREE = frozenset(
    (
        "auto_mapping", "base_model_name_or_path", "inference_mode", "lora_alpha", "lora_dropout",
        "megatron_core", "peft_version", "qalora_group_size", "r", "revision", "target_modules",
    )
)  # fmt: skip
"""Keys whose value is not fixed; those that decide how the weights act are compared with the card."""

_TRAP_OF = {"modules_to_save": "T24", "use_rslora": "T30", "rank_pattern": "T30", "alpha_pattern": "T30"}


def verify_adapter(folder: Path, base: BaseCard | None = None) -> AdapterCard:
    """The card of an adapter that is whole, plain LoRA, has an effect, and (if given) belongs to `base`.

    Raises: PreflightError with the first fault, its file and what to do.
    """
    card = read_card(folder)
    current = prompt_version(card.operator)
    if card.prompt_version != current:
        raise fault(
            folder / CARD, f"was trained on prompt version {card.prompt_version}, this is {current}",
            "train again, or use the version of latticemind that it was trained with",
        )  # fmt: skip
    if base is not None:
        _refuse_other_base(folder / CARD, card.base, base)
    path, weights = folder / PEFT_CONFIG, folder / WEIGHTS
    config = _peft_config(path)
    rank, targets = _refuse_what_is_not_plain(path, config)
    _refuse_other_recipe(path, config, card)
    if not weights.is_file():
        raise fault(weights, "is missing", "copy the adapter again, or train again")
    tensors = read_header(weights)
    _refuse_other_shape(weights, tensors, rank, targets)
    if weights_hash(folder) != card.weights_hash:
        raise fault(weights, "is not as it was written", "restore it, or train again")
    refuse_dead(weights, tensors)
    return card


def smallest_max_lora_rank(rank: int) -> int:
    """The smallest legal --max-lora-rank for this rank (T31). Raises: PreflightError above 512."""
    for legal in LEGAL_MAX_RANKS:
        if rank <= legal:
            return legal
    raise PreflightError(
        f"T31: no --max-lora-rank serves rank {rank}", hint=f"train with r of {LEGAL_MAX_RANKS[-1]} or less"
    )


def _peft_config(path: Path) -> dict[str, object]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as bad:
        raise fault(path, f"cannot be read ({bad})"[:200], "copy the adapter again, or train again") from bad
    if not isinstance(data, dict):
        raise fault(path, "is no JSON object", "copy the adapter again, or train again")
    return data


def _refuse_what_is_not_plain(path: Path, config: dict[str, object]) -> tuple[int, set[str]]:
    """Rank and targets of a config that is plain LoRA of one rank and one scale."""
    rank, alpha, targets = config.get("r"), config.get("lora_alpha"), config.get("target_modules")
    if not isinstance(targets, list) or not targets or set(map(str, targets)) - PROJECTIONS:
        raise fault(
            path,
            f"T28: target_modules {targets} are not of the seven projections",
            "train plain LoRA on them",
        )
    saved = config.get("modules_to_save")
    if isinstance(saved, list) and set(map(str, saved)) & set(targets):
        raise fault(path, "T25: a layer is in target_modules and in modules_to_save", "list it once")
    for key, value in config.items():
        if key in FREE or value is None:
            continue
        if key not in PLAIN:
            raise fault(path, f"T09: unknown key {key!r}: a server drops it without a word", "remove it")
        if value not in PLAIN[key]:
            trap = _TRAP_OF.get(key, "T29")
            raise fault(path, f"{trap}: {key} is {value!r}", f"train with {key} {PLAIN[key][0]!r}")
    if not isinstance(rank, int) or rank < 1:
        raise fault(path, f"r is {rank!r}", "train with r 16")
    if not isinstance(alpha, int | float) or alpha <= 0:
        raise fault(
            path, f"T34: lora_alpha is {alpha!r}: the adapter has no effect", "train with lora_alpha 32"
        )
    smallest_max_lora_rank(rank)
    return rank, set(targets)


def _refuse_other_recipe(path: Path, config: dict[str, object], card: AdapterCard) -> None:
    """What scales the weights is as the card's recipe says: PEFT's file is covered by no hash."""
    recipe = card.config.get("lora")
    if not isinstance(recipe, dict):
        return
    for key, name in (("r", "r"), ("lora_alpha", "alpha")):
        if name in recipe and config.get(key) != recipe[name]:
            raise fault(
                path, f"{key} is {config.get(key)}, the card's recipe says {recipe[name]}",
                "restore the file, or train again",
            )  # fmt: skip


def _refuse_other_shape(path: Path, tensors: list[LoraTensor], rank: int, targets: set[str]) -> None:
    for tensor in tensors:
        if tensor.rank != rank:
            raise fault(
                path, f"{tensor.name} has shape {tensor.shape}, r is {rank}", "the files are of two adapters"
            )
    there = {tensor.projection for tensor in tensors}
    if there != targets:
        odd = ", ".join(sorted(there ^ targets))
        raise fault(path, f"weights and target_modules differ in {odd}", "the files are of two adapters")


def _refuse_other_base(path: Path, trained_on: BaseCard, base: BaseCard) -> None:
    for field in ("id", "revision", "config_hash", "tokenizer_hash"):
        here, there = getattr(base, field), getattr(trained_on, field)
        if here != there:
            raise fault(
                path, f"T33: trained on a base with {field} {there}, this one has {here}",
                "same shapes load without a word and answer wrongly: use the base it was trained on",
            )  # fmt: skip
