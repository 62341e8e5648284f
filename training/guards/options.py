"""Option names of other tools and of older releases that a recipe must not carry, each with its hint.

One table, read by the guards (which give the id) and by whoever reports an unknown config key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from training.guards.findings import Fault
from training.guards.inspected import Inspected


@dataclass(frozen=True, slots=True)
class ForeignOption:
    """A key that is no field of a train config: the guard it belongs to, and what to do instead."""

    guard: str
    hint: str


_QUANT = "write base.quantization: nf4; the loader builds the BitsAndBytesConfig"
_TRIO = "state base.quantization: nf4, base.compute_dtype and base.double_quant: true"
_LENGTH = "write max_length at the top of the file (tokens, prompt and completion together)"
_GONE = "TrainingArguments lost this in transformers 5; "
_PACKING = "remove it: batching: prefix-tree shares tokens without letting rows see each other"
_MASKS = "remove it: the loss is on the completion of prompt/completion rows"
_NO_NEW_TOKENS = "remove it: the adapter serves only on the base's own vocabulary"
_PLAIN_LORA = "remove it: vLLM serves plain LoRA (bias none, default init) and nothing else"
_ONE_SCALE = "remove it: tools scale such adapters differently; set lora.r and lora.alpha"

OPTIONS: dict[str, ForeignOption] = {
    "load_in_4bit": ForeignOption("T03", _QUANT),
    "load_in_8bit": ForeignOption("T03", _QUANT),
    "quantization_config": ForeignOption("T03", _QUANT),
    "torch_dtype": ForeignOption("T04", "write base.dtype"),
    "model_init_kwargs": ForeignOption("T04", "write base.dtype and base.quantization"),
    "fp16": ForeignOption("T04", "write base.dtype: bfloat16"),
    "bf16": ForeignOption("T04", "write base.dtype: bfloat16"),
    "bnb_4bit_quant_type": ForeignOption("T06", _TRIO),
    "bnb_4bit_compute_dtype": ForeignOption("T06", _TRIO),
    "bnb_4bit_use_double_quant": ForeignOption("T06", _TRIO),
    "warmup_ratio": ForeignOption("T08", _GONE + "write optim.warmup (below 1 it is a share of the steps)"),
    "warmup_steps": ForeignOption("T08", "write optim.warmup (below 1 it is a share of the steps)"),
    "save_safetensors": ForeignOption("T08", _GONE + "remove it: adapters are always safetensors"),
    "group_by_length": ForeignOption("T08", _GONE + "remove it: batching groups rows by length"),
    "evaluation_strategy": ForeignOption("T08", _GONE + "(now eval_strategy) remove it: see `eval loo`"),
    "eval_strategy": ForeignOption("T08", "remove it: `latticemind eval loo` evaluates"),
    "logging_dir": ForeignOption("T08", _GONE + "remove it: the run folder holds the log"),
    "logging_steps": ForeignOption("T08", "write log_every_steps"),
    "save_steps": ForeignOption("T08", "write save_every_steps"),
    "overwrite_output_dir": ForeignOption("T08", _GONE + "remove it: give --out a new folder"),
    "output_dir": ForeignOption("T08", "remove it: give --out on the command line"),
    "tokenizer": ForeignOption("T08", "(now processing_class) remove it: the tokenizer is the base's"),
    "processing_class": ForeignOption("T08", "remove it: the tokenizer is the base's"),
    "per_device_train_batch_size": ForeignOption("T08", "write optim.batch_size"),
    "gradient_accumulation_steps": ForeignOption("T08", "write optim.accumulation"),
    "num_train_epochs": ForeignOption("T08", "write optim.shared.epochs and optim.fold.epochs"),
    "lr_scheduler_type": ForeignOption("T08", "write optim.scheduler"),
    "assistant_only_loss": ForeignOption("T11", _MASKS),
    "completion_only_loss": ForeignOption("T11", _MASKS),
    "dataset_text_field": ForeignOption("T11", _MASKS),
    "truncation_mode": ForeignOption("T13", "remove it: no row is cut; raise max_length"),
    "max_seq_length": ForeignOption("T14", _LENGTH),
    "max_prompt_length": ForeignOption("T14", _LENGTH),
    "use_liger_kernel": ForeignOption("T15", "remove it: liger dropped the masks of assistant tokens"),
    "use_liger": ForeignOption("T15", "remove it: liger dropped the masks of assistant tokens"),
    "packing": ForeignOption("T20", _PACKING),
    "packing_strategy": ForeignOption("T20", _PACKING),
    "eval_packing": ForeignOption("T20", _PACKING),
    "padding_free": ForeignOption("T20", _PACKING),
    "resize_token_embeddings": ForeignOption("T23", _NO_NEW_TOKENS),
    "resize_to_vocab": ForeignOption("T23", _NO_NEW_TOKENS),
    "added_tokens": ForeignOption("T23", _NO_NEW_TOKENS),
    "trainable_token_indices": ForeignOption("T23", _NO_NEW_TOKENS),
    "chat_template_path": ForeignOption("T24", "remove it: it adds tokens and trains lm_head"),
    "modules_to_save": ForeignOption("T24", "remove it: vLLM refuses adapters with whole modules"),
    "use_dora": ForeignOption("T29", _PLAIN_LORA),
    "lora_bias": ForeignOption("T29", _PLAIN_LORA),
    "bias": ForeignOption("T29", _PLAIN_LORA),
    "init_lora_weights": ForeignOption("T29", _PLAIN_LORA),
    "layer_replication": ForeignOption("T29", _PLAIN_LORA),
    "use_qalora": ForeignOption("T29", _PLAIN_LORA),
    "use_bdlora": ForeignOption("T29", _PLAIN_LORA),
    "alora_invocation_tokens": ForeignOption("T29", _PLAIN_LORA),
    "loftq_config": ForeignOption("T29", _PLAIN_LORA),
    "corda_config": ForeignOption("T29", _PLAIN_LORA),
    "eva_config": ForeignOption("T29", _PLAIN_LORA),
    "use_rslora": ForeignOption("T30", _ONE_SCALE),
    "rank_pattern": ForeignOption("T30", _ONE_SCALE),
    "alpha_pattern": ForeignOption("T30", _ONE_SCALE),
    "merge": ForeignOption("T32", "remove it: an adapter is never merged into 4-bit weights"),
    "merge_and_unload": ForeignOption("T32", "remove it: an adapter is never merged into 4-bit weights"),
    "learning_rate": ForeignOption("config", "write optim.shared.learning_rate and optim.fold.learning_rate"),
    "lora_alpha": ForeignOption("config", "write lora.alpha"),
    "lora_dropout": ForeignOption("config", "write lora.dropout"),
}  # fmt: skip


def option_hint(key: str) -> str | None:
    """What to write instead of an option of another tool or release; None for a key that is not known."""
    found = OPTIONS.get(key)
    return found.hint if found else None


def foreign_options(seen: Inspected, guard: str) -> Iterator[Fault]:
    """The recipe's keys that belong to this guard."""
    for key, path in seen.recipe.settings():
        found = OPTIONS.get(key)
        if found is not None and found.guard == guard:
            yield Fault(path, f"`{key}` is no option of a train config", found.hint)


def foreign(guard: str) -> Callable[[Inspected], Iterator[Fault]]:
    """The check of a guard that has nothing but such keys to refuse."""
    return partial(foreign_options, guard=guard)
