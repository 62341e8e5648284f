"""An adapter's safetensors file, read by its format: 8 bytes of length, a JSON header, the tensors' bytes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, TypeAdapter

from operators.errors import PreflightError

PROJECTIONS = frozenset(("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"))
MAX_BYTES = 500 * 2**20
"""A LoRA of rank 16 on a 14B base has 275 MB in float32; more means that whole layers were saved (T23)."""

_NAME = re.compile(r"(?P<module>(?P<above>.+)\.(?P<projection>\w+))\.lora_(?P<side>[AB])\.weight")
_ABOVE = re.compile(r"base_model\.model\.model\.layers\.\d+\.(self_attn|mlp)")


@dataclass(frozen=True, slots=True)
class _Float:
    """A float type's unsigned twin, and which of its bits are the magnitude and the exponent."""

    twin: str
    magnitude: int
    exponent: int


_FLOATS = {
    "F32": _Float("<u4", 0x7FFFFFFF, 0x7F800000),
    "F16": _Float("<u2", 0x7FFF, 0x7C00),
    "BF16": _Float("<u2", 0x7FFF, 0x7F80),
}


class _Entry(BaseModel):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_HEADER = TypeAdapter(dict[str, _Entry])


@dataclass(frozen=True, slots=True)
class LoraTensor:
    """One matrix: A is [rank, in], B is [out, rank]; `start` and `end` count from the file's first byte."""

    name: str
    module: str
    projection: str
    side: str
    shape: tuple[int, int]
    dtype: str
    start: int
    end: int

    @property
    def rank(self) -> int:
        return self.shape[0 if self.side == "A" else 1]


def read_header(path: Path) -> list[LoraTensor]:
    """The matrices of a file that holds, whole, pairs of A and B of the seven projections and nothing else.

    Raises: PreflightError for a file too big (T23), one that is cut or no safetensors file, a tensor of
    another kind (T28), and a module under a name that a server does not look for (T34).
    """
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise fault(path, f"T23: has {size:,} bytes", "a LoRA holds no embeddings and no whole layers")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        raw = file.read(length) if length <= size - 8 else b""
    try:
        data = json.loads(raw)
        entries = _HEADER.validate_python({name: data[name] for name in data if name != "__metadata__"})
    except (ValueError, TypeError) as bad:
        raise fault(path, "is no safetensors file, or is cut short", "copy it again, or train again") from bad
    found = [_tensor(path, name, entry, 8 + length) for name, entry in entries.items()]
    _refuse_gaps(path, found, start=8 + length, end=size)
    _refuse_halves(path, found)
    return found


def refuse_dead(path: Path, tensors: Sequence[LoraTensor]) -> None:
    """Raises: PreflightError when a weight is no finite number, or every B is zero: no more than the base."""
    alive = False
    with path.open("rb") as file:
        for tensor in tensors:
            kind = _FLOATS[tensor.dtype]
            file.seek(tensor.start)
            bits = np.frombuffer(file.read(tensor.end - tensor.start), dtype=kind.twin)
            if np.any(bits & kind.exponent == kind.exponent):
                raise fault(
                    path, f"{tensor.name} holds NaN or infinity", "its training diverged: train again"
                )
            alive = alive or (tensor.side == "B" and bool(np.any(bits & kind.magnitude)))
    if not alive:
        raise fault(path, "T34: the adapter has no effect: every lora_B is zero", "train it")


def fault(path: Path, what: str, hint: str) -> PreflightError:
    return PreflightError(f"{path}: {what}", hint=hint)


def _tensor(path: Path, name: str, entry: _Entry, data_start: int) -> LoraTensor:
    match = _NAME.fullmatch(name)
    if match is None or match["projection"] not in PROJECTIONS:
        raise fault(path, f"T28: holds {name}", "train plain LoRA on the seven projections")
    if _ABOVE.fullmatch(match["above"]) is None:
        raise fault(
            path, f"T34: holds {name}, which a server does not look for", "save it with PEFT, unrenamed"
        )
    begin, end = entry.data_offsets
    if entry.dtype not in _FLOATS:
        raise fault(path, f"{name} is of type {entry.dtype}", "save it in float32, float16 or bfloat16")
    width = np.dtype(_FLOATS[entry.dtype].twin).itemsize
    if len(entry.shape) != 2 or math.prod(entry.shape) * width != end - begin:
        raise fault(
            path, f"{name}: shape {entry.shape} does not fill its bytes", "copy it again, or train again"
        )
    rows, columns = entry.shape
    return LoraTensor(
        name, match["module"], match["projection"], match["side"], (rows, columns), entry.dtype,
        data_start + begin, data_start + end,
    )  # fmt: skip


def _refuse_gaps(path: Path, tensors: Sequence[LoraTensor], *, start: int, end: int) -> None:
    """The tensors' bytes follow one another and end with the file."""
    reached = start
    for tensor in sorted(tensors, key=lambda tensor: tensor.start):
        if tensor.start != reached:
            raise fault(
                path, f"{tensor.name} is not where the one before ends", "copy it again, or train again"
            )
        reached = tensor.end
    if reached != end or not tensors:
        what = f"has {end:,} bytes, its header says {reached:,}" if tensors else "holds no tensor"
        raise fault(path, what, "copy it again, or train again")


def _refuse_halves(path: Path, tensors: Sequence[LoraTensor]) -> None:
    sides: dict[str, set[str]] = {}
    for tensor in tensors:
        sides.setdefault(tensor.module, set()).add(tensor.side)
    for module, found in sides.items():
        if found != {"A", "B"}:
            raise fault(path, f"{module} has only lora_{found.pop()}", "copy it again, or train again")
