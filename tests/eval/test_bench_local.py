"""The local benchmark asks real comparisons over all adapters and measures each extractor on its own adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from data_builders.trajectory import load_trajectories
from eval.bench import local as bench
from eval.bench.local import BATCHES, LocalBench, run_local_bench
from operators.adapters import AdapterCard, BaseCard, write_card
from operators.errors import ConfigError
from operators.models.scripted import ScriptedModel
from operators.models.text import ChoiceRequest, TextModel, TextRequest

TRAJECTORY = load_trajectories(Path(__file__).parents[2] / "configs" / "trajectories")[0]


def adapter(folder: Path, operator: str, *tasks: str) -> Path:
    folder.mkdir(parents=True)
    card = AdapterCard(
        operator=operator, tasks=tasks, holdout="h", stage="single", parent=None,
        base=BaseCard(id="b", revision="1", config_hash="c", tokenizer_hash="t"), prompt_version="2", data_hash="d",
        recipe_hash="r", weights_hash="w", dtype="float32", config={}, training={}, environment={},
    )  # fmt: skip
    write_card(folder, card)
    return folder


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ScriptedModel]]:
    """Each model that the benchmark loads, with its batch size."""
    loaded: list[tuple[int, ScriptedModel]] = []

    def load(base: Path, *, identity: str, adapters: Mapping[str, Path], batch_size: int) -> TextModel:
        assert base.name == identity or adapters
        model = ScriptedModel(lambda _: '{"claims": []}', lambda _: "no")
        loaded.append((batch_size, model))
        return model

    monkeypatch.setattr(bench, "local_model", load)
    return loaded


def adapters_of(requests: Sequence[TextRequest | ChoiceRequest]) -> list[str | None]:
    return [request.adapter for request in requests]


def test_every_batch_size_asks_the_same_comparisons_with_the_adapter_changing(
    tmp_path: Path, models: list[tuple[int, ScriptedModel]]
) -> None:
    folders = {
        "a": adapter(tmp_path / "a", "compare-claims", "compare"),
        "b": adapter(tmp_path / "b", "multi"),
    }
    said: list[str] = []
    found = run_local_bench(tmp_path, folders, TRAJECTORY, requests=9, notes=2, progress=said.append)
    assert [size for size, _ in models] == list(BATCHES)
    assert set(found.per_second) == {(size, bound) for size in BATCHES for bound in (True, False)}
    assert all(rate > 0 for rate in found.per_second.values())
    assert (found.requests, found.notes, len(said)) == (9, 2, 8)
    asked = [model.asked[:18] for _, model in models]
    assert asked[0] == asked[1] == asked[2]
    assert adapters_of(asked[0][:9]) == ["a", "b"] * 4 + ["a"]
    bound = [request.schema is not None for request in asked[0] if isinstance(request, TextRequest)]
    assert bound == [True] * 9 + [False] * 9


def test_each_extractor_is_measured_on_the_adapter_trained_for_it(
    tmp_path: Path, models: list[tuple[int, ScriptedModel]]
) -> None:
    folders = {
        "a-compare": adapter(tmp_path / "c", "compare-claims", "compare"),
        "direct": adapter(tmp_path / "d", "extract-state", "direct"),
        "two": adapter(tmp_path / "t", "extract-state", "select", "fill"),
    }
    found = run_local_bench(tmp_path, folders, TRAJECTORY, requests=1, notes=3)
    extraction = models[-1][1].asked[2:]
    chosen = [request for request in extraction if isinstance(request, ChoiceRequest)]
    assert set(adapters_of(chosen)) == {"two"}
    assert adapters_of(extraction[len(chosen) :]) == ["direct"] * 3
    assert (found.direct_answered, found.two_stage_answered) == (3, 3)


def test_notes_without_an_answer_are_not_counted_as_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = ScriptedModel({}, lambda _: "yes")
    monkeypatch.setattr(bench, "local_model", lambda *_, **__: silent)
    found = run_local_bench(
        tmp_path, {"x": adapter(tmp_path / "x", "extract-state", "fill")}, TRAJECTORY, requests=1, notes=2
    )
    assert (found.direct_answered, found.two_stage_answered) == (0, 0)


def test_adapters_without_one_for_extraction_are_refused(tmp_path: Path) -> None:
    folders = {"c": adapter(tmp_path / "c", "compare-claims", "compare")}
    with pytest.raises(ConfigError, match="no adapter for extract-state"):
        run_local_bench(tmp_path, folders, TRAJECTORY, requests=1, notes=1)


def test_a_cost_below_one_says_that_two_stage_is_cheaper() -> None:
    found = LocalBench(1, {}, 1, direct_s=2.0, two_stage_s=1.0, direct_answered=1, two_stage_answered=1)
    assert found.two_stage_cost == 0.5
