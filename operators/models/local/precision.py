"""Whether this machine multiplies bfloat16 numbers in hardware."""

from __future__ import annotations

import torch


def has_bf16() -> bool:
    """True on a GPU that has bfloat16, and on an x86 processor with AVX512-BF16 or AMX.

    Elsewhere PyTorch emulates it: on an AVX2 processor a bfloat16 product took 60 times
    as long as a float32 one (docs/LOG.md). Other processors (ARM) count as without.
    """
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
