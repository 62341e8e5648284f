"""`latticemind train`, `preflight` and an evaluation of what was trained, as users run them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from latticemind import main
from operators.adapters import WEIGHTS
from tests.support_models import tiny_base
from tests.training.support import HOLDOUTS, OPERATORS, recipe, write_data

HELD_OUT = HOLDOUTS[0]
CONFIGS = Path(__file__).parents[2] / "configs" / "train"
RECIPES = sorted(path for path in CONFIGS.glob("*.yaml") if "accelerate" not in path.name)


@dataclass(frozen=True)
class Done:
    """What a call printed, and its exit code."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@dataclass(frozen=True)
class Place:
    """A folder with a recipe, built data and a tiny base, and where its run goes."""

    folder: Path

    @property
    def recipe(self) -> str:
        return str(self.folder / "recipe.yaml")

    @property
    def base(self) -> str:
        return str(self.folder / "tiny")

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def adapter(self) -> Path:
        return self.run / "adapters" / "compare-claims" / HELD_OUT

    def train(self, *more: str, target: str = "run") -> list[str]:
        """The command that trains one fold of compare-claims, its base given as an override."""
        return [
            "train", self.recipe, f"base.name={self.base}", "--data", str(self.folder / "data"),
            "--out", str(self.folder / target), "--operator", "compare-claims", "--holdout", HELD_OUT, *more,
        ]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The front door, in this process, with caches of the test's own and no hub."""
    monkeypatch.setenv("LATTICEMIND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def call(*args: str) -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["latticemind", *args])
        with pytest.raises(SystemExit) as left:
            main()
        return Done(int(left.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("train")
    tiny_base(folder / "tiny")
    write_data(folder / "data")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe().model_dump(mode="json")), encoding="utf-8")
    return Place(folder)


@pytest.fixture
def trained(place: Place, run: Run) -> Place:
    """The place with its run trained: by whichever test asks first."""
    if not place.adapter.exists():
        assert run(*place.train()).code == 0
    return place


def refused(done: Done, *, code: int = 2) -> str:
    """The error of a refused call: its exit code, one error and a hint."""
    assert done.code == code, done
    assert done.err.count("error: ") == 1
    assert "hint: " in done.err
    return done.err


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def loo(*more: str, holdout: str = HELD_OUT, runs: Path) -> list[str]:
    """The command that scores learned comparisons on a holdout."""
    return [
        "eval", "loo", "--operators", "compare=learned", "--holdout", holdout, "--runs", str(runs), "--json",
        *more,
    ]  # fmt: skip


def test_train_makes_the_shared_adapter_and_the_folds_and_does_nothing_the_second_time(
    place: Place, run: Run
) -> None:
    done = run(*place.train(target="twice"))
    assert done.code == 0, done.err
    assert done.out.endswith("2 adapters, 2 of them trained now\n")
    assert f"compare-claims/{HELD_OUT}: step 4/4" in done.err
    before = files_in(place.folder / "twice")
    assert {f"adapters/compare-claims/{stage}/{WEIGHTS}" for stage in ("shared", HELD_OUT)} <= set(before)
    again = run(*place.train(target="twice"))
    assert again.out.endswith("2 adapters, 0 of them trained now\n")
    assert files_in(place.folder / "twice") == before


def test_a_changed_recipe_does_not_train_over_what_is_there(trained: Place, run: Run) -> None:
    before = files_in(trained.run)
    said = refused(run(*trained.train("optim.seed=9")), code=1)
    assert "another recipe or other data" in said
    assert files_in(trained.run) == before


def test_a_dry_run_prints_the_plan_and_writes_nothing(place: Place, run: Run) -> None:
    done = run(*place.train("--dry-run", target="planned"))
    assert done.code == 0, done.err
    assert f"compare-claims/{HELD_OUT}" in done.out
    assert not (place.folder / "planned").exists()


def test_what_was_trained_is_listed_shown_and_verified_on_its_base(trained: Place, run: Run) -> None:
    rows = json.loads(run("adapters", "list", str(trained.run), "--json").out)
    assert [(row["holdout"], row["stage"], row["check"]) for row in rows] == [
        (HELD_OUT, "fold", "ok"), ("none", "shared", "ok"),
    ]  # fmt: skip
    card = json.loads(run("adapters", "show", str(trained.adapter), "--json").out)
    assert card["name"] == rows[0]["name"]
    assert card["parent"] == rows[1]["name"]
    assert card["config"]["base"]["name"] == trained.base
    done = run("adapters", "verify", str(trained.adapter), "--base", trained.base)
    assert (done.code, done.out) == (0, f"{card['name']}: ok\n")


def test_an_adapter_is_not_taken_for_one_of_another_base_of_the_same_shape(
    trained: Place, run: Run, tmp_path: Path
) -> None:
    other = str(tiny_base(tmp_path / "tiny", seed=1))
    assert "T33" in refused(run("adapters", "verify", str(trained.adapter), "--base", other))
    said = refused(run(*loo("--adapters", str(trained.run), "--base", other, runs=tmp_path / "runs")))
    assert "T33" in said
    assert not (tmp_path / "runs").exists()


def test_the_adapter_answers_for_the_holdout_it_has_not_seen(
    trained: Place, run: Run, tmp_path: Path
) -> None:
    done = run(*loo("--adapters", str(trained.run), "--base", trained.base, runs=tmp_path / "runs"))
    assert done.code == 0, done.err
    (holdout,) = json.loads(done.out)["holdouts"]
    assert holdout["name"] == HELD_OUT
    compared = holdout["outcomes"]["compare"]
    assert sum(compared.values()) > 10
    assert set(compared) == {"valid"}  # a random model too answers under the schema
    (scored,) = (tmp_path / "runs").rglob("rows.jsonl")
    rows = [json.loads(line) for line in scored.read_text("utf-8").splitlines()]
    assert {row["holdout"] for row in rows} == {HELD_OUT}


def test_a_holdout_that_the_adapters_have_seen_is_refused(trained: Place, run: Run, tmp_path: Path) -> None:
    given = ("--adapters", str(trained.run), "--base", trained.base)
    said = refused(run(*loo(*given, holdout=HOLDOUTS[1], runs=tmp_path / "runs")))
    assert f"no compare-claims adapter that leaves out {HOLDOUTS[1]}" in said
    assert f"compare-claims without {HELD_OUT}" in said
    assert not (tmp_path / "runs").exists()


def test_a_learned_step_without_a_model_is_refused(run: Run, tmp_path: Path) -> None:
    assert "--adapters RUN or --base NAME" in refused(run(*loo(runs=tmp_path / "runs")))


def test_preflight_passes_the_recipe_with_its_rows_and_tells_what_it_read(trained: Place, run: Run) -> None:
    override = f"base.name={trained.base}"
    done = run(
        "preflight", trained.recipe, override, "--data", str(trained.folder / "data"),
        "--adapter", str(trained.adapter), "--json",
    )  # fmt: skip
    assert done.code == 0, done.out
    report = json.loads(done.out)
    assert report["findings"] == []
    facts = "\n".join(report["facts"])
    assert trained.base in facts
    assert "are trained; median" in facts
    assert "--max-lora-rank 8" in facts


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_shipped_recipe_passes_and_says_that_its_base_is_still_to_be_fetched(
    run: Run, path: Path
) -> None:
    done = run("preflight", str(path), "--json")
    assert done.code == 0, done.out
    report = json.loads(done.out)
    assert report["findings"] == []
    assert "latticemind models fetch" in report["facts"][0]


FAULTS = [
    ("base.pad_token=<|im_end|>", "T16"),
    ("base.quantization=nf4 base.double_quant=false", "T06"),
    ("packing=true", "T20"),
    ("lora.r=513", "T31"),
]


@pytest.mark.parametrize(("overrides", "guard"), FAULTS)
def test_a_fault_of_the_recipe_stops_preflight_and_training_alike(
    place: Place, run: Run, overrides: str, guard: str
) -> None:
    checked = run("preflight", place.recipe, f"base.name={place.base}", *overrides.split(), "--json")
    assert checked.code == 2
    assert guard in {finding["guard"] for finding in json.loads(checked.out)["findings"]}
    said = refused(run(*place.train(*overrides.split(), target="faulty")))
    assert f"{guard} " in said
    assert not (place.folder / "faulty").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"recipe.yaml": "nowhere.yaml"}, "nowhere.yaml"),
        ({"data": "nowhere"}, "no manifest.json here"),
        ({"compare-claims": "compare"}, "no operator 'compare'"),
        ({HELD_OUT: "nobody"}, "no holdout 'nobody'"),
        ({"tiny": "nothing-there"}, "nothing-there"),
        ({"base.name={}": "base.name=qwen2.5-0.5b"}, "latticemind models fetch qwen2.5-0.5b"),
    ],
    ids=["no recipe", "no data", "no operator", "no holdout", "no base", "a base not fetched"],
)
def test_what_is_not_there_is_named_and_nothing_is_written(
    place: Place, run: Run, change: dict[str, str], said: str
) -> None:
    ((old, new),) = change.items()
    args = [
        arg.replace(old.format(place.base), new) if old.format(place.base) in {arg, Path(arg).name} else arg
        for arg in place.train(target="none")
    ]
    assert said in refused(run(*args))
    assert not (place.folder / "none").exists()


def test_ray_workers_are_asked_for_by_name_only(place: Place, run: Run) -> None:
    done = run(*place.train("--executor", "slurm", target="none"))
    assert done.code == 2
    assert "slurm" in done.err


def test_the_operators_of_the_recipe_are_all_planned(place: Place, run: Run) -> None:
    done = run(
        "train", place.recipe, f"base.name={place.base}", "--data", str(place.folder / "data"),
        "--out", str(place.folder / "all"), "--dry-run",
    )  # fmt: skip
    assert done.code == 0, done.err
    for operator in OPERATORS:
        for job in ("shared", *HOLDOUTS):
            assert f"{operator}/{job}" in done.out
