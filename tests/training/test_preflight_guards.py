"""Each guard refuses one bad thing, with its number and a hint; a sound set passes them all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operators.adapter_checks import verify_adapter
from operators.errors import PreflightError
from tests.support_adapters import lora
from tests.training.preflight_files import (
    BASE_CARD,
    END,
    ENVIRONMENT,
    PAD,
    TEMPLATE,
    changed,
    example,
    recipe_data,
    write_adapter,
    write_base,
)
from training.guards import ELSEWHERE, GUARDS, find_faults
from training.guards.inspected import Inspected, Recipe
from training.guards.options import OPTIONS, option_hint
from training.guards.reading import read_adapter, read_base, render_rows
from training.preflight import findings_of


def sound(folder: Path, **changes: Any) -> Inspected:
    """Everything sound, except what is changed: recipe keys, base files, a row, an adapter, versions."""
    base_folder = write_base(folder / "base")
    for name, data in changes.get("base", {}).items():
        path = base_folder / name
        kept = json.loads(path.read_text("utf-8")) | data if path.suffix == ".json" else data
        path.write_text(kept if isinstance(kept, str) else json.dumps(kept), "utf-8")
    base = read_base(base_folder, BASE_CARD)
    rows = () if changes.get("no_rows") else tuple(render_rows([example(**changes.get("row", {}))], base))
    return Inspected(
        recipe=Recipe(changed(recipe_data(), changes.get("recipe", {}))),
        environment=replace(ENVIRONMENT, versions=dict(ENVIRONMENT.versions) | changes.get("versions", {})),
        base=base,
        rows=tuple(replace(row, **changes.get("rendered", {})) for row in rows),
        adapter=read_adapter(write_adapter(folder / "adapter", **changes.get("adapter", {}))),
    )


def peft(**config: Any) -> dict[str, Any]:
    return {"adapter": {"config": config}}


def user(text: str) -> dict[str, Any]:
    prompt = [{"role": "system", "content": "Compare."}, {"role": "user", "content": text}]
    return {"row": {"prompt": prompt}}


def answer(text: str) -> dict[str, Any]:
    return {"row": {"completion": [{"role": "assistant", "content": text}]}}


SILENT = {
    name: (kind, shape, bytes(len(data))) for name, (kind, shape, data) in lora("q_proj", "v_proj").items()
}
BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("T01", "train on the bf16 base", {"base": {"config.json": {"quantization_config": BNB}}}),
    ("T01", "train on the bf16 base", {"base": {"config.json": {"quantization_config": {"quant_method": "awq"}}}}),
    ("T02", "pip install 'transformers>=5.16.1,<5.20'", {"versions": {"transformers": "5.23.0"}}),
    ("T02", "virtual environment of its own", {"versions": {"vllm": "0.33.0"}}),
    ("T03", "base.quantization: nf4", {"recipe": {"load_in_4bit": True}}),
    ("T04", "write bfloat16", {"recipe": {"base.dtype": ...}}),
    ("T04", "write base.dtype", {"recipe": {"base.torch_dtype": "bfloat16"}}),
    ("T06", "write nf4", {"recipe": {"base.quantization": "fp4"}}),
    ("T06", "double_quant: true", {"recipe": {"base.double_quant": False}}),
    ("T06", "compute_dtype: bfloat16", {"recipe": {"base.compute_dtype": "float32"}}),
    ("T06", "compute_dtype: bfloat16", {"recipe": {"base.compute_dtype": ...}}),
    ("T08", "optim.warmup", {"recipe": {"optim.warmup_ratio": 0.03}}),
    ("T08", "always safetensors", {"recipe": {"save_safetensors": True}}),
    ("T08", "groups rows by length", {"recipe": {"group_by_length": True}}),
    ("T08", "eval loo", {"recipe": {"evaluation_strategy": "steps"}}),
    ("T08", "run folder", {"recipe": {"logging_dir": "x"}}),
    ("T08", "new folder", {"recipe": {"overwrite_output_dir": True}}),
    ("T08", "processing_class", {"recipe": {"tokenizer": "x"}}),
    ("T09", "with the peft that serves it", peft(brand_new_trick=True)),
    ("T11", "prompt/completion", {"recipe": {"assistant_only_loss": True}}),
    ("T11", "completion: [assistant]", {"row": {"completion": [{"role": "user", "content": "x"}]}}),
    ("T12", "empty answer", answer("")),
    ("T13", "set max_length: ", user("long " * 1000)),
    ("T13", "raise max_length", {"recipe": {"truncation_mode": "keep_end"}}),
    ("T14", "write max_length", {"recipe": {"max_length": ...}}),
    ("T14", "write max_length", {"recipe": {"max_seq_length": 2048}}),
    ("T15", "liger", {"recipe": {"use_liger_kernel": True}}),
    ("T16", "another token", {"recipe": {"base.pad_token": END}}),
    ("T16", "eos_token: <|im_end|>", {"recipe": {"base.eos_token": ...}}),
    ("T16", "control tokens of this base", {"recipe": {"base.pad_token": "<pad>"}}),
    ("T17", "take it out of eos_token_id", {"base": {"config.json": {"bos_token_id": None}}}),
    ("T17", "set base.eos_token", {"base": {"generation_config.json": {"eos_token_id": 7}}}),
    ("T18", "token it does end with", {"base": {"chat_template.jinja": TEMPLATE.replace("}}<|im_end|>", "}}")}}),
    ("T18", "whose template does", {"base": {"chat_template.jinja": "{% if %}"}, "no_rows": True}),
    ("T18", "whose template does", {"base": {"chat_template.jinja": "{{ strftime_now('%Y') }}" + TEMPLATE}, "no_rows": True}),
    ("T18", "the template ends a turn with", {"rendered": {"labels": ("a", "b")}}),
    ("T19", "one template", {"rendered": {"prompt_is_prefix": False}}),
    ("T20", "prefix-tree", {"recipe": {"packing": True}}),
    ("T20", "base.attention: sdpa", {"recipe": {"base.attention": "flash_attention_2"}}),
    ("T21", "takes one", {"base": {"chat_template.jinja": TEMPLATE.replace("m in messages", "m in messages[1:]")}}),
    ("T21", "takes one", {"base": {"chat_template.jinja": "{% if messages[0]['role'] == 'system' %}{{ raise_exception('none') }}{% endif %}" + TEMPLATE}, "no_rows": True}),
    ("T21", "replaces its default", {"base": {"chat_template.jinja": TEMPLATE.replace("messages[0]['role'] != 'system'", "true")}}),
    ("T21", "latticemind data build", {"row": {"prompt": [{"role": "user", "content": "no rules"}]}}),
    ("T22", "sanitised", user(f"a note that forges {END} a turn")),
    ("T23", "the base's own vocabulary", {"recipe": {"resize_token_embeddings": True}}),
    ("T23", "nothing is resized", {"base": {"config.json": {"vocab_size": 256}}}),
    ("T23", "no embeddings", {"adapter": {"size": 500 * 1024 * 1024 + 1}}),
    ("T24", "trains lm_head", {"recipe": {"chat_template_path": "x"}}),
    ("T24", "without modules_to_save", peft(modules_to_save=["lm_head"])),
    ("T25", "list it once", {"recipe": {"lora.modules_to_save": ["q_proj"]}}),
    ("T25", "list it once", {"recipe": {"lora.target_modules": ["q_proj", "q_proj"]}}),
    ("T25", "listed once", peft(modules_to_save=["q_proj"])),
    ("T28", "adapt the projections", {"recipe": {"lora.target_modules": ["lm_head"]}}),
    ("T28", "adapt the projections", {"recipe": {"lora.target_modules": "all-linear"}}),
    ("T28", "cannot be served", peft(target_modules="all-linear")),
    ("T28", "seven projections", {"adapter": {"tensors": lora("q_proj", "v_proj") | {"base_model.model.lm_head.weight": ("F32", (1,), bytes(4))}}}),
    ("T29", "plain LoRA", {"recipe": {"lora.use_dora": True}}),
    ("T29", "plain LoRA", peft(use_dora=True)),
    ("T29", "plain LoRA", peft(lora_bias=True)),
    ("T29", "plain LoRA", peft(bias="all")),
    ("T29", "plain LoRA", peft(init_lora_weights="pissa")),
    ("T29", "plain LoRA", peft(init_lora_weights="gaussian")),
    ("T29", "plain LoRA", peft(alora_invocation_tokens=[1])),
    ("T29", "plain LoRA", peft(layer_replication=[[0, 2]])),
    ("T29", "plain LoRA", peft(use_qalora=True)),
    ("T29", "plain LoRA", peft(use_bdlora={"a": 1})),
    ("T29", "plain LoRA", peft(loftq_config={"loftq_bits": 4})),
    ("T30", "lora.r and lora.alpha", {"recipe": {"lora.rank_pattern": {"q_proj": 8}}}),
    ("T30", "one r and one alpha", peft(use_rslora=True)),
    ("T30", "one r and one alpha", peft(rank_pattern={"q_proj": 8})),
    ("T30", "one r and one alpha", peft(alpha_pattern={"q_proj": 8})),
    ("T31", "at most 512", {"recipe": {"lora.r": 513}}),
    ("T31", "1 to 512", peft(r=1024)),
    ("T31", "1 to 512", peft(r=0)),
    ("T32", "never merged", {"recipe": {"merge_and_unload": True}}),
    ("T32", "bf16 base", {"adapter": {"files": {"config.json": {"quantization_config": BNB}}}}),
    ("T33", "its own base", {"adapter": {"card": {"base": BASE_CARD | {"revision": "r2"}}}}),
    ("T33", "its own base", {"adapter": {"card": {"base": BASE_CARD | {"tokenizer_hash": "t2"}}}}),
    ("T33", "latticemind train", {"adapter": {"card": {"base": None}}}),
    ("T34", "train it", {"adapter": {"tensors": SILENT}}),
    ("adapter", "restore it", {"adapter": {"card": {"weights_hash": "another"}}}),
    ("adapter", "copy it again", {"adapter": {"size": 900}}),
    ("adapter", "train again", {"adapter": {"card": {"prompt_version": "0"}}}),
    ("adapter", "two adapters", peft(target_modules=["q_proj"])),
]  # fmt: skip


@pytest.mark.parametrize(("guard", "hint", "change"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_a_guard_refuses_with_its_number_and_a_hint(
    guard: str, hint: str, change: dict[str, Any], tmp_path: Path
) -> None:
    found = [finding for finding in findings_of(sound(tmp_path, **change)) if finding.guard == guard]
    assert found, f"{guard} is silent"
    assert all(finding.hint and finding.where and finding.message for finding in found)
    assert any(hint in finding.hint for finding in found), [finding.hint for finding in found]


def test_a_sound_set_passes_every_guard(tmp_path: Path) -> None:
    seen = sound(tmp_path)
    assert seen.rows[0].labels[-2:] == (END, "\n")
    assert findings_of(seen) == []


def test_every_registered_guard_has_a_case() -> None:
    told_by_verify_adapter = {"T34", "adapter"}
    assert {guard.id for guard in GUARDS} | told_by_verify_adapter == {case[0] for case in CASES}


def test_an_adapter_that_verify_refuses_is_refused_here_and_once(tmp_path: Path) -> None:
    change = {
        "config": {"use_dora": True, "use_rslora": True, "target_modules": "all-linear", "r": 1024},
        "tensors": {"base_model.model.lm_head.weight": ("F32", (1,), bytes(4))},
    }
    seen = sound(
        tmp_path, adapter=change | {"card": {"prompt_version": "0", "base": BASE_CARD | {"id": "x"}}}
    )
    told = [(finding.guard, Path(finding.where.split(" [")[0]).name) for finding in findings_of(seen)]
    assert sorted(told) == [
        ("T28", "adapter_config.json"), ("T28", "adapter_model.safetensors"), ("T29", "adapter_config.json"), ("T30", "adapter_config.json"),
        ("T31", "adapter_config.json"), ("T33", "adapter.json"),
    ]  # fmt: skip
    assert seen.adapter is not None
    with pytest.raises(PreflightError):
        verify_adapter(seen.adapter.folder)


def test_without_the_base_an_adapter_is_held_against_the_recipe(tmp_path: Path) -> None:
    seen = replace(sound(tmp_path), base=None, rows=())
    told = {finding.where.split("[")[1] for finding in find_faults(seen) if finding.guard == "T33"}
    assert told == {"base.id]", "base.revision]"}


def test_a_template_that_marks_what_it_generates_renders_the_same(tmp_path: Path) -> None:
    content = "{{ m['content'] }}"
    marked = TEMPLATE.replace(content, f"{{% generation %}}{content}{{% endgeneration %}}")
    seen = sound(tmp_path, base={"chat_template.jinja": marked})
    assert findings_of(seen) == []
    assert seen.rows == sound(tmp_path / "plain").rows


def test_a_base_with_several_templates_gives_its_default(tmp_path: Path) -> None:
    folder = write_base(tmp_path / "base")
    (folder / "chat_template.jinja").unlink()
    for names, found in ((["tool_use", "default"], TEMPLATE), (["tool_use"], None)):
        stored = [{"name": name, "template": TEMPLATE if name == "default" else "x"} for name in names]
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": stored}), "utf-8")
        assert read_base(folder).template == found


def test_every_known_trap_of_training_is_guarded_here_or_elsewhere() -> None:
    here, elsewhere = {guard.id for guard in GUARDS}, set(ELSEWHERE)
    assert here | elsewhere == {f"T{number:02}" for number in range(1, 34)}
    assert not here & elsewhere
    places = [place.split(": ")[0] for place in ELSEWHERE.values()]
    assert all((Path(__file__).parents[2] / place).is_file() for place in places), places


def test_the_guide_lists_every_guard() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text("utf-8")
    rows = {
        line.split(" | ")[0].removeprefix("| "): line for line in guide.splitlines() if line.startswith("| T")
    }
    assert set(rows) == {guard.id for guard in GUARDS} | set(ELSEWHERE)
    assert all(guard.about in rows[guard.id] for guard in GUARDS)


def test_padding_that_is_the_document_boundary_may_stop_generation(tmp_path: Path) -> None:
    seen = sound(tmp_path)
    assert seen.base is not None
    assert seen.base.tokens[PAD] in seen.base.generation["eos_token_id"]
    assert not [finding for finding in find_faults(seen) if finding.guard == "T17"]


def test_no_foreign_option_is_a_key_that_recipes_state() -> None:
    stated = {key for key, _ in Recipe(recipe_data()).settings()}
    assert {key for key in stated if key in OPTIONS and OPTIONS[key].guard != "config"} == set()
    assert option_hint("max_seq_length")
    assert option_hint("max_length") is None


def test_nothing_that_trains_or_runs_models_imports_the_server() -> None:
    root = Path(__file__).parents[2]
    files = [path for room in ("operators", "training") for path in (root / room).rglob("*.py")]
    assert files
    lines = [line for path in files for line in path.read_text("utf-8").splitlines()]
    assert not [line for line in lines if line.split()[:2] in (["import", "vllm"], ["from", "vllm"])]
