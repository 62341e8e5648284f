"""A base model's shape from its config alone: parameters are counted on the meta device, without weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from operators.errors import ConfigError

BASES = Path(__file__).parents[1] / "configs" / "bases"


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes that cost memory or time. `projections`: parameters of the linear layers that NF4 quantises;
    `others`: of all else in the base (embeddings, head, norms, biases; tied weights once); `adapter`: LoRA's.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    head_size: int
    vocabulary: int
    projections: int
    largest_projection: int
    others: int
    adapter: int
    rank: int

    @property
    def attention(self) -> int:
        """Width of the queries, all heads together."""
        return self.heads * self.head_size


def published_config(name: str) -> dict[str, Any]:
    """The config of a base by folder, alias or hub id. Raises: ConfigError for a base not known here."""
    folder = Path(name)
    if (folder / "config.json").is_file():
        return dict(json.loads((folder / "config.json").read_text("utf-8")))
    known = {path.stem: dict(json.loads(path.read_text("utf-8"))) for path in sorted(BASES.glob("*.json"))}
    for alias, config in known.items():
        if name.lower() in (alias, config["_name_or_path"].lower()):
            return config
    raise ConfigError(
        f"the shape of {name} is not known without its files",
        hint=f"fetch it (latticemind models fetch {name}), or use one of {', '.join(known)}",
    )


def meta_model(config: Mapping[str, Any], dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model of a config, without storage."""
    settings = AutoConfig.for_model(**config)
    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(settings, dtype=dtype)
    return model


def with_adapter(
    model: nn.Module, *, rank: int, alpha: int, dropout: float, targets: Sequence[str]
) -> PeftModel:
    """The model with one LoRA adapter, as the recipe asks: bias none, default init."""
    lora = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=list(targets), bias="none",
        task_type="CAUSAL_LM",
    )  # fmt: skip
    causal: Any = model
    wrapped: Any = get_peft_model(causal, lora)
    adapted: PeftModel = wrapped
    return adapted


def measure_shape(config: Mapping[str, Any], *, rank: int, targets: Sequence[str]) -> Shape:
    """Count a model of this config with LoRA of this rank on these projections."""
    model = meta_model(config)
    linears = [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name != "lm_head"
    ]
    projections = [module.weight.numel() for module in linears]
    base = sum(parameter.numel() for parameter in model.parameters())
    settings: Any = model.config
    with torch.device("meta"):
        adapted = with_adapter(model, rank=rank, alpha=2 * rank, dropout=0.0, targets=targets)
    return Shape(
        layers=settings.num_hidden_layers,
        hidden=settings.hidden_size,
        intermediate=settings.intermediate_size,
        heads=settings.num_attention_heads,
        head_size=getattr(settings, "head_dim", None) or settings.hidden_size // settings.num_attention_heads,
        vocabulary=settings.vocab_size,
        projections=sum(projections),
        largest_projection=max(projections),
        others=base - sum(projections),
        adapter=sum(p.numel() for p in adapted.parameters() if p.requires_grad),
        rank=rank,
    )
