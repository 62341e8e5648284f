"""Every shipped config loads."""

from __future__ import annotations

from pathlib import Path

from data_builders.build import DataConfig
from data_builders.scenarios import load_vocabulary
from operators.config import load_config
from operators.schema import SlotSchema
from operators.sources import load_yaml

CONFIGS = Path(__file__).parents[2] / "configs"


def test_every_slot_schema_loads() -> None:
    files = sorted((CONFIGS / "schemas").glob("*.yaml"))
    assert files
    for path in files:
        assert list(load_yaml(path, SlotSchema).value.pairs())


def test_the_data_config_promises_enough_synthetic_scenarios() -> None:
    config = load_config(CONFIGS / "data.yaml", DataConfig).synthetic
    scenarios = 3 * len(config.lengths) * len(config.long_noise) * config.scenarios
    assert scenarios >= 200


def test_the_vocabulary_is_as_wide_as_promised() -> None:
    vocabulary = load_vocabulary()
    assert len(vocabulary.entities) >= 60
    assert len(vocabulary.slots) >= 25
