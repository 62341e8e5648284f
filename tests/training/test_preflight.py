"""`latticemind preflight` tells all faults at once, and passes what is shipped."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from operators.errors import ConfigError, PreflightError
from operators.models.local.render import completion_ids, prompt_ids
from tests.training.preflight_files import (
    CONFIGS,
    END,
    ENVIRONMENT,
    PAD,
    changed,
    example,
    recipe_data,
    write_adapter,
    write_base,
)
from training.commands_preflight import preflight as command
from training.guards.reading import read_base, read_environment, render_rows
from training.guards.template import control_message, render
from training.preflight import preflight, with_overrides

ROOT = Path(__file__).parents[2]


def write_recipe(folder: Path, **changes: Any) -> Path:
    """The shipped recipe on the tiny base beside it, with dotted keys changed."""
    path = folder / "recipe.yaml"
    base = folder / "base"
    if not base.exists():
        write_base(base)
    data = changed(recipe_data(), {"base.name": str(base), **changes})
    path.write_text(yaml.safe_dump(data), "utf-8")
    return path


def write_rows(folder: Path, *rows: Any) -> Path:
    folder.mkdir()
    (folder / "synthetic-compare-claims.jsonl").write_text(
        "".join(row.json_line() + "\n" for row in rows), "utf-8"
    )
    return folder


RECIPES = [path for path in sorted(CONFIGS.glob("*.yaml")) if not path.stem.startswith("accelerate")]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipes_pass(path: Path) -> None:
    assert preflight(path, environment=ENVIRONMENT).findings == ()


def test_a_sound_set_passes_and_says_what_was_read(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    report = preflight(recipe, data=write_rows(tmp_path / "data", example()), environment=ENVIRONMENT)
    report.refuse()
    assert report.findings == ()
    assert any("1 rows" in fact and "longest" in fact for fact in report.facts)
    assert report.sample is not None
    assert report.sample.labels[-2] == END


def test_rows_of_other_tasks_are_left_alone(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, tasks={"compare-claims": ["compare"]})
    long = example(id="row-2", operator="extract-state", task="direct", completion=[])
    report = preflight(recipe, data=write_rows(tmp_path / "data", example(), long), environment=ENVIRONMENT)
    assert report.findings == ()
    assert any("1 rows" in fact for fact in report.facts)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    recipe = write_recipe(
        tmp_path,
        **{"base.dtype": ..., "max_length": ..., "packing": True, "save_everysteps": 3, "optim.seed": "x"},
    )
    report = preflight(recipe, environment=ENVIRONMENT)
    told = {(finding.guard, finding.where) for finding in report.findings}
    assert told >= {
        ("T04", "base.dtype"), ("T14", "max_length"), ("T20", "packing"),
        ("config", "save_everysteps"), ("config", "optim.seed"),
    }  # fmt: skip
    assert len({finding.where for finding in report.findings}) == len(report.findings), "one place, one fault"
    near = next(finding.hint for finding in report.findings if finding.where == "save_everysteps")
    assert near == "did you mean `save_every_steps`?"
    with pytest.raises(PreflightError, match="T20 packing"):
        report.refuse()


def test_a_template_that_renders_no_row_is_told_with_all_else(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, packing=True)
    (tmp_path / "base" / "chat_template.jinja").write_text("{{ raise_exception('no') }}", "utf-8")
    report = preflight(recipe, data=write_rows(tmp_path / "data", example()), environment=ENVIRONMENT)
    assert [finding.guard for finding in report.findings] == ["T18", "T20", "T21"]
    assert any("rows are not checked" in fact for fact in report.facts)


def test_overrides_count_as_if_they_stood_in_the_file(tmp_path: Path) -> None:
    report = preflight(write_recipe(tmp_path), overrides=[f"base.pad_token={END}"], environment=ENVIRONMENT)
    assert {finding.guard for finding in report.findings} == {"T16"}
    assert with_overrides({"tasks": {"x": ["a", "b"]}}, ["tasks.x=[c]"]) == {"tasks": {"x": ["c"]}}
    with pytest.raises(ConfigError, match="no key=value"):
        with_overrides({}, ["seed"])
    with pytest.raises(ConfigError, match="name holds no keys"):
        with_overrides({"base": {"name": "x"}}, ["base.name.part=1"])


def test_a_base_that_rows_need_must_be_there(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    shutil.rmtree(tmp_path / "base")
    with pytest.raises(ConfigError):
        preflight(recipe, data=write_rows(tmp_path / "data", example()), environment=ENVIRONMENT)
    assert preflight(recipe, environment=ENVIRONMENT).findings == ()


def test_the_command_prints_a_table_and_exits_with_2(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(command)
    bad = write_recipe(tmp_path, **{"packing": True, "base.double_quant": False})
    adapter = write_adapter(tmp_path / "adapter", config={"use_dora": True})
    done = CliRunner().invoke(app, [str(bad), "--adapter", str(adapter)])
    assert done.exit_code == 2
    for guard in ("T20", "T06", "T29"):
        assert guard in done.output
    assert "--max-lora-rank 8" in done.output
    told = CliRunner().invoke(app, [str(bad), "--json"])
    assert told.exit_code == 2
    assert {finding["guard"] for finding in json.loads(told.stdout)["findings"]} >= {"T20", "T06"}


def test_it_needs_no_torch(tmp_path: Path) -> None:
    recipe, data = write_recipe(tmp_path), write_rows(tmp_path / "data", example())
    program = (
        "import sys, pathlib; from training.preflight import preflight; "
        f"preflight(pathlib.Path({str(recipe)!r}), data=pathlib.Path({str(data)!r})); "
        "sys.exit(sorted({'torch', 'transformers'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)


def test_rows_are_rendered_as_training_renders_them(tmp_path: Path) -> None:
    base = read_base(write_base(tmp_path / "base"))
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "base" / "tokenizer.json"), pad_token=PAD, eos_token=END
    )
    tokenizer.chat_template = base.template
    row = example()
    (rendered,) = render_rows([row], base)
    trained = completion_ids(tokenizer, row.prompt, row.completion[0]["content"])
    assert all(type(token) is int for token in trained)
    after = len(trained) - len(prompt_ids(tokenizer, row.prompt))
    assert rendered.tokens == len(trained) + 1, "the template ends with a line break, which is not trained"
    assert "".join(rendered.labels[:after]) == tokenizer.decode(trained[-after:])
    for messages in (row.prompt, [control_message("user", "<b> & 'q'")]):
        shown = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert render(str(base.template), messages, answer_next=True) == shown


def test_the_environment_knows_its_ranges() -> None:
    found = read_environment()
    assert {"torch", "transformers", "trl", "peft", "bitsandbytes"} <= set(found.ranges)
    assert found.versions["pytest"]
