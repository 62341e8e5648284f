"""The command line as users run it: one clear error for hostile input, nothing written, JSON for programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pygit2
import pytest

from tests.data_builders.test_trajectories import SMALL

ROOT = Path(__file__).parents[2]


def run(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "latticemind", *args],
        cwd=cwd, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
    )  # fmt: skip


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """The error of a refused call: exit code 2, one `error:` line, no traceback."""
    assert result.returncode == 2, (result.stdout, result.stderr)
    assert result.stderr.count("error: ") == 1
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "small.yaml").write_text(SMALL)
    return tmp_path


def commit(repository: pygit2.Repository, message: str, number: int) -> str:
    (Path(repository.workdir) / "file.txt").write_text(f"{number}\n")
    repository.index.add("file.txt")
    author = pygit2.Signature("A", "a@example.org", 1_760_000_000 + number * 86_400, 60)
    parents = [] if repository.head_is_unborn else [repository.head.target]
    tree = repository.index.write_tree()
    return str(repository.create_commit("HEAD", author, author, message, tree, parents))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    found = pygit2.init_repository(str(tmp_path / "repo"))
    commit(found, "CI provider moved from Travis to GitHub Actions\n\nThanks all.", 1)
    commit(found, "Bump minimum Python version to 3.9", 2)
    commit(found, "Fix typo", 3)
    commit(found, "Python minimum version raised from 3.9 to 3.11", 4)
    return tmp_path / "repo"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"\xff\xfe\x00n", "not UTF-8"),
        (b"name: " + b"x" * (10 * 1024 * 1024), "bytes, more than"),
        (b"a: &a [1]\nb: [*a,*a]\n", "aliases"),
        (SMALL.replace("id: s2", "id: s1").encode(), "a second session is called s1"),
        (SMALL.replace("2026-01-02T10:00:00+00:00", "2026-01-02T10:00:00").encode(), "[sessions.1.date]"),
        (SMALL.replace("slot: limit, value: 8", "slot: quota, value: 8").encode(), "no slot api.quota"),
    ],
    ids=["empty", "encoding", "10 MB line", "bomb", "duplicate id", "no zone", "unknown slot"],
)
def test_a_hostile_trajectory_is_one_error_and_changes_nothing(
    folder: Path, content: bytes, says: str
) -> None:
    (folder / "t" / "small.yaml").write_bytes(content)
    before = files_in(folder)
    for command in (
        ["eval", "loo", "--trajectories", "t"],
        ["data", "build", "--out", "d", "--trajectories", "t"],
    ):
        assert says in refused(run(*command, cwd=folder))
        assert files_in(folder) == before


def test_a_commit_that_is_not_in_the_clone_is_named(folder: Path, repository: Path) -> None:
    before = files_in(folder)
    said = refused(run("eval", "loo", "--trajectories", "t", "--repo", str(repository), cwd=folder))
    assert "no commit 0123456789abcdef" in said
    assert files_in(folder) == before


def test_the_real_subject_and_files_are_added_from_a_clone(folder: Path, repository: Path) -> None:
    sha = str(pygit2.Repository(str(repository)).head.target)
    text = SMALL.replace("0123456789abcdef0123456789abcdef01234567", sha)
    second = text[text.index("  - id: s2") : text.index("  - id: d1")]
    text = (
        text.replace(second, "")
        .replace("against: s2", "against: s1")
        .replace("value: 5, change: disputes", "value: 6, change: disputes")
    )
    text = text.replace("The API limit is 5.", "The API limit is 6.").replace(
        "required: [8], forbidden: [5]", "required: [5]"
    )
    (folder / "t" / "small.yaml").write_text(text)
    done = run(
        "data",
        "build",
        "synthetic.scenarios=0",
        "--out",
        "d",
        "--trajectories",
        "t",
        "--repo",
        str(repository),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    row = json.loads((folder / "d" / "trajectory-extract-state.jsonl").read_text().splitlines()[0])
    assert "Python minimum version raised from 3.9 to 3.11" in row["note"]


def test_one_trajectory_of_someone_else_gives_json_twice_the_same(folder: Path) -> None:
    one, two = (run("eval", "loo", "--trajectories", "t", "--json", cwd=folder) for _ in range(2))
    assert one.returncode == 0, one.stderr
    assert one.stdout == two.stdout
    found = json.loads(one.stdout)
    assert {"name", "n", "overall", "extract", "compare", "update", "state", "queries", "outcomes"} <= set(
        found["holdouts"][0]
    )
    assert found["mean"]["update"] == 1.0
    (kept,) = (folder / "runs").iterdir()
    again = run("eval", "stats", str(kept), "--json", cwd=folder)
    assert again.stdout == one.stdout


def test_two_choices_are_compared(folder: Path) -> None:
    args = ["eval", "loo", "--trajectories", "t", "--operators", "rules", "--operators", "compare=latest"]
    found = json.loads(run(*args, "--json", cwd=folder).stdout)
    assert found["mcnemar"]["against"]["compare=latest"]["update"]["only_first"] == 1
    assert "Exact McNemar" in run(*args, cwd=folder).stdout


def test_wrong_words_name_the_nearest_right_one(folder: Path) -> None:
    assert "did you mean `latest`" in refused(
        run("eval", "loo", "--operators", "compare=lattest", cwd=folder)
    )
    said = refused(run("data", "build", "synthetic.scenarois=1", "--out", "d", cwd=folder))
    assert "did you mean `scenarios`" in said
    assert not (folder / "d").exists()


def test_a_repository_replays_into_a_memory(repository: Path, tmp_path: Path) -> None:
    before = files_in(repository)
    done = run("replay", "--repo", str(repository), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "python.minimum_version: 3.11 (code-change, 2025-10-13" in done.stdout
    assert "python.minimum_version: 3.9 -> 3.11" in done.stdout
    assert "ci.provider: github-actions" in done.stdout
    assert "4 commits, 3 of them speaking; 3 claims" in done.stderr
    assert files_in(repository) == before


def test_replay_takes_the_newest_or_those_since_a_date(repository: Path, tmp_path: Path) -> None:
    assert "1 commits" in run("replay", "--repo", str(repository), "--limit", "1", cwd=tmp_path).stderr
    assert (
        "2 commits" in run("replay", "--repo", str(repository), "--since", "2025-10-12", cwd=tmp_path).stderr
    )
    assert "is no ISO date" in refused(
        run("replay", "--repo", str(repository), "--since", "soon", cwd=tmp_path)
    )


def test_an_empty_repository_and_no_repository(tmp_path: Path) -> None:
    pygit2.init_repository(str(tmp_path / "empty"))
    done = run("replay", "--repo", str(tmp_path / "empty"), cwd=tmp_path)
    assert done.returncode == 0
    assert "Nothing is known yet" in done.stdout
    assert "not a git repository" in refused(run("replay", "--repo", str(tmp_path), cwd=tmp_path))


def test_the_core_imports_without_torch(tmp_path: Path) -> None:
    code = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import latticemind, operators, pipeline, data_builders, eval
import operators.assembly, pipeline.loop, data_builders.build, eval.demo
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_loop_benchmark_prints_a_ratio(tmp_path: Path) -> None:
    done = run("bench", "loop", "--claims", "20000", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["claims"] == 20_000
    assert found["cost_ratio"] == pytest.approx(found["short_per_s"] / found["long_per_s"])


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    found = pygit2.init_repository(str(tmp_path / "web"))
    for number, version in enumerate(("17.0.1", "18.2.0", "19.0.0"), 1):
        text = json.dumps({"name": "app", "dependencies": {"react": version}}, indent=1)
        (Path(found.workdir) / "package.json").write_text(text)
        found.index.add("package.json")
        commit(found, f"Bump react to {version}", number)
    return tmp_path / "web"


def test_a_mined_memory_shows_a_keys_history_and_equals_the_head(manifests: Path, tmp_path: Path) -> None:
    before = files_in(manifests)
    shown = run("replay", "--repo", str(manifests), "--mine", "--show", "react", cwd=tmp_path)
    assert "- package.json#react.dependency: 19.0.0 (code-change" in shown.stdout, shown.stderr
    assert "18.2.0 -> 19.0.0" in shown.stdout
    why = run(
        "replay", "--repo", str(manifests), "--mine", "--why", "package.json#react.dependency", cwd=tmp_path
    )
    assert [line.split(":")[0] for line in why.stdout.splitlines() if line.startswith("- ")] == [
        "- 17.0.1", "- 18.2.0", "- 19.0.0",
    ]  # fmt: skip
    assert "from diff:" in why.stdout
    checked = run("replay", "--repo", str(manifests), "--mine", "--check", cwd=tmp_path)
    assert checked.returncode == 0
    assert ", 0 differ" in checked.stdout
    assert files_in(manifests) == before


def test_an_unknown_key_names_near_ones_and_a_malformed_one_the_form(manifests: Path, tmp_path: Path) -> None:
    asked = ["replay", "--repo", str(manifests), "--mine", "--why"]
    assert "package.json#react.dependency" in refused(
        run(*asked, "package.json#reakt.dependency", cwd=tmp_path)
    )
    assert "write entity.slot" in refused(run(*asked, "react", cwd=tmp_path))


def test_mining_writes_a_folder_that_evaluates_and_draws(manifests: Path, tmp_path: Path) -> None:
    done = run("data", "mine", "--repo", f"web={manifests}", "--out", "mined", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["repositories"]["web"]["stated"] == 3
    assert "not written over" in refused(
        run("data", "mine", "--repo", f"web={manifests}", "--out", "mined", cwd=tmp_path)
    )
    scored = json.loads(run("eval", "loo", "--mined", "mined", "--json", cwd=tmp_path).stdout)
    assert [holdout["name"] for holdout in scored["holdouts"]] == ["web"]
    one, two = (run("data", "draw", "mined", "--per-family", "2", cwd=tmp_path).stdout for _ in range(2))
    assert one == two
    assert one.count('"id"') == 2
