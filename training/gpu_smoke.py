"""QLoRA steps on a large base's shape with random weights: speed and memory without a download.

    python training/gpu_smoke.py --shape qwen2.5-14b --steps 20

Each projection is made at random and quantised to NF4 on the device before the next is made, so neither
host nor device ever holds the model in 16 bits. The steps are those of a training (packs with shared
prefixes, LoRA, AdamW, loss at the targets); what they learn means nothing. Prints tokens a second, peak
memory, and both as ratios to the plan. `--shape tiny` runs the same code on a CPU in seconds.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import typer
from bitsandbytes.nn.modules import Linear4bit, Params4bit
from peft import PeftModel, prepare_model_for_kbit_training
from torch import nn

from operators.errors import ConfigError
from operators.models.local.prefix_tree import TokenRow, pack_rows, target_logits
from training.config import PROJECTIONS
from training.costs import OVERHEAD_BYTES, Method, memory_parts, seconds
from training.gpus import GPUS, find_gpu
from training.shapes import measure_shape, meta_model, published_config, with_adapter
from training.workload import Workload, workload

LARGE = "qwen2.5-14b"
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
TINY_VOCABULARY = 512
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Measured:
    """What the steps came to. `peak_bytes`: the device's, or the whole process's on a CPU."""

    trainable: int
    losses: tuple[float, ...]
    seconds: float
    run_tokens: int
    row_tokens: int
    peak_bytes: int

    @property
    def tokens_per_second(self) -> float:
        return self.run_tokens / self.seconds


def smoke_config(base: str, *, layers: int | None = None, tiny: bool = False) -> dict[str, Any]:
    """The base's config, with fewer layers or in miniature if asked."""
    config = published_config(base)
    if tiny:
        config |= TINY | {"num_hidden_layers": 2, "vocab_size": TINY_VOCABULARY}
    return config | ({"num_hidden_layers": layers} if layers is not None else {})


def random_nf4_model(config: dict[str, Any], device: torch.device, *, seed: int) -> nn.Module:
    """A causal model of this shape with random weights, its projections in NF4 (double quantised)."""
    model: Any = meta_model(config, torch.bfloat16)
    source = torch.Generator(device=device).manual_seed(seed)
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name != "lm_head":
            model.set_submodule(name, _quantised(module, device, source))
    _materialise(model, device, source)
    model.is_loaded_in_4bit = True  # what PEFT looks at to choose its 4-bit layers
    built: nn.Module = model
    return built


def random_notes(
    vocabulary: int, *, steps: int, notes: int, tail_tokens: int, chance: random.Random
) -> Iterator[list[TokenRow]]:
    """Rows as extract-state has them: nine questions to a note, which all of its rows begin with.

    A note with its system message has 60 to 150 tokens; a question 40 to `tail_tokens`, its answer 10 to 30.
    """
    for _ in range(steps):
        rows = []
        for _ in range(notes):
            shared = _tokens(vocabulary, chance.randint(60, 150), chance)
            for _ in range(9):
                prompt = shared + _tokens(vocabulary, chance.randint(40, max(40, tail_tokens)), chance)
                rows.append(
                    TokenRow(prompt + _tokens(vocabulary, chance.randint(10, 30), chance), len(prompt))
                )
        yield rows


def run_steps(model: PeftModel, batches: Sequence[Sequence[TokenRow]], device: torch.device) -> Measured:
    """One optimizer step a batch; the first is left out of the time (kernels are loaded in it)."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-4)
    losses, started = [], 0.0
    for number, batch in enumerate(batches):
        if number == 1:
            _wait(device)
            started = time.perf_counter()
        pack = pack_rows(batch).to(device)
        with torch.autocast(device.type, torch.bfloat16):
            logits = target_logits(model, pack)
            loss = nn.functional.cross_entropy(logits.float(), pack.targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
    _wait(device)
    timed = _load(batches[1:])
    return Measured(
        trainable=sum(parameter.numel() for parameter in trainable),
        losses=tuple(losses),
        seconds=time.perf_counter() - started,
        run_tokens=timed.run_tokens,
        row_tokens=timed.row_tokens,
        peak_bytes=_peak(device),
    )


def main(
    shape: Annotated[str, typer.Option(help="Alias of a base, or `tiny` for a run on a CPU.")] = LARGE,
    layers: Annotated[int | None, typer.Option(min=1, help="Fewer layers than the base has.")] = None,
    steps: Annotated[int, typer.Option(min=2, help="Optimizer steps; the first is not timed.")] = 20,
    notes: Annotated[int, typer.Option(min=1, help="Notes in a step.")] = 4,
    gpu: Annotated[str | None, typer.Option(help=f"Plan to compare with: {', '.join(GPUS)}.")] = None,
    checkpointing: Annotated[bool, typer.Option(help="Gradient checkpointing.")] = True,
    seed: Annotated[int, typer.Option(help="Of weights and rows.")] = 7,
) -> None:
    """Run the steps and print what they took."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and shape != "tiny":
        raise typer.BadParameter("no GPU is here; on a CPU use --shape tiny")
    try:
        config = smoke_config(LARGE if shape == "tiny" else shape, layers=layers, tiny=shape == "tiny")
        gpu = find_gpu(gpu).name if gpu is not None else None
    except ConfigError as fault:
        raise typer.BadParameter(f"{fault} ({fault.hint})") from fault
    began = time.perf_counter()
    model = prepare(config, device, seed=seed, checkpointing=checkpointing)
    took = time.perf_counter() - began
    typer.echo(f"built in {took:.1f} s on {device}: {shape}, {config['num_hidden_layers']} layers")
    chance = random.Random(seed)
    batches = list(
        random_notes(int(config["vocab_size"]), steps=steps, notes=notes, tail_tokens=80, chance=chance)
    )
    measured = run_steps(model, batches, device)
    for line in report(measured, config, batches, gpu=_gpu(device, gpu), checkpointing=checkpointing):
        typer.echo(line)


def prepare(config: dict[str, Any], device: torch.device, *, seed: int, checkpointing: bool) -> PeftModel:
    """The random NF4 model with LoRA r=16 on its projections, ready to train."""
    torch.manual_seed(seed)
    model: Any = random_nf4_model(config, device, seed=seed)
    model = prepare_model_for_kbit_training(
        model,
        use_gradient_checkpointing=checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
    )
    adapted = with_adapter(model, rank=16, alpha=32, dropout=0.0, targets=PROJECTIONS).to(device)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.bfloat16)  # as TRL does with QLoRA (T27)
    return adapted.train()


def report(
    measured: Measured,
    config: dict[str, Any],
    batches: Sequence[Sequence[TokenRow]],
    *,
    gpu: str | None,
    checkpointing: bool,
) -> list[str]:
    """Lines with the figures, and their ratios to the plan of a named GPU (none without one)."""
    lines = [
        f"{measured.trainable:,} trainable parameters; "
        f"loss {measured.losses[0]:.3f} to {measured.losses[-1]:.3f}",
        f"{measured.tokens_per_second:,.0f} tokens/s run, "
        f"{measured.row_tokens / measured.seconds:,.0f} tokens/s of rows",
        f"peak memory {measured.peak_bytes / GIB:,.2f} GiB" + ("" if gpu else " (of the whole process)"),
    ]
    if gpu is None:
        return [*lines, "no plan to compare with: a CPU, or a GPU without figures (name one with --gpu)"]
    shape = measure_shape(config, rank=16, targets=PROJECTIONS)
    method = Method(nf4=True, bf16=True, autocast=True, checkpointing=checkpointing, tree=True)
    timed = _load(batches[1:])
    parts = memory_parts(shape, method, _load(batches))
    expected = sum(parts.values()) - OVERHEAD_BYTES
    planned = seconds(shape, method, timed, find_gpu(gpu))
    return [
        *lines,
        f"plan for {gpu}: {timed.run_tokens / planned:,.0f} tokens/s, {expected / GIB:,.2f} GiB of tensors",
        f"ratio to the plan: speed {planned / measured.seconds:.2f}, "
        f"memory {measured.peak_bytes / expected:.2f}",
    ]


def _load(batches: Sequence[Sequence[TokenRow]]) -> Workload:
    """The batches' counts: each is one pack, however long."""
    return workload("smoke", [[batch] for batch in batches], pack_tokens=1, epochs=1, accumulation=1)


def _quantised(module: nn.Linear, device: torch.device, source: torch.Generator) -> nn.Module:
    """A random NF4 layer of this one's size."""
    dtype = torch.bfloat16
    new: Any = Linear4bit(
        module.in_features, module.out_features, bias=module.bias is not None, compute_dtype=dtype,
        compress_statistics=True, quant_type="nf4", device=torch.device("meta"),
    )  # fmt: skip
    size = (module.out_features, module.in_features)
    weight = torch.randn(size, generator=source, device=device, dtype=dtype).mul_(0.02)
    packed: Any = Params4bit(weight, requires_grad=False, quant_type="nf4", module=new)
    new.weight = packed.to(device)  # quantises
    if module.bias is not None:
        bias = torch.zeros(module.out_features, device=device, dtype=dtype)
        new.bias = nn.Parameter(bias, requires_grad=False)
    layer: nn.Module = new
    return layer


def _materialise(model: Any, device: torch.device, source: torch.Generator) -> None:
    """Give storage to what is still on the meta device: norms are ones, matrices random, buffers as built."""
    model.tie_weights()
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.is_meta:
                new = torch.ones(parameter.shape, device=device, dtype=parameter.dtype)
                if parameter.dim() > 1:
                    new.normal_(std=0.02, generator=source)
                setattr(module, name, nn.Parameter(new, requires_grad=False))
    for name, module in list(model.named_modules()):
        if any(buffer.is_meta for buffer in module.buffers(recurse=False)):
            model.set_submodule(name, type(module)(config=model.config).to(device))
    model.tie_weights()


def _tokens(vocabulary: int, count: int, chance: random.Random) -> tuple[int, ...]:
    return tuple(chance.randrange(vocabulary) for _ in range(count))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _peak(device: torch.device) -> int:
    """Bytes: tensors allocated at the most on a GPU; the process's resident peak on a CPU (KiB on Linux)."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _gpu(device: torch.device, named: str | None) -> str | None:
    """The GPU whose plan to compare with: the one named, or that of this device's name and memory."""
    if device.type != "cuda" or named is not None:
        return named if device.type == "cuda" else None
    here = torch.cuda.get_device_properties(device)
    alike = [name for name in GPUS if name.removeprefix("RTX-").split("-")[0] in here.name]
    return min(alike, key=lambda name: abs(GPUS[name].memory_gib - here.total_memory / GIB), default=None)


if __name__ == "__main__":
    typer.run(main)
