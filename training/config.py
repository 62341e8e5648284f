"""The recipe of a training run: every setting that decides the weights is written out, none has a default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from data_builders.examples import TASKS
from operators.schema import FrozenModel

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
Operator = Literal["extract-state", "compare-claims", "update-memory"]
Counts = dict[Operator, Annotated[int, Field(ge=0)]]
Sizes = dict[Operator, Annotated[int, Field(ge=1)]]


class BaseConfig(FrozenModel):
    """The base model: an alias, a hub id or a folder, and how its frozen weights are held."""

    name: str = Field(min_length=1)
    revision: str | None
    dtype: Literal["float32", "bfloat16"]
    quantization: Literal["none", "nf4"]
    compute_dtype: Literal["float32", "bfloat16"]
    double_quant: bool
    attention: Literal["eager", "sdpa", "flash_attention_2"]
    pad_token: str = Field(min_length=1)
    eos_token: str = Field(min_length=1)

    @model_validator(mode="after")
    def _pad_is_not_eos(self) -> BaseConfig:
        if self.pad_token == self.eos_token:
            raise ValueError("pad_token equals eos_token: the model would never learn to stop (T16)")
        return self


class LoraRecipe(FrozenModel):
    """The adapter's shape (paper: r 16, alpha 32, all attention and MLP projections)."""

    r: int = Field(ge=1)
    alpha: int = Field(ge=1)
    dropout: float = Field(ge=0, lt=1)
    target_modules: tuple[str, ...] = Field(min_length=1)


class StageConfig(FrozenModel):
    """One stage's optimisation: its peak learning rate and passes over the rows."""

    learning_rate: float = Field(gt=0)
    epochs: float = Field(gt=0)


class OptimConfig(FrozenModel):
    """batch_size counts cases (a note with all its rows, or one compare or update row) of one forward pass.

    One optimizer step takes batch_size times accumulation cases. Its loss is the mean over their rows, each
    row's own mean weighed by its number of labelled tokens to the power `length_power`: 1 is the usual mean
    over tokens, at 0 a select row's one word counts as much as a long fill answer.
    `warmup` below 1 is a share of the steps.
    """

    length_power: float = Field(ge=0, le=1)
    shared: StageConfig
    fold: StageConfig
    batch_size: Sizes
    accumulation: Sizes
    optimizer: Literal["adamw_torch", "paged_adamw_8bit"]
    scheduler: Literal["cosine", "linear", "constant"]
    warmup: float = Field(ge=0)
    weight_decay: float = Field(ge=0)
    max_grad_norm: float = Field(gt=0)
    seed: int = Field(ge=0)


class Mixture(FrozenModel):
    """At most how many cases of each operator come from which source, in each stage (drawn by the seed)."""

    shared: dict[Literal["synthetic", "mined"], Counts]
    fold: dict[Literal["trajectory", "synthetic", "mined"], Counts]


class TrainConfig(FrozenModel):
    """A recipe. `tasks` names what each operator's adapter is trained to answer.

    `batching` prefix-tree runs what rows share once and is exact; `pack_tokens` bounds one packed sequence.
    `autocast` true computes products in bfloat16; native does so where the machine has them in hardware.
    `mode` shared-first trains the rows that hold no trajectory once and continues each fold from there.
    """

    base: BaseConfig
    lora: LoraRecipe
    tasks: dict[Operator, tuple[str, ...]]
    mixture: Mixture
    optim: OptimConfig
    max_length: int = Field(ge=16)
    batching: Literal["prefix-tree", "padded"]
    pack_tokens: int = Field(ge=16)
    autocast: bool | Literal["native"]
    gradient_checkpointing: bool
    mode: Literal["shared-first", "from-scratch"]
    multi_task: bool
    threads: int | None = Field(ge=1)
    save_every_steps: int = Field(ge=1)
    log_every_steps: int = Field(ge=1)
    report_to: Literal["none", "tensorboard", "trackio"]

    @model_validator(mode="after")
    def _tasks_are_the_operators(self) -> TrainConfig:
        for operator, tasks in self.tasks.items():
            foreign = sorted(set(tasks) - set(TASKS[operator]))
            if foreign or not tasks:
                raise ValueError(f"{operator} has the tasks {', '.join(TASKS[operator])}, not {foreign}")
        return self

    @model_validator(mode="after")
    def _every_operator_has_a_step(self) -> TrainConfig:
        for name, sizes in (("batch_size", self.optim.batch_size), ("accumulation", self.optim.accumulation)):
            missing = sorted(set(self.tasks) - set(sizes))
            if missing:
                raise ValueError(f"optim.{name} does not say it for {missing[0]}")
        return self
