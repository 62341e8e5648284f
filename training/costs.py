"""Formulas of a plan: bytes of memory at the peak, and seconds. Each is written out in docs/gpu.md."""

from __future__ import annotations

from dataclasses import dataclass

from training.gpus import Gpu
from training.shapes import Shape
from training.workload import Workload

NF4_BITS = 4 + 8 / 64 + 32 / (64 * 256)
"""Bits a weight: 4, one 8-bit scale for 64 of them, one fp32 scale for 256 of those (QLoRA, section 3)."""

OVERHEAD_BYTES = 1.5 * 2**30
"""Assumed: CUDA context, cuBLAS workspace and what the allocator cannot reuse."""

UTILISATION = 0.35
"""Assumed share of the dense bf16 peak that matrix products reach; `training/gpu_smoke.py` measures it."""


@dataclass(frozen=True, slots=True)
class Method:
    """The part of a recipe that decides cost.

    With NF4, peft's `prepare_model_for_kbit_training` holds what is not quantised in float32 (and so the
    states between layers), and TRL holds LoRA's weights in bfloat16 (T27).
    """

    nf4: bool
    bf16: bool
    autocast: bool
    checkpointing: bool
    tree: bool
    eager: bool = False
    paged_8bit: bool = False

    @property
    def frozen_bytes(self) -> int:
        """Of a frozen weight that is not quantised, and of a state between layers."""
        return 2 if self.bf16 and not self.nf4 else 4

    @property
    def adapter_bytes(self) -> int:
        """Of a LoRA weight, and of its gradient."""
        return 2 if self.nf4 else 4

    @property
    def compute_bytes(self) -> int:
        return 2 if self.bf16 or self.autocast else 4


def memory_parts(shape: Shape, method: Method, work: Workload) -> dict[str, float]:
    """Bytes by part when the largest micro-batch has been run and its backward pass is in the first layer."""
    moment = 1 if method.paged_8bit else method.adapter_bytes
    return {
        "projections": shape.projections * (NF4_BITS / 8 if method.nf4 else method.frozen_bytes),
        "embeddings, head, norms": float(shape.others * method.frozen_bytes),
        "LoRA weights": float(shape.adapter * method.adapter_bytes),
        "LoRA gradients": float(shape.adapter * method.adapter_bytes),
        "optimizer state (AdamW, two moments)": 2.0 * shape.adapter * moment,
        "activations": activation_bytes(shape, method, work.largest_batch, work.largest_run),
        "logits and their gradient": logit_bytes(shape, method, work.largest_targets),
        "head and one projection, cast": cast_bytes(shape, method),
        "context and allocator (assumed)": OVERHEAD_BYTES,
    }


def layer_bytes(shape: Shape, method: Method, tokens: int) -> float:
    """Bytes that one decoder layer keeps for its backward pass over one sequence of `tokens`.

    Counted from torch 2.13, transformers 5.19 and peft 0.21 (a test counts again): inputs of the LoRA A
    matrices, attention's four tensors and row sums, two norms in fp32, three tensors of the MLP, LoRA's
    middle, and the additive form of the tree mask; eager attention keeps its scores besides.
    """
    h, i, q, b = shape.hidden, shape.intermediate, shape.attention, method.compute_bytes
    shared = not method.autocast and not method.bf16
    inputs = b * (2 * h + i) if shared else (b if method.autocast else 4) * (5 * h + q + i)
    middle = (b if method.autocast else 4) * 7 * shape.rank
    a_token = inputs + middle + 4 * q * b + 2 * (4 * h + 4) + 3 * i * b + 4 * shape.heads
    scores = shape.heads * tokens * (4 + b) if method.eager else 0
    return tokens * (a_token + scores + (tokens * b if method.tree else 0))


def activation_bytes(shape: Shape, method: Method, batch: int, run: int) -> float:
    """Bytes of activations of a micro-batch of `batch` tokens, whose longest pass has `run` of them.

    With gradient checkpointing each layer keeps its input only, and one layer at a time is run again. To this
    come the gradients that one layer's backward pass works on, and the casts of weights under autocast.
    """
    one = layer_bytes(shape, method, run)
    working = run * (3 * shape.intermediate * method.compute_bytes + 8 * shape.hidden)
    casts = 2.0 * shape.adapter if method.autocast and not method.nf4 else 0.0
    if method.autocast and not method.nf4 and not method.bf16:
        casts += 2.0 * shape.projections
    if method.checkpointing:
        kept = batch * shape.layers * shape.hidden * method.frozen_bytes
        return kept + one + working + casts / shape.layers
    return shape.layers * one * max(1.0, batch / max(1, run)) + working + casts


def logit_bytes(shape: Shape, method: Method, targets: int) -> float:
    """Bytes of logits at `targets` places: log-probabilities and two gradients in fp32, and the logits."""
    return float(targets * shape.vocabulary * (12 + method.compute_bytes))


def cast_bytes(shape: Shape, method: Method) -> float:
    """Bytes of weights cast to the compute dtype: the head under autocast, one projection of NF4."""
    head = shape.vocabulary * shape.hidden if method.frozen_bytes > method.compute_bytes else 0
    projection = shape.largest_projection if method.nf4 else 0
    return float((head + projection) * method.compute_bytes)


def epoch_flops(shape: Shape, method: Method, work: Workload) -> float:
    """Floating-point operations of one epoch.

    A product with a frozen weight costs 2 a parameter and token forward and 2 backward (to its input; the
    weight has no gradient), and 2 more where the forward pass is run again; LoRA's weights 2 + 4 (+ 2).
    Attention costs 4 a pair and query width forward and 2.5 times that backward. The head runs at targets.
    """
    again = 1 if method.checkpointing else 0
    frozen = 2 * (2 + again) * shape.projections * work.run_tokens
    adapter = 2 * (3 + again) * shape.adapter * work.run_tokens
    attention = 4 * (3.5 + again) * work.pairs * shape.attention * shape.layers
    head = 4 * shape.vocabulary * shape.hidden * work.targets
    return float(frozen + adapter + attention + head)


def dequantising_bytes(shape: Shape, method: Method, runs: int) -> float:
    """Memory traffic of unpacking NF4 for so many runs: read packed, write and read in the compute dtype."""
    if not method.nf4:
        return 0.0
    times = 3 if method.checkpointing else 2
    return times * runs * shape.projections * (NF4_BITS / 8 + 2 * method.compute_bytes)


def seconds(shape: Shape, method: Method, work: Workload, gpu: Gpu) -> float:
    """Seconds of all epochs on this GPU: arithmetic at the assumed utilisation plus unpacking the weights."""
    arithmetic = epoch_flops(shape, method, work) / (gpu.bf16_tflops * 1e12 * UTILISATION)
    unpacking = dequantising_bytes(shape, method, work.runs) / (gpu.bandwidth_tb_s * 1e12)
    return work.epochs * (arithmetic + unpacking)
