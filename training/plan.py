"""`latticemind train --dry-run`: what a training will cost, from the base's shape and the rows' token counts.

No weights are needed: parameters are counted on the meta device. The formulas are in `training/costs.py` and,
with their sources, in docs/gpu.md; what is assumed and not measured is marked so in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table

from operators.errors import InputError
from training.config import TrainConfig
from training.costs import UTILISATION, Method, logit_bytes, memory_parts, seconds
from training.gpus import Gpu, find_gpu
from training.shapes import Shape, measure_shape, published_config
from training.workload import Workload

GIB = 2**30
HEADROOM = 0.95
"""Share of a GPU's memory that a plan may fill and still be said to fit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Predicted cost of a run's trainings, one after another on one GPU.

    `memory` is bytes by part at the peak; `seconds` goes with `workloads`. `alternative` is the time of the
    same adapters in the other mode (each fold from scratch), None where it was not asked for.
    `logits_everywhere` is what logits would take if the head ran at every token.
    """

    base: str
    gpu: Gpu
    shape: Shape
    workloads: tuple[Workload, ...]
    memory: dict[str, float]
    logits_everywhere: float
    seconds: tuple[float, ...]
    alternative: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def peak_bytes(self) -> float:
        return sum(self.memory.values())

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds)

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= HEADROOM * self.gpu.memory_gib * GIB


def describe(
    config: TrainConfig,
    workloads: Sequence[Workload],
    gpu: str,
    *,
    from_scratch: Sequence[Workload] = (),
    notes: Sequence[str] = (),
) -> Plan:
    """The plan of these trainings on a named GPU.

    `from_scratch`: the trainings of the other mode, to show what the shared first stage saves.
    Raises: ConfigError for a GPU or a base whose figures are not known, InputError for no trainings.
    """
    device = find_gpu(gpu)
    shape = measure_shape(
        published_config(config.base.name), rank=config.lora.r, targets=config.lora.target_modules
    )
    method = method_of(config)
    memory = [memory_parts(shape, method, work) for work in workloads]
    if not memory:
        raise InputError("nothing to train", hint="see `mixture` in the config, and the data folder")
    return Plan(
        base=config.base.name,
        gpu=device,
        shape=shape,
        workloads=tuple(workloads),
        memory=max(memory, key=lambda parts: sum(parts.values())),
        logits_everywhere=logit_bytes(shape, method, max(work.largest_batch for work in workloads)),
        seconds=tuple(seconds(shape, method, work, device) for work in workloads),
        alternative=sum(seconds(shape, method, work, device) for work in from_scratch) or None,
        notes=tuple(notes),
    )


def method_of(config: TrainConfig) -> Method:
    """What of a recipe decides its cost."""
    return Method(
        nf4=config.base.quantization == "nf4",
        bf16=config.base.dtype == "bfloat16",
        autocast=config.autocast is not False,  # every GPU that has figures has bfloat16
        checkpointing=config.gradient_checkpointing,
        tree=config.batching == "prefix-tree",
        eager=config.base.attention == "eager",
        paged_8bit=config.optim.optimizer == "paged_adamw_8bit",
    )


def plan_table(plan: Plan) -> Group:
    """The plan for people: parameters, trainings, memory by part, time."""
    shape = plan.shape
    head = (
        f"{plan.base}: {shape.projections + shape.others:,} parameters, {shape.adapter:,} trainable "
        f"(LoRA r={shape.rank}); predicted for one {plan.gpu.name}"
    )
    return Group(head, _trainings(plan), _memory(plan), *_closing(plan))


def _trainings(plan: Plan) -> Table:
    table = Table(title="Trainings")
    table.add_column("training")
    for name in ("rows", "epochs", "steps", "tokens", "run", "labelled", "minutes"):
        table.add_column(name, justify="right")
    for work, time in zip(plan.workloads, plan.seconds, strict=True):
        table.add_row(
            work.name, f"{work.rows:,}", f"{work.epochs:g}", f"{work.steps:,}", f"{work.row_tokens:,}",
            f"{work.run_tokens:,}", f"{work.targets:,}", f"{time / 60:,.1f}",
        )  # fmt: skip
    table.add_section()
    works = plan.workloads
    table.add_row(
        "all", f"{sum(w.rows for w in works):,}", "", f"{sum(w.steps for w in works):,}",
        f"{sum(w.row_tokens for w in works):,}", f"{sum(w.run_tokens for w in works):,}",
        f"{sum(w.targets for w in works):,}", f"{plan.total_seconds / 60:,.1f}",
    )  # fmt: skip
    return table


def _memory(plan: Plan) -> Table:
    table = Table(title="Peak memory by part, GiB")
    table.add_column("part")
    table.add_column("GiB", justify="right")
    for part, size in plan.memory.items():
        table.add_row(part, f"{size / GIB:,.2f}")
    table.add_section()
    verdict = "fits" if plan.fits else "does NOT fit"
    table.add_row(f"peak; {verdict} in {plan.gpu.memory_gib:g} GiB", f"{plan.peak_bytes / GIB:,.2f}")
    return table


def _closing(plan: Plan) -> list[str]:
    """What the tables leave open: the saving, the logits that are not computed, the assumptions."""
    lines = [
        f"time: {_hours(plan.total_seconds)} on one {plan.gpu.name} at an assumed {UTILISATION:.0%} of its "
        f"{plan.gpu.bf16_tflops:g} dense bf16 TFLOP/s, without loading and evaluation",
        f"logits at every token instead of labelled ones would take {plan.logits_everywhere / GIB:,.2f} GiB",
    ]
    if plan.alternative is not None:
        lines.append(
            f"each fold from scratch: {_hours(plan.alternative)}, "
            f"{plan.alternative / plan.total_seconds:.1f} times as long"
        )
    return lines + list(plan.notes)


def _hours(time: float) -> str:
    return f"{time / 3600:,.2f} h" if time >= 3600 else f"{time / 60:,.1f} min"
