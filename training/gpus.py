"""GPUs that a plan can be made for: their published figures."""

from __future__ import annotations

from dataclasses import dataclass

from operators.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Gpu:
    """Memory as the device shows it, dense bf16 peak with fp32 accumulation, memory bandwidth."""

    name: str
    memory_gib: float
    bf16_tflops: float
    bandwidth_tb_s: float
    source: str


GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu("H100-80GB", 80, 989.4, 3.35, "NVIDIA H100 data sheet, SXM; half of the figure with sparsity"),
        Gpu("H100-94GB", 94, 835.5, 3.9, "NVIDIA H100 data sheet, NVL; half of the figure with sparsity"),
        Gpu("H200", 140, 989.4, 4.8, "NVIDIA H200 data sheet, SXM; half of the figure with sparsity"),
        Gpu("A100-80GB", 80, 312, 2.039, "NVIDIA A100 data sheet, SXM"),
        Gpu("L40S", 45, 362, 0.864, "NVIDIA L40S data sheet; 48 GB less ECC"),
        Gpu("RTX-4090", 24, 165.2, 1.008, "NVIDIA Ada architecture white paper; fp32 accumulate"),
    )
}


def find_gpu(name: str) -> Gpu:
    """The GPU of that name, in any case. Raises: ConfigError with the names there are."""
    found = next((gpu for key, gpu in GPUS.items() if key.lower() == name.lower()), None)
    if found is None:
        raise ConfigError(f"no figures for a GPU named {name!r}", hint=f"there are: {', '.join(GPUS)}")
    return found
