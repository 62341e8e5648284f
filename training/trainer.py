"""One adapter on one base: TRL's trainer over packs, with the head only where there is a target."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
)
from transformers.integrations.integration_utils import TensorBoardCallback
from trl.trainer.sft_config import SFTConfig

from operators.errors import ConfigError, TrainingError
from operators.models.local.precision import has_bf16
from operators.models.local.prefix_tree import TokenRow
from training.checkpoints import newest_whole
from training.collate import PaddedCollator, PrefixTreeCollator, feature_of
from training.config import StageConfig, TrainConfig
from training.pack_trainer import PackTrainer, Progress, Watch


@dataclass(frozen=True, slots=True)
class Loaded:
    """A base with its tokenizer; adapters come and go on it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training came to: losses are means over labelled tokens, `dtype` is the adapter's.

    `products` is the type in which the model multiplied.
    """

    steps: int
    first_loss: float
    last_loss: float
    row_tokens: int
    run_tokens: int
    seconds: float
    dtype: str
    products: str


def load_tokenizer(path: Path, config: TrainConfig) -> PreTrainedTokenizerBase:
    """The base's tokenizer with the recipe's pad and end-of-turn tokens; none is added.

    Raises: TrainingError for a token that the vocabulary lacks.
    """
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path)
    known = tokenizer.get_vocab()
    for name in (config.base.pad_token, config.base.eos_token):
        if name not in known:
            raise TrainingError(
                f"the base has no token {name!r}", hint="see base.pad_token and base.eos_token"
            )
    tokenizer.pad_token, tokenizer.eos_token = config.base.pad_token, config.base.eos_token
    return tokenizer


def quantization_of(config: TrainConfig) -> BitsAndBytesConfig | None:
    """How the recipe's base is quantised, if it is: type, compute dtype and double quantisation explicit."""
    if config.base.quantization == "none":
        return None
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=config.base.quantization,
        bnb_4bit_compute_dtype=getattr(torch, config.base.compute_dtype),
        bnb_4bit_use_double_quant=config.base.double_quant,
    )


def load_base(path: Path, config: TrainConfig) -> Loaded:
    """The base as the recipe wants it held: dtype, attention, quantisation are all explicit (T03 to T06)."""
    quantization = quantization_of(config)
    model = AutoModelForCausalLM.from_pretrained(
        path,
        dtype=getattr(torch, config.base.dtype),
        attn_implementation=config.base.attention,
        quantization_config=quantization,
        device_map={"": local_rank()} if torch.cuda.is_available() else None,
    )
    tokenizer = load_tokenizer(path, config)
    model.config.pad_token_id = tokenizer.pad_token_id
    model.config.use_cache = False
    if quantization is not None:
        prepare_model_for_kbit_training(model, use_gradient_checkpointing=config.gradient_checkpointing)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return Loaded(model, tokenizer)


def attach(loaded: Loaded, config: TrainConfig, parent: Path | None) -> PeftModel:
    """A trainable adapter on the base: a new one, or one that goes on from `parent`'s weights."""
    if parent is not None:
        model = PeftModel.from_pretrained(loaded.model, parent, is_trainable=True)
        _name_base(
            model, str(loaded.model.config._name_or_path)
        )  # checkpoints then look here, not on the hub
        return model
    torch.manual_seed(config.optim.seed)
    recipe = LoraConfig(
        r=config.lora.r,
        lora_alpha=config.lora.alpha,
        lora_dropout=config.lora.dropout,
        target_modules=list(config.lora.target_modules),
        bias="none",
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(loaded.model, recipe)
    assert isinstance(model, PeftModel)
    return model


def save(model: PeftModel, folder: Path, *, base_id: str) -> None:
    """The adapter's PEFT files, which name the base by its id: where it lies is this machine's affair."""
    _name_base(model, base_id)
    model.save_pretrained(str(folder), save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # a form to fill in, with the base's path in it


def _name_base(model: PeftModel, name: str) -> None:
    for settings in model.peft_config.values():
        settings.base_model_name_or_path = name


def detach(model: PeftModel) -> None:
    """Take the adapter off the base again, which stays as it was loaded."""
    model.unload()


def local_rank() -> int:
    """This process's place on its machine, from 0; `accelerate launch` starts one for each GPU."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def is_first() -> bool:
    """Whether this process is the one that writes: the only one, or the first of `accelerate launch`."""
    return os.environ.get("RANK", "0") == "0"


def wait() -> None:
    """Until every process is here."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()


def train_adapter(
    loaded: Loaded,
    model: PeftModel,
    cases: Sequence[Sequence[TokenRow]],
    config: TrainConfig,
    stage: StageConfig,
    *,
    batch_size: int,
    accumulation: int,
    work: Path,
    log: Path,
    board: Path | None = None,
    progress: Progress = lambda _: None,
) -> Trained:
    """Train the model's active adapter on the cases; the last whole checkpoint under `work` is continued.

    `log` gets one JSON line each `log_every_steps` and for the last step, `board` what TensorBoard shows
    (None: beside the checkpoints), and `progress` hears step, loss and speed.
    Raises: TrainingError when nothing is trainable, or the loss or the weights are no numbers.
    """
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if count == 0:
        raise TrainingError("the adapter has no trainable parameter (T26)")
    collator = (
        PrefixTreeCollator(config.pack_tokens, config.optim.length_power)
        if config.batching == "prefix-tree"
        else PaddedCollator(_pad_id(loaded.tokenizer), config.optim.length_power)
    )
    trainer = PackTrainer(
        model=model,
        args=_arguments(config, stage, batch_size, accumulation, work),
        train_dataset=Dataset.from_list([dict(feature_of(rows)) for rows in cases]),
        data_collator=collator,  # type: ignore[arg-type]
        processing_class=loaded.tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    if config.report_to == "tensorboard" and is_first():
        trainer.add_callback(_board_in(board or work / "tensorboard"))
    trainer.add_callback(Watch(trainer, progress))
    trainer.autocast = autocasts(config)
    if trainer.autocast and not has_bf16():
        progress("this machine emulates bfloat16: autocast=native computes in float32, many times faster")
    trainer.length_power = config.optim.length_power
    trainer.model_accepts_loss_kwargs = True  # the loss is divided by the step's targets, in compute_loss
    last = newest_whole(work)
    if last is not None:
        trainer.before = last[1]
    trainer.began = time.perf_counter()
    trainer.train(resume_from_checkpoint=str(last[0]) if last else None)
    if not all(bool(p.isfinite().all()) for p in model.parameters() if p.requires_grad):
        raise TrainingError("the trained weights are no numbers", hint="lower the learning rate")
    return _trained(trainer, model, log)


def _trained(trainer: PackTrainer, model: PeftModel, log: Path) -> Trained:
    """What it came to, with the log written."""
    losses = [entry for entry in trainer.state.log_history if "loss" in entry]
    values = [float(entry["loss"]) for entry in losses]
    tally, dtype = trainer.tally(), next(str(p.dtype) for p in model.parameters() if p.requires_grad)
    if trainer.is_world_process_zero():
        log.write_text("".join(json.dumps(entry) + "\n" for entry in losses), encoding="utf-8")
    return Trained(
        steps=trainer.state.global_step,
        first_loss=values[0],
        last_loss=values[-1],
        row_tokens=tally.row_tokens,
        run_tokens=tally.run_tokens,
        seconds=round(tally.seconds, 1),
        dtype=dtype.removeprefix("torch."),
        products="bfloat16"
        if trainer.autocast
        else str(next(model.parameters()).dtype).removeprefix("torch."),
    )


def autocasts(config: TrainConfig) -> bool:
    """Whether this recipe computes products in bfloat16 on this machine."""
    return has_bf16() if config.autocast == "native" else config.autocast


def refuse_missing_board(config: TrainConfig) -> None:
    """Raises: ConfigError when the package that `report_to` names is not installed."""
    if config.report_to != "none" and find_spec(config.report_to) is None:
        raise ConfigError(
            f"report_to is {config.report_to}, which is not installed",
            hint=f"pip install {config.report_to}, or say report_to=none",
        )


def _board_in(folder: Path) -> TrainerCallback:
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - needs an optional package

    return TensorBoardCallback(SummaryWriter(str(folder)))


def _pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    assert isinstance(tokenizer.pad_token_id, int)
    return tokenizer.pad_token_id


def _arguments(
    config: TrainConfig, stage: StageConfig, batch_size: int, accumulation: int, work: Path
) -> SFTConfig:
    on_cpu = not torch.cuda.is_available()
    arguments = SFTConfig(
        output_dir=str(work),
        num_train_epochs=stage.epochs,
        learning_rate=stage.learning_rate,
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        lr_scheduler_type=config.optim.scheduler,
        warmup_steps=config.optim.warmup,
        weight_decay=config.optim.weight_decay,
        max_grad_norm=config.optim.max_grad_norm,
        optim=config.optim.optimizer,
        seed=config.optim.seed,
        data_seed=config.optim.seed,
        max_length=config.max_length,
        packing=False,
        completion_only_loss=True,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        gradient_checkpointing=config.gradient_checkpointing,
        bf16=False,  # PackTrainer autocasts itself; the weights keep the recipe's dtype
        fp16=False,
        use_cpu=on_cpu,
        dataloader_pin_memory=not on_cpu,
        save_strategy="steps",
        save_steps=config.save_every_steps,
        save_total_limit=2,  # the one before stays until the newest is whole
        save_only_model=False,
        logging_strategy="steps",
        logging_steps=config.log_every_steps,
        logging_first_step=True,
        logging_nan_inf_filter=False,  # else a loss that is no number is logged as the mean of those before
        project="latticemind",
        run_name=f"{work.parent.name}-{work.name}",  # a resumed training goes on in its trackio run
        report_to="trackio" if config.report_to == "trackio" else "none",
        eval_strategy="no",
        disable_tqdm=True,  # its bar writes to standard output; `progress` hears the same
        ddp_find_unused_parameters=False,
        ddp_broadcast_buffers=False,  # processes run different numbers of packs
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # one process, one GPU: nn.DataParallel would cut packs apart
    return arguments
