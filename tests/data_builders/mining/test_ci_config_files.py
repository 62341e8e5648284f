"""What the miners of containers and CI, of configuration and of files read, and what they survive."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_builders.mining.facts import Fact, Miner, UnreadableError
from data_builders.mining.miners.azure_pipelines import AzurePipelinesMiner
from data_builders.mining.miners.circleci import CircleCiMiner
from data_builders.mining.miners.command_names import (
    CargoCommandsMiner,
    PackageCommandsMiner,
    PythonCommandsMiner,
)
from data_builders.mining.miners.config_settings import JsonConfigMiner, TomlConfigMiner, YamlConfigMiner
from data_builders.mining.miners.dockerfile import DockerfileMiner
from data_builders.mining.miners.file_presence import FilePresenceMiner
from data_builders.mining.miners.github_actions import GithubActionsMiner
from data_builders.mining.miners.gitlab_ci import GitlabCiMiner
from data_builders.mining.miners.pre_commit import PreCommitMiner
from operators.normal import Form

MINERS: dict[Miner, str] = {
    DockerfileMiner(): "Dockerfile",
    GithubActionsMiner(): ".github/workflows/ci.yml",
    GitlabCiMiner(): ".gitlab-ci.yml",
    CircleCiMiner(): ".circleci/config.yml",
    AzurePipelinesMiner(): "azure-pipelines.yml",
    TomlConfigMiner(): "ruff.toml",
    YamlConfigMiner(): "mkdocs.yml",
    JsonConfigMiner(): "tsconfig.json",
    PreCommitMiner(): ".pre-commit-config.yaml",
    PackageCommandsMiner(): "package.json",
    PythonCommandsMiner(): "pyproject.toml",
    CargoCommandsMiner(): "Cargo.toml",
    FilePresenceMiner(): "README.md",
}
YAML_MINERS = [each for each, path in MINERS.items() if path.endswith((".yml", ".yaml"))]
SHA = "11bd71901bbe5b1630ceea73d27597364c9af683"


def values(facts: Sequence[Fact], thing: str, slot: str) -> list[str]:
    return [fact.value for fact in facts if (fact.thing, fact.slot) == (thing, slot)]


def triples(facts: Sequence[Fact]) -> set[tuple[str, str, str]]:
    return {(fact.thing, fact.slot, fact.value) for fact in facts}


def assert_lawful(miner: Miner, facts: Sequence[Fact]) -> None:
    keys = [(fact.thing, fact.slot, fact.value if fact.many else None) for fact in facts]
    assert len(keys) == len(set(keys))
    for fact in facts:
        assert fact.slot in miner.slots
        assert fact.thing
        assert 0 < len(fact.value) <= 120
        assert fact.value.isprintable()
        assert fact.form is not Form.FLAG or fact.value in {"on", "off"}


WORKFLOW = f"""
name: CI
on:
  push: {{branches: [main]}}
  schedule:
    - cron: "0 3 * * 1"
  workflow_dispatch:
    inputs:
      dry-run: {{default: true}}
permissions:
  contents: read
env:
  UV_VERSION: 0.10
  TOKEN: ${{{{ secrets.TOKEN }}}}
jobs:
  unit-tests:
    runs-on: ubuntu-24.04
    timeout-minutes: 30
    container: python:3.12-slim@sha256:{"a" * 64}
    services:
      postgres: {{image: "postgres:16"}}
    strategy:
      fail-fast: false
      matrix:
        python-version: [3.10, "3.11", 3.10]
        include:
          - python-version: "3.14"
            os: macos-15
        exclude: [{{python-version: "3.9", os: windows}}]
    steps:
      - uses: actions/checkout@{SHA} # v4.2.2
      - uses: actions/setup-node@v4
        with: {{node-version: 20}}
      - uses: ./.github/actions/local
      - uses: owner/unpinned@{SHA}
  release:
    runs-on: [self-hosted, linux]
    steps:
      - uses: actions/checkout@{SHA} # v4.2.2
      - uses: actions/setup-node@v5
      - run: echo
        timeout-minutes: 5
"""


class TestGithubActions:
    facts = GithubActionsMiner().read(".github/workflows/ci.yml", WORKFLOW)

    @pytest.mark.parametrize(
        ("thing", "slot", "expected"),
        [
            ("on", "trigger", ["push", "schedule", "workflow_dispatch"]),
            ("on.push.branches", "trigger", ["main"]),
            ("on.schedule", "schedule", ["0 3 * * 1"]),
            ("dry-run", "input-default", ["on"]),
            ("permissions.contents", "permission", ["read"]),
            ("UV_VERSION", "env", ["0.10"]),
            ("TOKEN", "env", []),
            ("jobs.unit-tests.runs-on", "runs-on", ["ubuntu-24.04"]),
            ("jobs.unit-tests.timeout-minutes", "timeout-minutes", ["30"]),
            ("jobs.unit-tests.container", "image", ["python:3.12-slim"]),
            ("python", "image-tag", ["3.12-slim"]),
            ("postgres", "image-tag", ["16"]),
            ("jobs.unit-tests.fail-fast", "fail-fast", ["off"]),
            ("jobs.unit-tests.matrix.python-version", "matrix", ["3.11", "3.10", "3.14"]),
            ("jobs.unit-tests.matrix.os", "matrix", ["macos-15"]),
            ("jobs.unit-tests.matrix.exclude.os", "matrix", []),
            ("actions/checkout", "action-version", ["v4.2.2"]),
            ("owner/unpinned", "action-version", []),
            ("node-version", "tool-version", ["20"]),
            ("jobs.release.runs-on", "runner-label", ["self-hosted", "linux"]),
            ("jobs.release.steps[3].timeout-minutes", "timeout-minutes", ["5"]),
        ],
    )
    def test_reads(self, thing: str, slot: str, expected: list[str]) -> None:
        assert values(self.facts, thing, slot) == expected

    def test_names_an_action_by_its_job_only_where_versions_differ(self) -> None:
        assert values(self.facts, "actions/setup-node", "action-version") == []
        assert values(self.facts, "jobs.unit-tests.actions/setup-node", "action-version") == ["v4"]
        assert values(self.facts, "jobs.release.actions/setup-node", "action-version") == ["v5"]
        scoped = next(fact for fact in self.facts if fact.thing == "jobs.release.actions/setup-node")
        assert "actions/setup-node" in scoped.aliases

    def test_names_an_action_by_its_step_where_versions_differ_in_a_job(self) -> None:
        text = "jobs: {a: {steps: [{uses: x/y@v1}, {id: late, uses: x/y@v2}]}}"
        found = triples(GithubActionsMiner().read(".github/workflows/a.yml", text))
        assert ("jobs.a.steps[1].x/y", "action-version", "v1") in found
        assert ("jobs.a.steps[late].x/y", "action-version", "v2") in found

    @pytest.mark.parametrize(
        ("note", "version"),
        [
            ("# v4.2.2", "v4.2.2"),
            ("# tag=v4", "v4"),
            ("# ratchet:actions/checkout@v4", "v4"),
            ("# pin@v4", "v4"),
            ("# 4.2.2 (latest)", "4.2.2"),
            ("# main", "main"),
            ("# zizmor: ignore[unpinned-uses]", None),
            ("# we trust this one", None),
            ("", None),
        ],
    )
    def test_takes_the_version_of_a_hash_from_its_comment(self, note: str, version: str | None) -> None:
        text = f"# é\njobs: \n  a:\n    steps:\n      - uses: x/y@{SHA} {note}\n        with: {{}}\n"
        found = values(GithubActionsMiner().read(".github/workflows/a.yml", text), "x/y", "action-version")
        assert found == ([version] if version else [])

    def test_reads_composite_actions(self) -> None:
        text = "runs: {using: node20}\ninputs: {cache: {default: false}}"
        found = triples(GithubActionsMiner().read(".github/actions/a/action.yml", text))
        assert found == {("runs.using", "runtime", "node20"), ("cache", "input-default", "off")}

    def test_order_of_jobs_does_not_count(self) -> None:
        jobs = ["  a: {runs-on: x, env: {K: v1}}\n", "  b: {runs-on: y, env: {K: v2}}\n"]
        one, other = (
            triples(GithubActionsMiner().read(".github/workflows/a.yml", "jobs:\n" + "".join(each)))
            for each in (jobs, jobs[::-1])
        )
        assert one == other
        assert ("jobs.a.env.K", "env", "v1") in one


DOCKERFILE = """# syntax=docker/dockerfile:1
ARG PYTHON_VERSION=3.12
FROM --platform=$BUILDPLATFORM python:${PYTHON_VERSION}-slim AS builder
COPY --from=ghcr.io/astral-sh/uv:0.9.1 /uv /bin/uv
ENV PIP_NO_CACHE_DIR=1 \\
    # a comment between
    LANG="C.UTF-8"
RUN cat <<EOF > /x
FROM evil:1
EOF
FROM builder AS test
FROM ${UNKNOWN}:1
FROM debian:bookworm@sha256:abc
ARG RUST_VERSION=1.90
ARG EMPTY
EXPOSE 8080 9090/tcp
COPY --from=builder /a /b
"""


def test_dockerfile_states_images_arguments_and_environment() -> None:
    assert triples(DockerfileMiner().read("Dockerfile", DOCKERFILE)) == {
        ("PYTHON_VERSION", "build-arg", "3.12"),
        ("builder", "image", "python:3.12-slim"),
        ("python", "image-tag", "3.12-slim"),
        ("ghcr.io/astral-sh/uv", "image-tag", "0.9.1"),
        ("PIP_NO_CACHE_DIR", "env", "1"),
        ("LANG", "env", "C.UTF-8"),
        ("FROM[4]", "image", "debian:bookworm"),
        ("debian", "image-tag", "bookworm"),
        ("RUST_VERSION", "build-arg", "1.90"),
        ("EXPOSE", "port", "8080"),
        ("EXPOSE", "port", "9090/tcp"),
    }


def test_dockerfile_tells_tags_of_one_image_apart_by_stage() -> None:
    found = triples(DockerfileMiner().read("Dockerfile", "FROM node:18 AS a\nFROM node:20 AS b\n"))
    assert {("a.node", "image-tag", "18"), ("b.node", "image-tag", "20")} <= found


def test_gitlab() -> None:
    text = """
image: {name: "python:3.12"}
variables: {PIP_CACHE: "yes", DEPTH: {value: "10"}, REF: $CI_REF}
stages: [build, test]
.hidden: &base {retry: 2}
unit-tests:
  <<: *base
  image: python:3.13
  services: [postgres:16]
  tags: [linux]
  timeout: 2h
  parallel: {matrix: [{PY: ["3.11", "3.12"]}]}
"""
    found = triples(GitlabCiMiner().read(".gitlab-ci.yml", text))
    assert {
        ("image", "image", "python:3.12"),
        ("unit-tests.image", "image", "python:3.13"),
        ("unit-tests.image.python", "image-tag", "3.13"),
        ("postgres", "image-tag", "16"),
        ("DEPTH", "env", "10"),
        ("stages", "stage", "test"),
        ("unit-tests.retry", "retry", "2"),
        ("unit-tests.timeout", "timeout", "2h"),
        ("unit-tests.tags", "runner-label", "linux"),
        ("unit-tests.matrix.PY", "matrix", "3.11"),
    } <= found
    assert not [each for each in found if each[0] == "REF"]


def test_circleci_reads_anchors_that_are_set_twice() -> None:
    text = """
orbs: {node: circleci/node@5.2.0}
defaults: &d {environment: {GO: "1.24"}}
other: &d {environment: {GO: "1.25"}}
jobs:
  build-it:
    <<: *d
    docker: [{image: "cimg/go:1.25"}]
    resource_class: large
workflows:
  nightly:
    triggers: [{schedule: {cron: "0 0 * * *"}}]
    jobs: [{build-it: {matrix: {parameters: {v: ["1", "2"]}}}}]
"""
    assert {
        ("circleci/node", "action-version", "5.2.0"),
        ("GO", "env", "1.25"),
        ("jobs.build-it.docker", "image", "cimg/go:1.25"),
        ("jobs.build-it.resource_class", "resource-class", "large"),
        ("workflows.nightly.triggers", "schedule", "0 0 * * *"),
        ("workflows.nightly.build-it.matrix.v", "matrix", "2"),
    } <= triples(CircleCiMiner().read(".circleci/config.yml", text))


def test_merged_tables_give_way_to_earlier_ones_and_to_own_keys() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2, w: 2}\nc: {w: 3, <<: [*a, *b]}\n"
    found = triples(YamlConfigMiner().read("mkdocs.yml", text))
    assert {each for each in found if each[0].startswith("c.")} == {
        ("c.x", "amount", "1"),
        ("c.y", "amount", "1"),
        ("c.z", "amount", "2"),
        ("c.w", "amount", "3"),
    }


def test_azure() -> None:
    text = """
trigger: [main]
variables: [{name: NODE, value: "20"}]
jobs:
- job: Linux
  pool: {vmImage: ubuntu-22.04}
  timeoutInMinutes: 90
  strategy: {matrix: {py310: {python.version: 3.10}}}
  steps:
  - task: UsePythonVersion@0
    inputs: {versionSpec: "3.10"}
"""
    assert {
        ("trigger", "trigger", "main"),
        ("NODE", "env", "20"),
        ("jobs.Linux.pool.vmImage", "runs-on", "ubuntu-22.04"),
        ("jobs.Linux.timeoutInMinutes", "timeout-minutes", "90"),
        ("jobs.Linux.matrix.python.version", "matrix", "3.10"),
        ("UsePythonVersion", "action-version", "0"),
        ("UsePythonVersion.versionSpec", "tool-version", "3.10"),
    } <= triples(AzurePipelinesMiner().read("azure-pipelines.yml", text))


class TestConfig:
    def test_pyproject_gives_tools_but_no_dependencies(self) -> None:
        text = """
[project]
dependencies = ["a>=1"]
[tool.poetry.dependencies]
b = "^1"
[tool.ruff]
line-length = 110
lint.select = ["E", "F"]
[tool.mypy]
strict = true
"""
        assert triples(TomlConfigMiner().read("pyproject.toml", text)) == {
            ("tool.ruff.line-length", "line-length", "110"),
            ("tool.ruff.lint.select", "rule", "E"),
            ("tool.ruff.lint.select", "rule", "F"),
            ("tool.mypy.strict", "strict", "on"),
        }

    def test_cargo_gives_profiles_and_lints(self) -> None:
        text = """
dependencies.serde = "1"
profile.release.lto = "fat"
workspace.lints.clippy.dbg_macro = "warn"
workspace.lints.clippy.pedantic = {level = "deny", priority = -1}
workspace.package.version = "1.0.0"
"""
        assert triples(TomlConfigMiner().read("Cargo.toml", text)) == {
            ("profile.release.lto", "lto", "fat"),
            ("workspace.lints.clippy.dbg_macro", "lint-level", "warn"),
            ("workspace.lints.clippy.pedantic", "lint-level", "deny"),
            ("workspace.lints.clippy.pedantic.priority", "amount", "-1"),
        }

    def test_toml_1_1_is_read(self) -> None:
        found = TomlConfigMiner().read("ruff.toml", 'per-file = {\n  "a.py" = "py37",\n}\n')
        assert triples(found) == {('per-file."a.py"', "setting", "py37")}

    def test_json_may_have_comments_and_trailing_commas(self) -> None:
        text = '{"$schema": "x", // why\n "compilerOptions": {"strict": true, "target": "ES2022", "lib": ["DOM", "ES2022",],},}'
        assert triples(JsonConfigMiner().read("tsconfig.json", text)) == {
            ("compilerOptions.strict", "strict", "on"),
            ("compilerOptions.target", "target-version", "ES2022"),
            ("compilerOptions.lib", "library", "DOM"),
            ("compilerOptions.lib", "library", "ES2022"),
        }

    def test_package_json_gives_no_versions_and_no_scripts(self) -> None:
        text = json.dumps(
            {"type": "module", "scripts": {"a": "b"}, "dependencies": {"c": "1"}, "version": "2.0.0"}
        )
        assert triples(JsonConfigMiner().read("package.json", text)) == {("type", "setting", "module")}

    def test_dependabot_entries_go_by_ecosystem(self) -> None:
        text = """
updates:
  - {package-ecosystem: cargo, schedule: {interval: weekly}, open-pull-requests-limit: 5}
  - {package-ecosystem: cargo, schedule: {interval: daily}}
"""
        assert triples(YamlConfigMiner().read(".github/dependabot.yml", text)) == {
            ("updates", "entry", "cargo"),
            ("updates[cargo].schedule.interval", "schedule", "weekly"),
            ("updates[cargo].open-pull-requests-limit", "request-limit", "5"),
            ("updates[cargo#2].schedule.interval", "schedule", "daily"),
        }

    def test_mkdocs_keeps_text_as_written_and_survives_its_tags(self) -> None:
        text = "site_name: A site\nnav: [{Home: index.md}]\nx: !!python/name:a.b\nplugins: [search, {blog: {on: 3.10}}]\n"
        assert triples(YamlConfigMiner().read("mkdocs.yml", text)) == {
            ("site_name", "title", "A site"),
            ("plugins", "plugin", "search"),
            ("plugins", "plugin", "blog"),
            ("plugins.blog.on", "amount", "3.10"),
        }

    @pytest.mark.parametrize("path", ["ruff.toml", "tsconfig.json", "mkdocs.yml"])
    def test_large_files_are_data(self, path: str) -> None:
        miner = next(each for each, known in MINERS.items() if known == path)
        assert miner.read(path, "#" * 200_001) == ()

    def test_pre_commit(self) -> None:
        text = f"""
repos:
  - repo: https://github.com/astral-sh/ruff-pre-commit
    rev: v0.14.2
    hooks: [{{id: ruff-check, args: [--fix]}}, {{id: ruff-format}}]
  - repo: https://github.com/crate-ci/typos.git
    rev: {SHA} # frozen: v1.38.1
    hooks: [{{id: typos}}]
  - repo: local
    hooks: [{{id: mypy}}]
"""
        facts = PreCommitMiner().read(".pre-commit-config.yaml", text)
        assert triples(facts) == {
            ("astral-sh/ruff-pre-commit", "hook-version", "v0.14.2"),
            ("astral-sh/ruff-pre-commit", "hook", "ruff-check"),
            ("astral-sh/ruff-pre-commit", "hook", "ruff-format"),
            ("ruff-check.args", "hook-argument", "--fix"),
            ("crate-ci/typos", "hook-version", "v1.38.1"),
            ("crate-ci/typos", "hook", "typos"),
            ("local", "hook", "mypy"),
        }
        assert {"ruff-pre-commit", "ruff", "ruff-check"} <= set(facts[0].aliases)


class TestCommandsAndFiles:
    def test_package_scripts_and_bin(self) -> None:
        text = json.dumps({"name": "@a/tool", "scripts": {"build": "tsc -b", "tool": "x"}, "bin": "cli.js"})
        assert triples(PackageCommandsMiner().read("package.json", text)) == {
            ("build", "command", "tsc -b"),
            ("scripts.tool", "command", "x"),
            ("bin.tool", "command", "cli.js"),
        }

    def test_python_entry_points(self) -> None:
        text = '[project.scripts]\na = "a:main"\n[project.entry-points."x.y"]\nb = "b:B"\n[tool.poetry.scripts]\nc = "c:main"\n'
        assert triples(PythonCommandsMiner().read("pyproject.toml", text)) == {
            ("a", "command", "a:main"),
            ("b", "command", "b:B"),
            ("c", "command", "c:main"),
        }

    def test_cargo_binaries(self) -> None:
        text = '[package]\nname = "x"\ndefault-run = "a"\n[[bin]]\nname = "a"\npath = "src/a.rs"\n[[bin]]\nname = "b"\n'
        assert triples(CargoCommandsMiner().read("Cargo.toml", text)) == {
            ("default-run", "command", "a"),
            ("a", "command", "src/a.rs"),
            ("b", "command", "b"),
        }

    def test_presence_needs_no_content(self) -> None:
        assert FilePresenceMiner().read("scripts/release.sh", "\0") == (
            Fact("release.sh", "file", "present", Form.NAME, aliases=("scripts/release.sh",)),
        )


@pytest.mark.parametrize(
    ("miner", "path", "wanted"),
    [
        (DockerfileMiner(), "docker/dev.Dockerfile", True),
        (DockerfileMiner(), "Containerfile.ci", True),
        (DockerfileMiner(), "tests/Dockerfile", False),
        (DockerfileMiner(), "docs/dockerfile-guide.md", False),
        (GithubActionsMiner(), "docs/.github/workflows/a.yaml", True),
        (GithubActionsMiner(), ".github/dependabot.yml", False),
        (TomlConfigMiner(), "codex-rs/clippy.toml", True),
        (TomlConfigMiner(), "Cargo.lock", False),
        (TomlConfigMiner(), "pylock.toml", False),
        (TomlConfigMiner(), "rust-toolchain.toml", False),
        (TomlConfigMiner(), "docs/data/docs.toml", False),
        (YamlConfigMiner(), "pnpm-lock.yaml", False),
        (YamlConfigMiner(), ".gitlab-ci.yml", False),
        (YamlConfigMiner(), "docs/en/mkdocs.yml", True),
        (YamlConfigMiner(), ".prettierrc", True),
        (YamlConfigMiner(), ".github/ISSUE_TEMPLATE/config.yml", False),
        (YamlConfigMiner(), "locales/en/config.yml", False),
        (JsonConfigMiner(), "package-lock.json", False),
        (JsonConfigMiner(), "uv.schema.json", False),
        (JsonConfigMiner(), "packages/a/tsconfig.base.json", True),
        (JsonConfigMiner(), "node_modules/a/tsconfig.json", False),
        (JsonConfigMiner(), ".github/renovate.json5", True),
        (FilePresenceMiner(), "Makefile", True),
        (FilePresenceMiner(), ".github/workflows/ci.yml", True),
        (FilePresenceMiner(), "src/main.rs", False),
    ],
)
def test_wants(miner: Miner, path: str, wanted: bool) -> None:
    assert miner.wants(path) is wanted


def test_each_wants_its_own_file_and_names_are_unique() -> None:
    assert all(miner.wants(path) for miner, path in MINERS.items())
    assert len({miner.name for miner in MINERS}) == len(MINERS)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "bomb": BOMB,
    "merge bomb": "a: &a {k: 1}\n" + "".join(f"m{i}: &a {{<<: [*a, *a, *a]}}\n" for i in range(40)),
    "cycle": "a: &a [*a]\n",
    "unknown alias": "a: *nothing\n",
    "deep flow": "[" * 50_000,
    "deep closed": "[" * 900 + "]" * 900,
    "deep tables": '{"a":' * 20_000,
    "deep dotted": ".".join(["a"] * 5_000) + " = 1",
    "nul": "a: b\0c",
    "surrogate": 'a = "\ud800"',
    "long line": "a: " + "x" * 10_000_000,
    "long number": "a = " + "9" * 50_000,
    "json number": '{"a": ' + "9" * 50_000 + "}",
    "words": "ENV " + "a=1 " * 20_000,
    "continued": "RUN \\\n" + "x \\\n" * 20_000,
    "bare words": "FROM\nARG\nENV\nENV a\nENV =\nFROM  \nCOPY --from= a b\nRUN <<\n\\\n",
    "tabs": "\ta: b",
    "nothing": "",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("miner", MINERS, ids=lambda miner: miner.name)
def test_hostile_texts_are_read_or_unreadable(miner: Miner, text: str) -> None:
    try:
        facts = miner.read(MINERS[miner], text)
    except UnreadableError:
        return
    assert_lawful(miner, facts)


@pytest.mark.parametrize("text", [BOMB, "a: [", HOSTILE["cycle"], HOSTILE["nul"], HOSTILE["deep closed"]])
@pytest.mark.parametrize("miner", YAML_MINERS, ids=lambda miner: miner.name)
def test_broken_yaml_is_unreadable(miner: Miner, text: str) -> None:
    with pytest.raises(UnreadableError):
        miner.read(MINERS[miner], text)


KEYS = st.sampled_from(
    """on jobs runs-on steps uses with env matrix strategy include container image services name permissions schedule cron
    inputs default variables docker workflows triggers parameters orbs pool vmImage stages job task repos repo rev hooks id
    args tool project scripts entry-points package bin path lints profile updates plugins a.b version timeout-minutes
    labels tags retry parallel workspace default-run value steps key runs using""".split()
)
LEAVES = st.sampled_from(
    ["x/y@v1", "x/y@v2", "python:3.12", "3.10", "a b", "", SHA, "${{ x }}", "x" * 121]
) | st.sampled_from([True, False, None, 3, -1.5])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=40,
)


@settings(max_examples=150, deadline=None)
@given(tree=st.dictionaries(KEYS, TREES, max_size=6))
def test_any_shape_gives_unique_facts_twice_the_same(tree: dict[str, object]) -> None:
    text = json.dumps(tree)
    for miner, path in MINERS.items():
        if path.endswith((".yml", ".yaml", ".json")):
            facts = miner.read(path, text)
            assert_lawful(miner, facts)
            assert list(miner.read(path, text)) == list(facts)


LINES = st.sampled_from(
    [
        "FROM a:1",
        "FROM a:2 AS b",
        "FROM b",
        "ARG V=1",
        "ARG V=2",
        "FROM x:$V",
        "ENV V 3",
        "COPY --from=c:1 x y",
        "EXPOSE 1 1",
        "RUN <<E",
        "E",
    ]
)


@given(lines=st.lists(LINES | st.text(max_size=20), max_size=12))
def test_any_dockerfile_gives_unique_facts(lines: list[str]) -> None:
    try:
        facts = DockerfileMiner().read("Dockerfile", "\n".join(lines))
    except UnreadableError:
        return
    assert_lawful(DockerfileMiner(), facts)
