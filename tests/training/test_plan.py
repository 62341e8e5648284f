"""The plan's counts against real models, and how its figures move."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from operators.config import load_config
from operators.errors import ConfigError, InputError
from operators.models.local.prefix_tree import TokenRow, pack_rows, unique_tokens
from operators.prompts import PROMPT_VERSIONS
from tests.training.preflight_files import CONFIGS, example
from training.collate import PrefixTreeCollator, feature_of
from training.config import PROJECTIONS, TrainConfig
from training.costs import Method, epoch_flops, layer_bytes, memory_parts, seconds
from training.dry_run import dry_run
from training.gpus import GPUS, find_gpu
from training.plan import describe, plan_table
from training.rows import DataFolder
from training.shapes import measure_shape, meta_model, published_config, with_adapter
from training.workload import Workload, packs_of, rough_rows, workload

RECIPE = load_config(CONFIGS / "qwen2.5-14b-qlora.yaml", TrainConfig)
SMALL = {
    "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64,
}  # fmt: skip
QLORA = Method(nf4=True, bf16=True, autocast=True, checkpointing=True, tree=True)


def random_cases(count: int, chance: random.Random) -> list[list[TokenRow]]:
    cases = []
    for _ in range(count):
        note = tuple(chance.randrange(60) for _ in range(chance.randint(5, 30)))
        tails = [tuple(chance.randrange(60) for _ in range(chance.randint(4, 12))) for _ in range(4)]
        cases.append([TokenRow(note + tail, len(note) + 2) for tail in tails])
    return cases


def load(cases: list[list[TokenRow]], **changes: Any) -> Workload:
    settings: dict[str, Any] = {"pack_tokens": 4096, "epochs": 1, "accumulation": 1} | changes
    return workload("w", [cases[at : at + 2] for at in range(0, len(cases), 2)], **settings)


@pytest.mark.parametrize(
    ("base", "total", "trainable"),
    [
        ("qwen2.5-14b", 14_770_033_664, 68_812_800),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, 40_370_176),
        ("qwen2.5-0.5b", 494_032_768, 8_798_208),
        ("smollm2-135m", 134_515_008, 4_884_480),
    ],
)
def test_parameters_are_counted_without_weights(base: str, total: int, trainable: int) -> None:
    shape = measure_shape(published_config(base), rank=16, targets=PROJECTIONS)
    assert shape.projections + shape.others == total
    assert shape.adapter == trainable


def test_a_base_or_gpu_without_figures_is_named() -> None:
    with pytest.raises(ConfigError, match="no-such-base"):
        published_config("no-such-base")
    with pytest.raises(ConfigError, match="no figures") as told:
        find_gpu("RTX-1")
    assert "H100-80GB" in told.value.hint


def saved_bytes(*, layers: int, tokens: int, dtype: torch.dtype, autocast: bool, attention: str) -> int:
    """Bytes that autograd keeps for the backward pass, parameters and what all layers share left out."""
    model: Any = meta_model(SMALL | {"num_hidden_layers": layers, "_attn_implementation": attention}, dtype)
    adapted = with_adapter(model, rank=4, alpha=8, dropout=0.0, targets=PROJECTIONS).to_empty(device="cpu")
    for module in adapted.modules():
        if "Rotary" in type(module).__name__:
            module.__init__(config=model.config)  # type: ignore[misc]
    held = {parameter.untyped_storage().data_ptr() for parameter in adapted.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        cast_weight = tensor.dim() == 2 and tokens not in tensor.shape
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held and not cast_weight:
            kept[storage.data_ptr()] = storage
        return tensor

    mask = torch.ones(tokens, tokens).tril().bool()[None, None]
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        states = model.model(
            input_ids=torch.zeros(1, tokens, dtype=torch.long), attention_mask=mask,
            position_ids=torch.arange(tokens)[None], use_cache=False,
        ).last_hidden_state  # fmt: skip
    assert states.shape == (1, tokens, SMALL["hidden_size"])
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize(
    ("dtype", "autocast"),
    [(torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)],
    ids=["fp32", "bf16", "bf16-autocast"],
)
def test_what_a_layer_keeps_is_what_autograd_saves(dtype: torch.dtype, autocast: bool) -> None:
    tokens = 96
    counted = [
        saved_bytes(layers=layers, tokens=tokens, dtype=dtype, autocast=autocast, attention="sdpa")
        for layers in (2, 3)
    ]
    shape = measure_shape(SMALL, rank=4, targets=PROJECTIONS)
    method = Method(
        nf4=False, bf16=dtype is torch.bfloat16, autocast=autocast, checkpointing=False, tree=True
    )
    assert layer_bytes(shape, method, tokens) == pytest.approx(counted[1] - counted[0], rel=0.03)


def test_counts_are_those_of_the_packs_that_run() -> None:
    cases = random_cases(9, random.Random(3))
    batch = PrefixTreeCollator(100, 1.0)([feature_of(rows) for rows in cases])
    packs = packs_of(cases, 100)
    assert [unique_tokens(pack) for pack in packs] == [pack.input_ids.numel() for pack in batch["packs"]]
    one = workload("one", [cases], pack_tokens=100, epochs=1, accumulation=1)
    assert one.run_tokens == sum(pack.input_ids.numel() for pack in batch["packs"])
    assert one.targets == batch["shift_labels"].numel()
    assert one.pairs == sum(pack.attention_mask.numel() for pack in batch["packs"])
    assert one.runs == len(packs) > 1
    assert one.largest_run < one.largest_batch == one.run_tokens


def test_steps_follow_batches_accumulation_and_epochs() -> None:
    cases = random_cases(10, random.Random(1))
    assert load(cases).steps == 5
    assert load(cases, accumulation=2).steps == 3
    assert load(cases, accumulation=2, epochs=3).steps == 9
    assert load([]).steps == 0


def test_sharing_prefixes_costs_less_than_padding() -> None:
    cases = random_cases(8, random.Random(2))
    packed, padded = load(cases), load(cases, pack_tokens=None)
    assert packed.row_tokens == padded.row_tokens
    assert packed.run_tokens < packed.row_tokens <= padded.run_tokens + padded.rows


def test_checkpointing_buys_memory_with_time() -> None:
    shape = measure_shape(published_config("qwen2.5-14b"), rank=16, targets=PROJECTIONS)
    work = load(random_cases(8, random.Random(2)))
    plain = Method(nf4=True, bf16=True, autocast=True, checkpointing=False, tree=True)
    assert (
        memory_parts(shape, QLORA, work)["activations"] < memory_parts(shape, plain, work)["activations"] / 4
    )
    assert 1.3 < epoch_flops(shape, QLORA, work) / epoch_flops(shape, plain, work) < 1.6
    gpus = [
        seconds(shape, QLORA, work, GPUS[name]) for name in ("H200", "H100-80GB", "A100-80GB", "RTX-4090")
    ]
    assert gpus == sorted(gpus)


def test_nf4_with_double_quantisation_takes_a_little_more_than_half_a_byte() -> None:
    shape = measure_shape(published_config("qwen2.5-14b"), rank=16, targets=PROJECTIONS)
    parts = memory_parts(shape, QLORA, load(random_cases(2, random.Random(2))))
    assert parts["projections"] / shape.projections == pytest.approx(0.5159, abs=1e-3)


def test_the_table_tells_parameters_memory_time_and_saving() -> None:
    cases = random_cases(6, random.Random(5))
    work = load(cases)
    plan = describe(RECIPE, [work, work], "h100-80gb", from_scratch=[work] * 5)
    assert plan.fits
    assert plan.alternative == pytest.approx(2.5 * plan.total_seconds)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(plan_table(plan))
    text = console.export_text()
    for told in ("68,812,800 trainable", "fits in 80 GiB", "2.5 times as long", "assumed"):
        assert told in text
    with pytest.raises(InputError, match="nothing to train"):
        describe(RECIPE, [], "H200")


def test_a_dry_run_plans_every_adapter_of_both_modes(tmp_path: Path) -> None:
    trajectories = [
        example(id=f"t{n}", origin=f"t{n % 2}", case=f"t{n}", source="trajectory") for n in range(4)
    ]
    synthetic = [example(id=f"s{n}", case=f"s{n}") for n in range(6)]
    for source, rows in (("trajectory", trajectories), ("synthetic", synthetic)):
        lines = "".join(row.json_line() + "\n" for row in rows)
        (tmp_path / f"{source}-compare-claims.jsonl").write_text(lines, "utf-8")
    (tmp_path / "splits").mkdir()
    for holdout in ("t0", "t1"):
        train = [row.id for row in (*trajectories, *synthetic) if row.origin != holdout]
        (tmp_path / "splits" / f"{holdout}.json").write_text(json.dumps({"train": train}), "utf-8")
    (tmp_path / "manifest.json").write_text(json.dumps({"prompt_versions": PROMPT_VERSIONS}), "utf-8")
    plans = [
        dry_run(config, DataFolder(tmp_path), operators=["compare-claims"], holdouts=["all"], gpu="H200")
        for config in (RECIPE, RECIPE.model_copy(update={"mode": "from-scratch"}))
    ]
    plan, scratch = plans
    assert {work.name: work.rows for work in plan.workloads} == {
        "compare-claims/shared": 6, "compare-claims/t0": 2, "compare-claims/t1": 2,
    }  # fmt: skip
    assert {work.name: work.rows for work in scratch.workloads} == {
        "compare-claims/t0": 8, "compare-claims/t1": 8,
    }  # fmt: skip
    assert plan.alternative == scratch.total_seconds > 0
    assert scratch.alternative is None
    assert any("pattern" in note for note in plan.notes)


def test_rough_rows_share_what_rows_share() -> None:
    system = {"role": "system", "content": "One rule for every note."}
    rows = [
        example(id=str(n), prompt=[system, {"role": "user", "content": f"> the port is 8080\nIs it q{n}?"}])
        for n in range(3)
    ]
    rough = rough_rows(rows)
    assert all(1 <= row.labelled_from < len(row.ids) for row in rough)
    assert unique_tokens(rough) < 0.6 * sum(len(row.ids) for row in rough)
    assert pack_rows(rough).input_ids.numel() == unique_tokens(rough)


def test_the_shapes_are_shipped_beside_the_configs() -> None:
    assert {path.stem for path in (Path(__file__).parents[2] / "configs" / "bases").glob("*.json")} >= {
        "qwen2.5-14b", "qwen2.5-7b", "qwen2.5-0.5b", "smollm2-135m",
    }  # fmt: skip
