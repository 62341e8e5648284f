"""What an adapter folder must be before anything loads it; files only, no torch.

The numbers T09 to T33 are the traps of this stack, listed in docs/gpu.md.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

from operators.adapters import WEIGHTS, AdapterCard, BaseCard, read_card, weights_hash
from operators.errors import PreflightError
from operators.prompts import PROMPT_VERSION

PROJECTIONS = frozenset(("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"))
MAX_BYTES = 500 * 2**20
"""A LoRA of rank 16 on a 14B base has 275 MB in float32; more means that whole layers were saved (T23)."""

LEGAL_MAX_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM's --max-lora-rank takes (T31)."""

PLAIN: dict[str, tuple[object, ...]] = {
    "bias": ("none",), "use_dora": (False,), "use_rslora": (False,), "rank_pattern": ({},),
    "alpha_pattern": ({},), "modules_to_save": (None, []), "init_lora_weights": (True,),
    "layer_replication": (None,), "lora_bias": (False,), "alora_invocation_tokens": (None,),
    "use_qalora": (False,), "use_bdlora": (None, False), "loftq_config": ({}, None),
    "fan_in_fan_out": (False,),
    "layers_to_transform": (None,), "layers_pattern": (None,), "trainable_token_indices": (None,),
    "target_parameters": (None, []), "exclude_modules": (None, []), "megatron_config": (None,),
    "eva_config": (None,), "corda_config": (None,), "lora_ga_config": (None,), "arrow_config": (None,),
    "ensure_weight_tying": (False,),
}  # fmt: skip
"""Every feature that a server refuses, ignores or scales differently, with the values that leave it off."""

FREE = frozenset(
    (
        "peft_type", "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision",
        "inference_mode", "r", "lora_alpha", "lora_dropout", "target_modules", "megatron_core",
        "qalora_group_size",
    )
)  # fmt: skip
_FAULT_OF = {"modules_to_save": "T24", "use_rslora": "T30", "rank_pattern": "T30", "alpha_pattern": "T30"}


def verify_adapter(folder: Path, base: BaseCard | None = None) -> AdapterCard:
    """The card of an adapter that is whole, plain LoRA, has an effect, and (if given) belongs to `base`.

    Raises: PreflightError with the first fault, its file and what to do.
    """
    card = read_card(folder)
    if not (folder / WEIGHTS).is_file():
        raise _fault(folder / WEIGHTS, "is missing", "train the adapter again")
    config = _peft_config(folder)
    _check_config(folder, config)
    _check_weights(folder, config)
    if weights_hash(folder) != card.weights_hash:
        raise _fault(folder / WEIGHTS, "is not as it was written", "restore it or train again")
    if card.prompt_version != PROMPT_VERSION:
        raise _fault(
            folder / "adapter.json",
            f"was trained on prompt version {card.prompt_version}, this is {PROMPT_VERSION}",
            "train again, or use the version of latticemind that it was trained with",
        )  # fmt: skip
    if base is not None:
        _check_base(folder, card.base, base)
    return card


def smallest_max_lora_rank(rank: int) -> int:
    """The smallest legal --max-lora-rank for this rank (T31). Raises: PreflightError above 512."""
    for legal in LEGAL_MAX_RANKS:
        if rank <= legal:
            return legal
    raise PreflightError(f"T31: no --max-lora-rank serves rank {rank}", hint="train with r of 512 or less")


def _peft_config(folder: Path) -> dict[str, object]:
    path = folder / "adapter_config.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise _fault(path, f"cannot be read ({fault})"[:200], "train the adapter again") from fault
    if not isinstance(data, dict):
        raise _fault(path, "is no JSON object", "train the adapter again")
    return data


def _check_config(folder: Path, config: dict[str, object]) -> None:
    path = folder / "adapter_config.json"
    targets = config.get("target_modules")
    if not isinstance(targets, list) or not targets or set(targets) - PROJECTIONS:
        raise _fault(
            path,
            f"T28: target_modules {targets} are not of the seven projections",
            "plain LoRA is served only",
        )
    saved = config.get("modules_to_save")
    if isinstance(saved, list) and set(saved) & set(targets):
        raise _fault(path, "T25: a layer is in target_modules and modules_to_save", "list it once")
    for key, value in config.items():
        if key in FREE or value is None:
            continue
        if key not in PLAIN:
            raise _fault(path, f"T09: unknown key {key!r}: a server drops it without a word", "remove it")
        if value not in PLAIN[key]:
            number = _FAULT_OF.get(key, "T29")
            raise _fault(path, f"{number}: {key} is {value!r}", f"train with {key} {PLAIN[key][0]!r}")


def _check_weights(folder: Path, config: dict[str, object]) -> None:
    path = folder / WEIGHTS
    if path.stat().st_size > MAX_BYTES:
        raise _fault(
            path, f"T23: has {path.stat().st_size:,} bytes", "a LoRA holds no embeddings or whole layers"
        )
    header, start = _header(path)
    trained = False
    with path.open("rb") as file:
        for name, entry in header.items():
            module, _, part = name.removesuffix(".weight").rpartition(".")
            if module.rpartition(".")[2] not in PROJECTIONS or part not in ("lora_A", "lora_B"):
                raise _fault(path, f"T28: holds {name}", "train plain LoRA on the seven projections")
            shape, (begin, end) = entry["shape"], entry["data_offsets"]
            if shape[0 if part == "lora_A" else 1] != config.get("r"):
                raise _fault(path, f"{name} has shape {shape}, r is {config.get('r')}", "train again")
            if part == "lora_B" and not trained:
                file.seek(start + begin)
                trained = any(file.read(end - begin))
    if not trained:
        raise _fault(path, "the adapter has no effect: every lora_B is zero", "train it")


def _header(path: Path) -> tuple[dict[str, dict[str, list[int]]], int]:
    """The tensors of a safetensors file and where their bytes begin: 8 bytes of length, then JSON."""
    data = path.read_bytes()
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        header.pop("__metadata__", None)
        ends = [entry["data_offsets"][1] for entry in header.values()]
    except (struct.error, ValueError, KeyError, AttributeError, TypeError) as fault:
        raise _fault(path, "is no safetensors file", "train the adapter again") from fault
    if not ends or 8 + length + max(ends) != len(data):
        raise _fault(path, "is cut short or empty", "copy it again, or train again")
    return header, 8 + length


def _check_base(folder: Path, trained_on: BaseCard, base: BaseCard) -> None:
    for field in ("id", "revision", "config_hash", "tokenizer_hash"):
        here, there = getattr(base, field), getattr(trained_on, field)
        if here != there:
            raise _fault(
                folder / "adapter.json", f"T33: trained on a base with {field} {there}, this one has {here}",
                "same shapes load without a word and answer wrongly: use the base it was trained on",
            )  # fmt: skip


def _fault(path: Path, what: str, hint: str) -> PreflightError:
    return PreflightError(f"{path}: {what}", hint=hint)
