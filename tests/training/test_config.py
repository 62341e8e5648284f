"""A recipe says everything; what contradicts itself is refused with the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from operators.config import load_config
from operators.errors import ConfigError, InputError
from tests.training.support import recipe
from training.config import PROJECTIONS, TrainConfig

CONFIGS = Path(__file__).parents[2] / "configs" / "train"
RECIPES = sorted(path for path in CONFIGS.glob("*.yaml") if "accelerate" not in path.name)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_shipped_recipe_opens_with_its_command_and_is_the_papers_adapter(path: Path) -> None:
    config = load_config(path, TrainConfig)
    assert path.read_text("utf-8").startswith(f"# latticemind train configs/train/{path.name} ")
    assert (config.lora.r, config.lora.alpha, config.lora.target_modules) == (16, 32, PROJECTIONS)
    assert config.base.pad_token != config.base.eos_token


def test_no_setting_of_a_recipe_has_a_default() -> None:
    def settings(model: Any) -> list[tuple[str, Any]]:
        return [(f"{model.__name__}.{name}", field) for name, field in model.model_fields.items()]

    parts = [TrainConfig] + [
        field.annotation
        for _, field in settings(TrainConfig)
        if isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields")
    ]
    assert len(parts) == 5
    assert [name for part in parts for name, field in settings(part) if not field.is_required()] == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"base__pad_token": "<|im_end|>"}, "never learn to stop"),
        ({"tasks": {"compare-claims": ["select"]}}, r"compare, not \['select'\]"),
        ({"tasks": {"compare-claims": []}}, "compare-claims has the tasks"),
        ({"tasks": {"compare": ["compare"]}}, "compare"),
        ({"base__quantization": "fp4"}, "nf4"),
        ({"lora__dropout": 1.0}, "less than 1"),
        ({"max_length": 8}, "16"),
        ({"mixture": {"shared": {}, "fold": {"trajectory": {"compare-claims": -1}}}}, "equal to 0"),
        ({"optim__batch_size": {"compare-claims": 0}}, "equal to 1"),
        ({"optim__accumulation": {"compare-claims": 0}}, "equal to 1"),
        ({"packing": True}, "packing"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        recipe(**change)


@pytest.mark.parametrize("name", ["batch_size", "accumulation"])
def test_an_operator_without_its_step_is_named(name: str) -> None:
    data = recipe().model_dump(mode="json")
    del data["optim"][name]["update-memory"]
    with pytest.raises(ValidationError, match=f"optim.{name} does not say it for update-memory"):
        TrainConfig.model_validate(data)


def test_an_unknown_key_names_the_nearest_right_one_and_overrides_reach_every_depth(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    data = recipe().model_dump(mode="json")
    path.write_text(yaml.safe_dump(data))
    found = load_config(path, TrainConfig, ["optim.shared.epochs=2.5", "optim.batch_size.compare-claims=3"])
    assert found.optim.shared.epochs == 2.5
    assert found.optim.batch_size["compare-claims"] == 3
    with pytest.raises(ConfigError) as override:
        load_config(path, TrainConfig, ["optim.warmup_ratio=1"])
    assert "warmup" in override.value.hint
    path.write_text(yaml.safe_dump(data | {"max_seq_length": 64}))
    with pytest.raises(InputError) as key:
        load_config(path, TrainConfig)
    assert "max_length" in key.value.hint


def test_an_override_of_null_is_none_and_not_a_word() -> None:
    shipped = CONFIGS / "smollm2-135m-cpu.yaml"
    assert load_config(shipped, TrainConfig, ["threads=2"]).threads == 2
    assert load_config(shipped, TrainConfig, ["threads=null", "base.revision=null"]).threads is None
    assert load_config(shipped, TrainConfig, ["base.revision=null"]).base.revision is None
