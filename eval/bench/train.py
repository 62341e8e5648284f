"""Training speed against a plain TRL script on the same rows, settings and machine, in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, PrinterCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from operators.models.bases import FoundBase
from training.config import TrainConfig
from training.folds import Job, selection_of
from training.rows import Case, DataFolder, tokenise
from training.trainer import (
    attach,
    autocasts,
    detach,
    load_base,
    load_tokenizer,
    quantization_of,
    train_adapter,
)

Progress = Callable[[str], None]
PLAIN_BATCH = 8
"""Rows of one padded batch of the plain script, TRL's default."""


@dataclass(frozen=True, slots=True)
class TrainBench:
    """Row tokens a second of ours and of the plain script; a row's tokens count in every pass, shared or not.

    `single` is one adapter, loading the base not counted; `folds` is all of a run, loading counted.
    """

    rows: int
    row_tokens: int
    single_ours: float
    single_plain: float
    folds: int
    folds_ours: float
    folds_plain: float

    @property
    def single_ratio(self) -> float:
        return self.single_ours / self.single_plain

    @property
    def folds_ratio(self) -> float:
        return self.folds_ours / self.folds_plain


def run_train_bench(
    config: TrainConfig,
    data: DataFolder,
    base: FoundBase,
    *,
    operator: str,
    cases: int,
    folds: int,
    progress: Progress = lambda _: None,
) -> TrainBench:
    """Train `cases` cases of an operator's fold rows both ways, then `folds` adapters both ways.

    The plain script is TRL's own: prompt and completion messages, padded batches, its loss, and one load of
    the base for each training; it takes about as many rows a step as ours.
    """
    holdouts = list(data.splits)[:folds]
    config = config.model_copy(update={"mode": "from-scratch"})
    chosen = {
        holdout: selection_of(Job(operator, holdout, "single"), config, data).cases[:cases]
        for holdout in holdouts
    }
    examples = {h: [row for case in found for row in case.examples] for h, found in chosen.items()}
    tokenizer = load_tokenizer(base.path, config)
    counted = [
        sum(len(row.ids) for row in tokenise(tokenizer, rows, max_length=config.max_length))
        for rows in examples.values()
    ]
    ours, plain = _Clock(), _Clock()
    for number, holdout in enumerate(holdouts):
        progress(f"adapter {number + 1} of {len(holdouts)}")
        plain.run(lambda clock, cases=chosen[holdout]: _plain(config, base, operator, cases, clock))  # type: ignore[misc]
        if number == 0:
            ours.run(lambda clock: _ours(config, base, operator, list(chosen.values()), clock))
    passes = config.optim.fold.epochs
    return TrainBench(
        rows=len(examples[holdouts[0]]),
        row_tokens=counted[0],
        single_ours=passes * counted[0] / ours.trainings[0],
        single_plain=passes * counted[0] / plain.trainings[0],
        folds=len(holdouts),
        folds_ours=passes * sum(counted) / ours.total,
        folds_plain=passes * sum(counted) / plain.total,
    )


@dataclass(slots=True)
class _Clock:
    """Seconds of each training by itself, and of everything."""

    trainings: list[float] = field(default_factory=list)
    total: float = 0.0

    def run(self, work: Callable[[_Clock], None]) -> None:
        began = time.perf_counter()
        work(self)
        self.total += time.perf_counter() - began


def _ours(
    config: TrainConfig, base: FoundBase, operator: str, chosen: Sequence[Sequence[Case]], clock: _Clock
) -> None:
    """One load of the base for all adapters, as training.folds does it."""
    loaded = load_base(base.path, config)
    for cases in chosen:
        rows = [tokenise(loaded.tokenizer, case.examples, max_length=config.max_length) for case in cases]
        model = attach(loaded, config, None)
        with TemporaryDirectory() as scratch:
            began = time.perf_counter()
            train_adapter(
                loaded, model, rows, config, config.optim.fold,
                batch_size=config.optim.batch_size[operator],  # type: ignore[index]
                accumulation=config.optim.accumulation[operator],  # type: ignore[index]
                work=Path(scratch) / "work", log=Path(scratch) / "log",
            )  # fmt: skip
            clock.trainings.append(time.perf_counter() - began)
        detach(model)


def _plain(config: TrainConfig, base: FoundBase, operator: str, cases: Sequence[Case], clock: _Clock) -> None:
    """What TRL's own documentation would have one write, with the same settings."""
    model = AutoModelForCausalLM.from_pretrained(
        base.path, dtype=getattr(torch, config.base.dtype), attn_implementation="sdpa",
        quantization_config=quantization_of(config),
    )  # fmt: skip
    rows = [
        {"prompt": list(row.prompt), "completion": list(row.completion)}
        for case in cases
        for row in case.examples
    ]
    cases_a_step = config.optim.batch_size[operator] * config.optim.accumulation[operator]  # type: ignore[index]
    rows_a_step = min(len(rows), round(len(rows) / len(cases) * cases_a_step))
    batch = min(PLAIN_BATCH, rows_a_step)
    with TemporaryDirectory() as scratch:
        trainer = SFTTrainer(
            model=model,
            args=SFTConfig(
                output_dir=scratch, num_train_epochs=config.optim.fold.epochs,
                learning_rate=config.optim.fold.learning_rate, per_device_train_batch_size=batch,
                gradient_accumulation_steps=round(rows_a_step / batch),
                max_length=config.max_length, packing=False, completion_only_loss=True,
                bf16=autocasts(config), use_cpu=not torch.cuda.is_available(), seed=config.optim.seed,
                save_strategy="no", report_to="none", disable_tqdm=True, logging_strategy="no",
                gradient_checkpointing=config.gradient_checkpointing,
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=load_tokenizer(base.path, config),
            peft_config=LoraConfig(
                r=config.lora.r, lora_alpha=config.lora.alpha, lora_dropout=config.lora.dropout,
                target_modules=list(config.lora.target_modules), bias="none", task_type="CAUSAL_LM",
            ),
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)  # standard output is the benchmark's
        began = time.perf_counter()
        trainer.train()
        clock.trainings.append(time.perf_counter() - began)
