"""The adapters of a server: found, verified, on one base, and each under a name of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval.loo import Row
from eval.runs import record_scores
from operators.adapters import BaseCard
from operators.assembly import ModelSource, parse_choice
from operators.errors import ConfigError, PreflightError
from serving.local_engine import LocalEngine
from serving.registry import SCORES, read_registry
from serving.service import Service
from tests.serving.support import scripted
from tests.support_adapters import BASE, write_adapter

OTHER_BASE = BASE.model_copy(update={"revision": "r2"})
KINDS: dict[str, list[str]] = {
    "extract-state": ["select", "fill"], "compare-claims": ["compare"], "update-memory": ["update"],
}  # fmt: skip


def write_run(run: Path, *kinds: str, holdout: str = "one", base: BaseCard = BASE) -> Path:
    """A run as training leaves it, with one adapter of each operator."""
    for operator in kinds or KINDS:
        write_adapter(
            run / "adapters" / operator / holdout,
            operator=operator, tasks=KINDS[operator], holdout=holdout, base=base.model_dump(),
            recipe_hash=f"{run.name}-{holdout}",
        )  # fmt: skip
    return run


def test_a_run_is_read_with_every_adapter_it_holds(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    registry = read_registry([run])
    assert {adapter.card.operator for adapter in registry.adapters} == set(KINDS)
    assert registry.base == BASE
    for operator in KINDS:
        found = registry.answering(operator)
        assert found.folder == (run / "adapters" / operator / "one").resolve()
        assert registry.default_name(operator) == found.name == registry.named(found.name).name


def test_one_adapter_may_be_given_by_its_folder(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "alone")
    [adapter] = read_registry([folder]).adapters
    assert (adapter.folder, adapter.scores) == (folder.resolve(), {})


def test_two_runs_are_served_together(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a", "extract-state"), write_run(tmp_path / "b", "update-memory")]
    registry = read_registry(runs)
    assert [adapter.card.operator for adapter in registry.adapters] == ["extract-state", "update-memory"]
    with pytest.raises(ConfigError, match="no adapter for compare-claims"):
        registry.answering("compare-claims")


def test_an_adapter_that_is_given_twice_is_an_error(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for twice in [run, run], [run, run / "adapters" / "update-memory" / "one"]:
        with pytest.raises(ConfigError, match="given twice"):
            read_registry(twice)


def test_where_there_is_no_adapter_there_is_no_registry(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no adapter is given"):
        read_registry([])
    for place in tmp_path, tmp_path / "missing":
        with pytest.raises(ConfigError, match="holds no adapter"):
            read_registry([write_run(tmp_path.parent / f"{tmp_path.name}-{place.name}"), place])


def test_the_holdout_says_whose_adapters_answer(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for holdout in "one", "two":
        write_run(run, holdout=holdout)
    for holdout in "one", "two":
        assert read_registry([run], holdout=holdout).answering("update-memory").card.holdout == holdout
    undecided = read_registry([run])
    assert undecided.default_name("update-memory") is None
    with pytest.raises(ConfigError, match="several adapters") as several:
        undecided.answering("update-memory")
    names = [adapter.name for adapter in undecided.adapters if adapter.answers("update-memory")]
    assert len(names) == 2
    assert all(name in several.value.hint for name in names)
    with pytest.raises(ConfigError, match="'three'") as unknown:
        read_registry([run], holdout="three")
    assert "one, two" in unknown.value.hint


def test_an_operator_without_an_adapter_of_the_holdout_has_to_be_asked_by_name(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "extract-state", holdout="one")
    registry = read_registry([write_run(run, "update-memory", holdout="two")], holdout="one")
    with pytest.raises(ConfigError, match="this holdout"):
        registry.answering("update-memory")
    name = next(adapter.name for adapter in registry.adapters if adapter.card.holdout == "two")
    assert registry.answering("update-memory", name).name == name


def test_an_operators_own_adapter_goes_before_one_of_many_tasks(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "update-memory")
    tasks = ["select", "fill", "compare", "update"]
    write_adapter(run / "adapters" / "multi" / "one", operator="multi", tasks=tasks)
    registry = read_registry([run])
    answering = {operator: registry.answering(operator).card.operator for operator in KINDS}
    assert answering == {
        "extract-state": "multi",
        "compare-claims": "multi",
        "update-memory": "update-memory",
    }


def test_adapters_of_two_bases_are_refused(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", "extract-state")
    second = write_run(tmp_path / "b", "update-memory", base=OTHER_BASE)
    assert read_registry([second]).base == OTHER_BASE
    with pytest.raises(PreflightError, match="T33"):
        read_registry([first, second])
    with pytest.raises(PreflightError, match="T33"):
        read_registry([first], base=OTHER_BASE)


def test_a_damaged_adapter_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "adapters" / "update-memory" / "one" / "adapter_model.safetensors").write_bytes(b"half")
    with pytest.raises(PreflightError):
        read_registry([run])


def test_scores_beside_the_adapters_go_to_the_adapter_they_name(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "extract-state", "update-memory")
    name = read_registry([run]).answering("extract-state").name
    scores = {name: {"threshold": 0.35, "f1": 0.8}, "another": {"f1": 0.1}}
    (run / SCORES).write_text(json.dumps(scores), encoding="utf-8")
    registry = read_registry([run])
    assert registry.answering("extract-state").scores == scores[name]
    assert registry.answering("update-memory").scores == {}
    engine = LocalEngine(scripted(), batch_size=1, timeout_s=1)
    for threshold, expected in (None, 0.35), (0.7, 0.7):
        [extract, _, _] = Service(engine, registry, threshold).operators()
        assert extract.adapters[0].threshold == expected
    engine.close()


def test_what_an_evaluation_records_of_an_adapter_is_what_is_served_beside_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "extract-state", "update-memory")
    (run / SCORES).write_text(json.dumps({"older": {"score": 0.2}}), encoding="utf-8")
    names = {one.card.operator: one.name for one in read_registry([run]).adapters}
    choice = parse_choice("extract=two-stage,compare=rules,update=rules")
    source = ModelSource(scripted(), {"extract-state": names["extract-state"]}, 0.35)
    rows = [
        *(
            Row("one", "extract", str(number), "valid", score, {})
            for number, score in enumerate((1.0, 0.0, 0.5))
        ),
        Row("two", "extract", "of another holdout", "valid", 0.0, {}),
        Row("one", "update", "by rules", "valid", 0.0, {}),
    ]
    record_scores(run, rows, choice, {"one": source})
    extract = read_registry([run]).answering("extract-state")
    measured = {"operator": "two-stage", "score": 0.5, "n": 3, "threshold": 0.35, "holdout": "one"}
    assert (extract.scores, extract.threshold) == (measured, 0.35)
    assert read_registry([run]).answering("update-memory").scores == {}
    assert json.loads((run / SCORES).read_bytes())["older"] == {"score": 0.2}


@pytest.mark.parametrize("content", [b"", b'{"half": ', b"\xff\xfe"])
def test_broken_scores_are_an_error_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    run = write_run(tmp_path / "run")
    (run / SCORES).write_bytes(content)
    with pytest.raises(PreflightError, match=SCORES):
        read_registry([run])


@pytest.mark.parametrize(
    "measured", [{"threshold": None}, {"threshold": "high"}, {"threshold": 7.0}, 0.5, []]
)
def test_scores_of_another_shape_are_an_error_before_anything_is_served(
    tmp_path: Path, measured: object
) -> None:
    run = write_run(tmp_path / "run", "extract-state")
    name = read_registry([run]).answering("extract-state").name
    (run / SCORES).write_text(json.dumps({name: measured}), encoding="utf-8")
    with pytest.raises(PreflightError, match=SCORES):
        read_registry([run])
