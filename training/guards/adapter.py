"""Guards on an adapter's folder. What is plain LoRA is said once, in operators/adapter_checks.py.

`verify_adapter` stops at the first fault; here its tables are gone through to the end, and it is asked last
(`verified`) for what no table holds: damage, another prompt version, weights without effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from operators.adapter_checks import FREE, LEGAL_MAX_RANKS, PEFT_CONFIG, PLAIN, verify_adapter
from operators.adapter_weights import read_header
from operators.adapters import CARD, WEIGHTS
from operators.errors import PreflightError
from operators.models.bases import hub_id_of
from training.config import PROJECTIONS
from training.guards.findings import Fault, Finding
from training.guards.inspected import Inspected

_WHOLE = ("modules_to_save",)
_SCALE = ("use_rslora", "rank_pattern", "alpha_pattern")
_NUMBER = re.compile(r"(T\d\d): ")


def config_keys_are_known(seen: Inspected) -> Iterator[Fault]:
    """Keys beyond peft's that are not null: newer PEFT and vLLM drop them silently, older PEFT fails."""
    if not seen.adapter:
        return
    for key, value in sorted(seen.adapter.config.items()):
        if key not in PLAIN and key not in FREE and value is not None:
            yield Fault(
                f"{seen.adapter.folder / PEFT_CONFIG} [{key}]", "a key that loaders drop without a word",
                "save the adapter with the peft that serves it (>=0.21), or remove a key without effect",
            )  # fmt: skip


def adapter_is_small(seen: Inspected) -> Iterator[Fault]:
    """Weights below 500 MB: resized embeddings saved along make an adapter huge."""
    yield from _weights(seen, "T23")


def adapter_saves_no_module(seen: Inspected) -> Iterator[Fault]:
    yield from _not_plain(
        seen, _WHOLE, "train again without modules_to_save and without chat_template_path: vLLM refuses both"
    )


def adapter_lists_no_layer_twice(seen: Inspected) -> Iterator[Fault]:
    if not seen.adapter:
        return
    config = seen.adapter.config
    for name in sorted(_names(config.get("target_modules")) & _names(config.get("modules_to_save"))):
        yield Fault(
            str(seen.adapter.folder / PEFT_CONFIG), f"{name} is adapted and saved whole",
            "train again with it listed once",
        )  # fmt: skip


def tensors_are_lora_only(seen: Inspected) -> Iterator[Fault]:
    """Every target is one of the seven projections, every tensor a LoRA A or B of one."""
    if not seen.adapter:
        return
    targets = seen.adapter.config.get("target_modules")
    if not _names(targets) or _names(targets) - set(PROJECTIONS):
        yield Fault(
            f"{seen.adapter.folder / PEFT_CONFIG} [target_modules]", f"targets {targets}",
            f"adapt only {', '.join(PROJECTIONS)}; embeddings and the head cannot be served",
        )  # fmt: skip
    yield from _weights(seen, "T28")


def adapter_is_plain_lora(seen: Inspected) -> Iterator[Fault]:
    yield from _not_plain(
        seen, PLAIN.keys() - {*_WHOLE, *_SCALE},
        "vLLM serves plain LoRA: bias none, default init, none of the variants",
    )  # fmt: skip


def adapter_has_one_scale(seen: Inspected) -> Iterator[Fault]:
    yield from _not_plain(seen, _SCALE, "train with one r and one alpha: tools scale the rest differently")


def adapter_rank_can_be_served(seen: Inspected) -> Iterator[Fault]:
    """Some --max-lora-rank takes the rank."""
    if not seen.adapter:
        return
    rank = seen.adapter.config.get("r")
    if not isinstance(rank, int) or not 1 <= rank <= LEGAL_MAX_RANKS[-1]:
        hint = f"1 to {LEGAL_MAX_RANKS[-1]}; train with r: 16"
        yield Fault(f"{seen.adapter.folder / PEFT_CONFIG} [r]", f"no server takes rank {rank!r}", hint)


def nothing_was_merged_into_4_bits(seen: Inspected) -> Iterator[Fault]:
    merged = seen.adapter.merged.get("quantization_config") if seen.adapter else None
    if seen.adapter and merged and (merged.get("load_in_4bit") or merged.get("bits") == 4):
        yield Fault(
            str(seen.adapter.folder / "config.json"), "an adapter merged into a 4-bit base is rounded away",
            "serve base and adapter apart, or merge into the bf16 base",
        )  # fmt: skip


def adapter_is_of_this_base(seen: Inspected) -> Iterator[Fault]:
    """adapter.json's base is the one at hand: id, revision, config hash, tokenizer hash."""
    if not seen.adapter:
        return
    recorded, where = seen.adapter.card.get("base"), str(seen.adapter.folder / CARD)
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


def verified(seen: Inspected) -> list[Finding]:
    """What `verify_adapter` refuses first, by its number, else as `adapter`; none for a sound one."""
    if not seen.adapter:
        return []
    folder = seen.adapter.folder
    return [
        Finding(number or "adapter", fault.where, fault.message, fault.hint)
        for number, fault in _refusals(folder, lambda: verify_adapter(folder))
    ]


def _recipe_base(seen: Inspected) -> dict[str, str]:
    """What the recipe alone says of the base, when its files are not at hand."""
    name, revision = seen.recipe.get("base.name"), seen.recipe.get("base.revision")
    found = {"id": hub_id_of(str(name)) if name is not None else None, "revision": revision}
    return {key: str(value) for key, value in found.items() if value is not None}


def _not_plain(seen: Inspected, keys: Collection[str], hint: str) -> Iterator[Fault]:
    config = seen.adapter.config if seen.adapter else {}
    for key in sorted(keys & config.keys()):
        if seen.adapter and config[key] is not None and config[key] not in PLAIN[key]:
            yield Fault(f"{seen.adapter.folder / PEFT_CONFIG} [{key}]", f"{key} is {config[key]!r}", hint)


def _weights(seen: Inspected, guard: str) -> Iterator[Fault]:
    """What the weight file's header is refused for, if that is this guard's."""
    if not seen.adapter:
        return
    folder = seen.adapter.folder
    for number, fault in _refusals(folder, lambda: read_header(folder / WEIGHTS)):
        if number == guard:
            yield fault


def _refusals(folder: Path, check: Callable[[], object]) -> Iterator[tuple[str | None, Fault]]:
    """The refusal of a check of operators/, if it refuses, with the number it names."""
    try:
        check()
    except PreflightError as refused:
        text, where = str(refused), str(folder)
        for name in (CARD, PEFT_CONFIG, WEIGHTS):
            if text.startswith(f"{folder / name}: "):
                text, where = text.removeprefix(f"{folder / name}: "), str(folder / name)
        number = _NUMBER.match(text)
        yield (
            number[1] if number else None,
            Fault(where, _NUMBER.sub("", text, count=1), refused.hint or "train it again"),
        )


def _names(value: object) -> set[str]:
    """A list's names; PEFT's `all-linear` is a name of its own."""
    return {value} if isinstance(value, str) else set(map(str, value)) if isinstance(value, list) else set()
