"""An adapter's safetensors file, read by its format: 8 bytes of length, a JSON header, the tensors' bytes."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

PROJECTIONS = frozenset(("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"))
MAX_BYTES = 500 * 2**20
"""A LoRA of rank 16 on a 14B base has 275 MB in float32; more means that whole layers were saved (T23)."""

_NAME = re.compile(
    r"(?P<module>(?P<above>.+)\.(?P<projection>\w+))\.lora_(?P<side>[AB])\.weight"
)  # fmt: skip
_ABOVE = re.compile(r"base_model\.model\.model\.layers\.\d+\.(self_attn|mlp)")


@dataclass(frozen=True, slots=True)
class _Float:
    """Where a float type keeps what: its width in bytes, everything but the sign, the exponent."""

    width: int
    magnitude: int
    exponent: int


_FLOATS = {
    "F32": _Float(4, 0x7FFFFFFF, 0x7F800000),
    "F16": _Float(2, 0x7FFF, 0x7C00),
    "BF16": _Float(2, 0x7FFF, 0x7F80),
}


class _Entry(BaseModel):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_HEADER = TypeAdapter(dict[str, _Entry])


@dataclass(frozen=True, slots=True)
class LoraTensor:
    """One matrix: A is [rank, in], B is [out, rank]; `start` counts from the beginning of the file."""

    name: str
    module: str
    projection: str
    side: str
    shape: tuple[int, ...]
    dtype: str
    start: int
    end: int

    @property
    def rank(self) -> int | None:
        """None for a tensor that is no matrix."""
        return self.shape[0 if self.side == "A" else 1] if len(self.shape) == 2 else None


def read_header(path: Path) -> list[LoraTensor]:
    """The tensors of a file that holds LoRA matrices of the seven projections, whole, and nothing else.

    Raises: PreflightError for a file too big (T23), cut or otherwise no safetensors file, a tensor of
    another kind (T28), or one under a name that a server does not look for (T34).
    """
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise fault(path, f"T23: has {size:,} bytes", "a LoRA holds no embeddings and no whole layers")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        raw = file.read(length) if length <= size - 8 else b""
    try:
        entries = _HEADER.validate_json(_without_metadata(raw))
    except (ValidationError, struct.error) as bad:
        raise fault(path, "is no safetensors file, or is cut short", "copy it again, or train again") from bad
    found = [_tensor(path, name, entry, 8 + length) for name, entry in entries.items()]
    _refuse_gaps(path, found, 8 + length, size)
    return found
