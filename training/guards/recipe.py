"""Guards on the recipe: what a train config must state, and what it must not ask for."""

from __future__ import annotations

from collections.abc import Iterator

from operators.adapter_checks import LEGAL_MAX_RANKS
from training.config import PROJECTIONS
from training.guards.findings import Fault
from training.guards.inspected import Inspected
from training.guards.options import foreign_options


def dtype_is_stated(seen: Inspected) -> Iterator[Fault]:
    yield from foreign_options(seen, "T04")
    dtype = seen.recipe.text("base.dtype")
    if dtype not in ("float32", "bfloat16"):
        said = f"base.dtype is {dtype!r}" if dtype else "no base.dtype is stated"
        yield Fault("base.dtype", said, "write bfloat16 (GPU) or float32 (CPU): libraries' defaults differ")


def nf4_is_complete(seen: Inspected) -> Iterator[Fault]:
    """NF4, double quantisation, and products in bfloat16 (or in float32 where the rest is float32 too)."""
    yield from foreign_options(seen, "T06")
    recipe = seen.recipe
    kind = recipe.text("base.quantization")
    if kind == "none":
        return
    if kind != "nf4":
        said = f"base.quantization is {kind!r}" if kind else "no base.quantization is stated"
        yield Fault("base.quantization", said, "write nf4, or none; bitsandbytes' own default is fp4")
        return
    if recipe.text("base.double_quant") != "true":
        yield Fault("base.double_quant", "NF4 without double quantisation", "write double_quant: true")
    compute = recipe.text("base.compute_dtype")
    if compute != "bfloat16" and (compute is None or compute != recipe.text("base.dtype")):
        yield Fault(
            "base.compute_dtype",
            f"NF4 computes in {compute or 'the default of bitsandbytes (float32)'}, not in bfloat16",
            "write compute_dtype: bfloat16",
        )


def max_length_is_stated(seen: Inspected) -> Iterator[Fault]:
    yield from foreign_options(seen, "T14")
    stated = seen.recipe.text("max_length")
    if stated is None or not stated.isdigit() or int(stated) < 1:
        hint = "write max_length: tokens of prompt and completion; libraries default to 1024"
        yield Fault("max_length", f"max_length is {stated or 'not stated'}", hint)


def pad_is_not_eos(seen: Inspected) -> Iterator[Fault]:
    pad, eos = seen.recipe.get("base.pad_token"), seen.recipe.get("base.eos_token")
    for name, value in (("pad_token", pad), ("eos_token", eos)):
        if value is None:
            hint = "Qwen2.5: pad_token: <|endoftext|>, eos_token: <|im_end|>"
            yield Fault(f"base.{name}", f"no base.{name} is stated", hint)
    if pad is not None and pad == eos:
        yield Fault(
            "base.pad_token", f"pad and end of turn are both {pad}: the model would never learn to stop",
            "use another token of the base for padding, such as <|endoftext|>",
        )  # fmt: skip


def rows_do_not_see_each_other(seen: Inspected) -> Iterator[Fault]:
    """No packing, and no kernel that ignores the tree mask (FlashAttention takes none)."""
    yield from foreign_options(seen, "T20")
    attention = seen.recipe.text("base.attention") or ""
    if seen.recipe.text("batching") == "prefix-tree" and attention.startswith("flash"):
        yield Fault(
            "base.attention", f"{attention} ignores the mask that keeps the rows of a pack apart",
            "write base.attention: sdpa, or batching: padded",
        )  # fmt: skip


def no_layer_twice(seen: Inspected) -> Iterator[Fault]:
    """A layer that is adapted and saved whole, or listed twice."""
    targets = _names(seen.recipe.get("lora.target_modules"))
    saved = _names(seen.recipe.get("lora.modules_to_save"))
    for name in sorted(set(targets) & set(saved)):
        yield Fault("lora.target_modules", f"{name} is adapted and saved whole", "list it once, as a target")
    for name in sorted({name for name in targets if targets.count(name) > 1}):
        yield Fault("lora.target_modules", f"{name} stands twice", "list it once")


def targets_can_be_served(seen: Inspected) -> Iterator[Fault]:
    targets = _names(seen.recipe.get("lora.target_modules"))
    hint = f"adapt the projections: {', '.join(PROJECTIONS)}"
    if not targets:
        yield Fault("lora.target_modules", "no layers are named", hint)
    for name in targets:
        if name not in PROJECTIONS:
            yield Fault("lora.target_modules", f"{name} is no projection that can be served", hint)


def rank_can_be_served(seen: Inspected) -> Iterator[Fault]:
    rank = seen.recipe.text("lora.r")
    if rank is None or not rank.isdigit() or int(rank) < 1:
        yield Fault("lora.r", f"the rank is {rank or 'not stated'}", "write lora.r: 16")
    elif int(rank) > LEGAL_MAX_RANKS[-1]:
        hint = f"at most {LEGAL_MAX_RANKS[-1]}: vLLM's --max-lora-rank goes no further"
        yield Fault("lora.r", f"no server takes rank {rank}", hint)


def _names(value: object) -> list[str]:
    """A list of names; a single one (PEFT's `all-linear`) counts as a list of itself."""
    if value is None:
        return []
    return (
        [value]
        if isinstance(value, str)
        else [str(name) for name in value]
        if isinstance(value, list | tuple)
        else []
    )
