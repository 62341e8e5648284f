"""TRL's trainer over packs: one loss a step, the head run only where there is a target."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.trainer.sft_trainer import SFTTrainer

from operators.errors import TrainingError
from operators.models.local.prefix_tree import Pack, mask_for, target_logits
from training.checkpoints import Tally, seal
from training.collate import row_weights

Progress = Callable[[str], None]


class PackTrainer(SFTTrainer):
    """TRL's SFTTrainer over packs; the loss is a weighted mean over the step's rows."""

    autocast: bool = False
    length_power: float = 1.0
    row_tokens: int = 0
    run_tokens: int = 0
    before: Tally = Tally()
    began: float = 0.0

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """The packs' weighed cross-entropy over the weight of all rows in the whole optimizer step.

        Times the number of processes, as their gradients are averaged and the rows are those of all.
        """
        if return_outputs or num_items_in_batch is None:
            raise TrainingError("a pack has a loss only within a training step")
        losses = [self._summed(model, pack) for pack in inputs["packs"]]
        share = num_items_in_batch / int(self.accelerator.num_processes)
        return torch.stack(losses).sum() / share

    def tally(self) -> Tally:
        """What all processes have run so far; every process has to ask."""
        mine = torch.tensor([self.row_tokens, self.run_tokens], device=self.args.device)
        rows, runs = (int(count) for count in self.accelerator.reduce(mine, reduction="sum"))
        return Tally(
            row_tokens=self.before.row_tokens + rows,
            run_tokens=self.before.run_tokens + runs,
            seconds=self.before.seconds + time.perf_counter() - self.began,
        )

    def _summed(self, model: nn.Module, pack: Pack) -> Tensor:
        pack = pack.to(self.args.device)
        self.row_tokens += pack.row_tokens
        self.run_tokens += pack.input_ids.numel()
        with self._precision():
            logits = _synchronised(model, pack) if _is_wrapped(model) else target_logits(model, pack)
        losses = nn.functional.cross_entropy(logits.float(), pack.targets, reduction="none")
        counts, weights = row_weights(pack, self.length_power)
        return (losses * (weights / counts)[pack.rows]).sum()

    def _precision(self) -> AbstractContextManager[Any]:
        if not self.autocast:
            return nullcontext()
        return torch.autocast(self.args.device.type, torch.bfloat16)


def _is_wrapped(model: nn.Module) -> bool:
    return isinstance(model, nn.parallel.DistributedDataParallel)


def _synchronised(model: nn.Module, pack: Pack) -> Tensor:
    """[M, vocabulary]: as `target_logits`, through the wrapper that averages gradients over processes."""
    length, causal = pack.input_ids.shape[1], model.get_submodule("module")
    places, at = (pack.sources % length).unique(return_inverse=True)
    logits: Tensor = model(
        input_ids=pack.input_ids,
        position_ids=pack.position_ids,
        attention_mask=mask_for(causal, pack.attention_mask),
        use_cache=False,
        logits_to_keep=places,
    ).logits
    return logits[pack.sources // length, at]


class Watch(TrainerCallback):
    """Tells where the training stands each time the trainer logs, and seals its checkpoints."""

    def __init__(self, trainer: PackTrainer, progress: Progress) -> None:
        self.trainer, self.progress = trainer, progress

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002 - the callback's signature
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **kwargs: Any,
    ) -> None:
        loss = kwargs["logs"].get("loss")
        if loss is not None:
            if not math.isfinite(float(loss)):
                raise TrainingError(
                    f"the loss is {loss} at step {state.global_step}", hint="lower the learning rate"
                )
            speed = self.trainer.row_tokens / (time.perf_counter() - self.trainer.began)
            self.progress(
                f"step {state.global_step}/{state.max_steps}, loss {float(loss):.3f}, "
                f"{speed:,.0f} row tokens/s"
            )

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """The last step is logged whatever the interval: its loss too has to be a number."""
        control.should_log |= state.global_step >= state.max_steps

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        tally = self.trainer.tally()
        if state.is_world_process_zero:
            seal(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}", tally)
