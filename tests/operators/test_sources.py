"""YAML that people write: every fault is one clear error with file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from operators.config import load_config
from operators.errors import ConfigError, InputError
from operators.schema import SlotSchema
from operators.sources import load_yaml

GOOD = """\
entities:
  - entity: api
    slots:
      - slot: limit
        form: number
"""
BOMB = "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n"


def written(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "schema.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_good_file_knows_where_its_fields_stand(tmp_path: Path) -> None:
    located = load_yaml(written(tmp_path, GOOD), SlotSchema)
    assert located.value.slot("api", "limit").form == "number"
    assert located.line(("entities", 0, "slots", 0, "form")) == 5


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "the file is empty"),
        (b"entities:\n  - entity: caf\xe9\n", "2: not UTF-8"),
        (BOMB, "2: YAML aliases"),
        ("[" * 200 + "]" * 200, "nested deeper"),
        ("x" * (5 * 1024 * 1024), "bytes, more than"),
        (GOOD + "entities: []\n", "6 [entities]: this key stands twice"),
        (GOOD.replace("form", "fromm"), "5 [entities.0.slots.0.fromm]"),
        (GOOD.replace("number", "numeral"), "5 [entities.0.slots.0.form]"),
        ("entities: [\n", "not YAML"),
        (GOOD.replace("number", "!!int number"), "5: YAML tags"),
        ("- 1\n- 2\n", "1"),
        (GOOD + "      - slot: limit\n", "defined twice: api.limit"),
    ],
)
def test_a_bad_file_is_one_error_that_names_the_place(
    tmp_path: Path, content: str | bytes, says: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_yaml(written(tmp_path, content), SlotSchema)
    assert says in str(caught.value)
    assert "schema.yaml" in str(caught.value)
    assert caught.value.hint


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_yaml(tmp_path / "nothing.yaml", SlotSchema)


def test_words_that_yaml_would_turn_into_other_types_stay_text(tmp_path: Path) -> None:
    text = "entities:\n  - entity: f\n    slots:\n      - slot: s\n        form: enum\n        values: {on: [yes], 1.10: []}\n"
    found = load_yaml(written(tmp_path, text), SlotSchema).value.slot("f", "s")
    assert found.values == {"on": ("yes",), "1.10": ()}


def test_an_override_reaches_into_a_config_and_a_wrong_one_names_the_nearest_key(tmp_path: Path) -> None:
    from data_builders.build import DataConfig

    path = tmp_path / "data.yaml"
    path.write_text(
        "near_duplicate: 85\nnegatives: 3\nsynthetic: {scenarios: 2, lengths: [6], long_noise: [false]}\n"
        "mined: {notes: 9, max_characters: 600, bot_share: 0.1}\n"
    )
    assert load_config(path, DataConfig, ["synthetic.scenarios=3"]).synthetic.scenarios == 3
    assert load_config(path, DataConfig, ["synthetic.lengths=[6, 12]"]).synthetic.lengths == (6, 12)
    with pytest.raises(ConfigError, match=r"synthetic\.lengths"):
        load_config(path, DataConfig, ["synthetic.lengths=[6, 12"])
    with pytest.raises(ConfigError) as caught:
        load_config(path, DataConfig, ["synthetic.scenario=3"])
    assert "scenarios" in caught.value.hint
    with pytest.raises(ConfigError, match="near_duplicate"):
        load_config(path, DataConfig, ["near_duplicate=many"])
    with pytest.raises(ConfigError, match="no key=value"):
        load_config(path, DataConfig, ["near_duplicate"])
