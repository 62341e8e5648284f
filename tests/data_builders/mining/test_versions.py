"""Versions in manifests: every kind of fact, unique in its file, and nothing but UnreadableError on hostile text."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builders.mining.facts import Fact, Family, Miner, UnreadableError
from data_builders.mining.miners.cargo import CargoMiner
from data_builders.mining.miners.go_mod import GoModMiner
from data_builders.mining.miners.manifests import MAX_CHARS, package_aliases
from data_builders.mining.miners.package_json import PackageJsonMiner
from data_builders.mining.miners.pyproject import PyprojectMiner
from data_builders.mining.miners.python_requirements import parse_requirement
from data_builders.mining.miners.requirements_txt import RequirementsMiner
from data_builders.mining.miners.setup_cfg import SetupCfgMiner
from data_builders.mining.miners.toolchain_files import RustToolchainMiner, VersionFileMiner
from operators.normal import Form

MINERS: dict[str, Miner] = {
    "Cargo.toml": CargoMiner(),
    "go.mod": GoModMiner(),
    "package.json": PackageJsonMiner(),
    "pyproject.toml": PyprojectMiner(),
    "requirements.txt": RequirementsMiner(),
    "setup.cfg": SetupCfgMiner(),
    "rust-toolchain": RustToolchainMiner(),
    ".nvmrc": VersionFileMiner(),
}

PYPROJECT = """
[build-system]
requires = ["hatchling>=1.2"]
build-backend = "hatchling.build"
[project]
name = "demo"
version = "1.4.0"
requires-python = ">=3.10"
dependencies = ["Typing_Extensions>=4.15.0, <5", "numpy<2; python_version<'3.12'", "numpy>=2; python_version>='3.12'", "six"]
classifiers = ["Programming Language :: Python :: 3.13", "Typing :: Typed"]
[project.optional-dependencies]
docs = ["mkdocs-material[imaging]==9.1.18", "fork @ git+https://example.org/a/fork@v2#sha256=00"]
[dependency-groups]
dev = ["pytest~=8.0", {include-group = "docs"}]
[tool.uv]
required-version = ">=0.5"
constraint-dependencies = ["h11>=0.16"]
override-dependencies = ["werkzeug==2.3.0"]
dev-dependencies = ["ruff>=0.9"]
"""
POETRY = """
[tool.poetry]
name = "demo"
version = "0.3.0"
[tool.poetry.dependencies]
python = "^3.9"
Django = {version = "^4.2", extras = ["argon2"], optional = true}
lib = {git = "https://example.org/lib.git", branch = "main", tag = "v2"}
pandas = [{version = "^1", python = "<3.10"}, {version = "^2", python = ">=3.10"}]
[tool.poetry.group.test.dependencies]
pytest = "^8"
[tool.poetry.dev-dependencies]
black = "24.1"
"""
REQUIREMENTS = """\
# pinned
-r base.txt
--index-url https://example.org/simple
scikit-learn==1.5.2  # why
requests[socks]>=2.28,<3 ; python_version >= "3.8"
uvicorn==0.30.0 \\
    --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
anyio==4.6.0
-e .
./local.whl
not a requirement!
"""
SETUP_CFG = """\
[metadata]
name = demo
version = 2.0.1
[options]
python_requires = >=3.8
install_requires =
    attrs>=21  ; python_version < "3.9"
    # a comment
    click>=8
setup-requires = wheel>=0.40; setuptools>=61
tests_require = pytest
[options.extras_require]
docs =
    sphinx<8
"""
PACKAGE_JSON = json.dumps({
    "name": "@vitejs/plugin-vue", "version": "5.0.1", "packageManager": "pnpm@10.34.5+sha512.abc",
    "engines": {"node": "^20.19.0 || >=22.12.0"}, "volta": {"node": "22.1.0"},
    "dependencies": {"react": "^18.2.0", "local": "link:./x"}, "devDependencies": {"@types/node": "^24.1.0", "vite": "workspace:*"},
    "peerDependencies": {"vite": "^5 || ^6"}, "peerDependenciesMeta": {"vite": {"optional": True}},
    "optionalDependencies": {"fsevents": "~2.3.3"}, "overrides": {"esbuild": "0.25.0", "a": {"b": "1"}},
    "resolutions": {"left-pad": "1.3.0"}, "pnpm": {"overrides": {"semver": "7"}},
})  # fmt: skip
CARGO = """
[workspace]
resolver = "2"
[workspace.package]
version = "0.9.0"
edition = "2024"
[workspace.dependencies]
anyhow = "1.0.89"
[package]
name = "tokio"
version = "1.53.1"
edition.workspace = true
rust-version = "1.71"
[features]
default = []
full = ["fs", "dep:mio"]
[dependencies]
serde = { workspace = true, features = ["derive", "rc"] }
mio = { version = "1.2.0", optional = true, default-features = false }
fork = { git = "https://example.org/fork", branch = "next", tag = "v3", rev = "a6e239ea1c69", package = "real" }
near = { path = "../near" }
[build-dependencies]
cc = "1"
[target.'cfg(all(unix, target_env = "gnu"))'.dev_dependencies.nix]
version = "0.31.0"
[patch.crates-io]
tokio-util = { git = "https://example.org/u", branch = "fix" }
"""
GO_MOD = """\
// Deprecated: no
module github.com/gohugoio/hugo

go 1.24.0
toolchain go1.24.1
godebug default=go1.21
require "github.com/alecthomas/chroma/v2" v2.27.0
require (
\tgithub.com/bep/clocks v0.5.0 // indirect
\tgopkg.in/yaml.v3 v3.0.1 // indirect; for tests
)
exclude golang.org/x/net v0.1.0
replace (
\tgithub.com/a/b v1.0.0 => github.com/c/d v1.2.0
\tgithub.com/e/f => ../f
)
retract [v1.0.0, v1.0.5]
retract v1.1.0
tool golang.org/x/tools/cmd/stringer
"""
TEXTS = {
    "Cargo.toml": CARGO,
    "go.mod": GO_MOD,
    "package.json": PACKAGE_JSON,
    "pyproject.toml": PYPROJECT,
    "requirements.txt": REQUIREMENTS,
    "setup.cfg": SETUP_CFG,
    "rust-toolchain": '[toolchain]\nchannel = "1.95.0"\n',
    ".nvmrc": "v20.1.0\n",
}


def facts_of(path: str, text: str) -> list[Fact]:
    return list(MINERS[path].read(path, text))


def stated(path: str, text: str) -> set[tuple[str, str, str]]:
    return {(fact.thing, fact.slot, fact.value) for fact in facts_of(path, text)}


def members(path: str, text: str) -> set[tuple[str, str]]:
    return {(f.thing, f.value) for f in facts_of(path, text) if f.slot == "package"}


def besides_members(path: str, text: str) -> set[tuple[str, str, str]]:
    return {found for found in stated(path, text) if found[1] != "package"}


def check_laws(miner: Miner, facts: list[Fact]) -> None:
    keys = [(f.thing, f.slot, f.value if f.many else "") for f in facts]
    assert len(keys) == len(set(keys))
    kinds = {(f.slot, f.form, f.many) for f in facts}
    assert len({slot for slot, _, _ in kinds}) == len(kinds), "a slot has one form and one cardinality"
    for fact in facts:
        assert fact.slot in miner.slots
        assert fact.thing not in fact.aliases
        assert not any(map(str.isspace, fact.thing))
        for text in (fact.thing, fact.value, *fact.aliases):
            assert 0 < len(text) <= 120
            assert text.isprintable()
        assert fact.form is not Form.FLAG or fact.value in {"on", "off"}


def test_pyproject_states_the_standard_tables_and_those_of_uv() -> None:
    assert besides_members("pyproject.toml", PYPROJECT) == {
        ("demo", "version", "1.4.0"),
        ("python", "required_version", ">=3.10"),
        ("python", "supported_version", "3.13"),
        ("classifiers", "classifier", "Typing :: Typed"),
        ("typing-extensions", "dependency", ">=4.15.0, <5"),
        ('numpy(python_version<"3.12")', "dependency", "<2"),
        ('numpy(python_version>="3.12")', "dependency", ">=2"),
        ("docs.mkdocs-material", "extra_dependency", "==9.1.18"),
        ("docs.mkdocs-material", "dependency_extra", "imaging"),
        ("docs.fork", "source", "git+https://example.org/a/fork@v2"),
        ("build-system", "build_backend", "hatchling.build"),
        ("hatchling", "build_dependency", ">=1.2"),
        ("dev.pytest", "group_dependency", "~=8.0"),
        ("dev.ruff", "group_dependency", ">=0.9"),
        ("uv", "required_version", ">=0.5"),
        ("h11", "constraint", ">=0.16"),
        ("werkzeug", "override", "==2.3.0"),
    }
    assert members("pyproject.toml", PYPROJECT) == {
        *{("dependencies", name) for name in ("typing-extensions", "numpy", "six")},
        ("docs", "mkdocs-material"), ("docs", "fork"), ("build-system", "hatchling"), ("dev", "pytest"), ("dev", "ruff"),
        ("constraint-dependencies", "h11"), ("override-dependencies", "werkzeug"),
    }  # fmt: skip


def test_a_grouped_dependency_is_also_known_by_its_plain_name() -> None:
    names = {fact.thing: fact.aliases for fact in facts_of("pyproject.toml", PYPROJECT)}
    assert {"mkdocs-material", "mkdocs_material"} <= set(names["docs.mkdocs-material"])
    assert "Typing_Extensions" not in names["typing-extensions"][1:]
    assert {"Typing_Extensions"} <= set(names["typing-extensions"])
    assert "numpy" in names['numpy(python_version<"3.12")']


def test_pyproject_states_what_poetry_writes() -> None:
    assert besides_members("pyproject.toml", POETRY) == {
        ("demo", "version", "0.3.0"),
        ("python", "required_version", "^3.9"),
        ("django", "dependency", "^4.2"),
        ("django", "dependency_extra", "argon2"),
        ("django", "optional", "on"),
        ("lib", "source", "https://example.org/lib.git"),
        ("lib", "git_branch", "main"),
        ("lib", "git_tag", "v2"),
        ("pandas(<3.10)", "dependency", "^1"),
        ("pandas(>=3.10)", "dependency", "^2"),
        ("test.pytest", "group_dependency", "^8"),
        ("dev.black", "group_dependency", "24.1"),
    }


def test_the_standard_tables_outrank_poetrys() -> None:
    both = '[project]\nrequires-python = ">=3.11"\ndependencies = ["a>=2"]\n[tool.poetry.dependencies]\npython = "^3.9"\na = "^1"\n'
    assert besides_members("pyproject.toml", both) == {
        ("python", "required_version", ">=3.11"),
        ("a", "dependency", ">=2"),
    }


def test_requirements_state_pins_and_pass_over_options_paths_and_hashes() -> None:
    assert besides_members("requirements.txt", REQUIREMENTS) == {
        ("scikit-learn", "dependency", "==1.5.2"),
        ("requests", "dependency", ">=2.28,<3"),
        ("requests", "dependency_extra", "socks"),
        ("uvicorn", "dependency", "==0.30.0"),
        ("anyio", "dependency", "==4.6.0"),
    }
    assert {
        fact.aliases for fact in facts_of("requirements.txt", REQUIREMENTS) if fact.thing == "scikit-learn"
    } == {("scikit_learn",)}


def test_a_constraints_file_states_constraints() -> None:
    found = RequirementsMiner().read("ci/constraints-3.11.txt", "urllib3<2\n")
    assert [(f.thing, f.slot, f.value) for f in found] == [
        ("constraints", "package", "urllib3"),
        ("urllib3", "constraint", "<2"),
    ]


def test_setup_cfg_states_lists_extras_and_python() -> None:
    assert stated("setup.cfg", SETUP_CFG) == {
        ("demo", "version", "2.0.1"),
        ("python", "required_version", ">=3.8"),
        ("attrs", "dependency", ">=21"),
        ("click", "dependency", ">=8"),
        ("wheel", "build_dependency", ">=0.40"),
        ("setuptools", "build_dependency", ">=61"),
        ("docs.sphinx", "extra_dependency", "<8"),
        ("install_requires", "package", "attrs"),
        ("install_requires", "package", "click"),
        ("setup_requires", "package", "wheel"),
        ("setup_requires", "package", "setuptools"),
        ("tests_require", "package", "pytest"),
        ("docs", "package", "sphinx"),
    }
    assert stated("setup.cfg", "[metadata]\nversion = attr: demo.__version__\n") == set()


def test_package_json_states_every_kind_of_dependency() -> None:
    assert besides_members("package.json", PACKAGE_JSON) == {
        ("@vitejs/plugin-vue", "version", "5.0.1"),
        ("pnpm", "package_manager", "10.34.5"),
        ("node", "engine", "^20.19.0 || >=22.12.0"),
        ("node", "pinned_version", "22.1.0"),
        ("react", "dependency", "^18.2.0"),
        ("local", "dependency_source", "link:./x"),
        ("@types/node", "dev_dependency", "^24.1.0"),
        ("vite", "dev_dependency_source", "workspace:*"),
        ("vite", "peer_dependency", "^5 || ^6"),
        ("vite", "optional_peer", "on"),
        ("fsevents", "optional_dependency", "~2.3.3"),
        ("esbuild", "override", "0.25.0"),
        ("left-pad", "override", "1.3.0"),
        ("semver", "override", "7"),
    }
    assert ("devDependencies", "vite") in members("package.json", PACKAGE_JSON)


def test_cargo_states_every_table() -> None:
    assert besides_members("Cargo.toml", CARGO) == {
        ("cargo", "resolver", "2"),
        ("workspace", "version", "0.9.0"),
        ("rust", "edition", "2024"),
        ("anyhow", "workspace_dependency", "1.0.89"),
        ("tokio", "version", "1.53.1"),
        ("rust", "rust_version", "1.71"),
        ("features", "feature", "default"),
        ("features", "feature", "full"),
        ("full", "feature_member", "fs"),
        ("full", "feature_member", "dep:mio"),
        ("serde", "dependency_feature", "derive"),
        ("serde", "dependency_feature", "rc"),
        ("mio", "dependency", "1.2.0"),
        ("mio", "dependency_optional", "on"),
        ("mio", "dependency_default_features", "off"),
        ("fork", "dependency_source", "https://example.org/fork"),
        ("fork", "dependency_branch", "next"),
        ("fork", "dependency_tag", "v3"),
        ("fork", "dependency_renames", "real"),
        ("near", "dependency_source", "../near"),
        ("cc", "build_dependency", "1"),
        ('cfg(all(unix,target_env="gnu")).nix', "dev_dependency", "0.31.0"),
        ("patch.crates-io.tokio-util", "patch", "https://example.org/u"),
        ("patch.crates-io.tokio-util", "patch_branch", "fix"),
    }
    assert ('cfg(all(unix,target_env="gnu")).dev-dependencies', "nix") in members("Cargo.toml", CARGO)


def test_go_mod_states_every_directive() -> None:
    assert besides_members("go.mod", GO_MOD) == {
        ("module", "module_path", "github.com/gohugoio/hugo"),
        ("go", "go_version", "1.24.0"),
        ("go", "toolchain", "go1.24.1"),
        ("default", "setting", "go1.21"),
        ("github.com/alecthomas/chroma/v2", "dependency", "v2.27.0"),
        ("github.com/bep/clocks", "dependency", "v0.5.0"),
        ("github.com/bep/clocks", "indirect", "on"),
        ("gopkg.in/yaml.v3", "dependency", "v3.0.1"),
        ("gopkg.in/yaml.v3", "indirect", "on"),
        ("golang.org/x/net", "excluded_version", "v0.1.0"),
        ("github.com/a/b@v1.0.0", "replacement", "github.com/c/d"),
        ("github.com/a/b@v1.0.0", "replacement_version", "v1.2.0"),
        ("github.com/e/f", "replacement", "../f"),
        ("module", "retracted_version", "[v1.0.0, v1.0.5]"),
        ("module", "retracted_version", "v1.1.0"),
        ("tools", "tool", "golang.org/x/tools/cmd/stringer"),
    }


@pytest.mark.parametrize(
    "text", ["requires a v1", "require (\na v1\n", "require a", 'module "a', "replace a => b c d"]
)
def test_go_mod_with_a_syntax_error_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        facts_of("go.mod", text)


def test_rust_toolchain_reads_toml_and_a_bare_channel() -> None:
    full = '[toolchain]\nchannel = "nightly-2025-09-18"\nprofile = "minimal"\ncomponents = ["rust-src"]\ntargets = ["wasm32-wasip1"]\n'
    assert stated("rust-toolchain", full) == {
        ("rust", "toolchain", "nightly-2025-09-18"),
        ("rust", "toolchain_profile", "minimal"),
        ("rust", "toolchain_component", "rust-src"),
        ("rust", "toolchain_target", "wasm32-wasip1"),
    }
    assert stated("rust-toolchain", "1.70.0\n") == {("rust", "toolchain", "1.70.0")}
    with pytest.raises(UnreadableError):
        RustToolchainMiner().read("rust-toolchain.toml", "1.70.0\n")


@pytest.mark.parametrize(
    ("path", "text", "thing", "value"),
    [
        (".python-version", "3.10\n", "python", "3.10"),
        ("a/.python-version", "# ours\n3.12.1\n3.11\n", "python", "3.12.1"),
        (".nvmrc", "lts/*  # newest\r\n", "node", "lts/*"),
        (".node-version", "\ufeff22.1.0", "node", "22.1.0"),
    ],
)
def test_a_version_file_states_the_version_that_runs(path: str, text: str, thing: str, value: str) -> None:
    assert [(f.thing, f.slot, f.value) for f in VersionFileMiner().read(path, text)] == [
        (thing, "pinned_version", value)
    ]


def test_empty_files_hold_nothing() -> None:
    for path in MINERS.keys() - {"package.json"}:
        assert facts_of(path, "") == []
    assert facts_of("package.json", "{}") == []


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("requirements.txt", True), ("requirements-dev.txt", True), ("test-requirements.txt", True), ("requirements/base.in", True),
        ("ci/constraints.txt", True), ("requirements.md", False), ("docs/notes.txt", False), ("requirements/lib.rs", False),
        ("a/pyproject.toml", True), ("mypyproject.toml", False), ("package-lock.json", False), ("x/go.mod", True), ("go.sum", False),
    ],
)  # fmt: skip
def test_a_miner_knows_its_files_by_path(path: str, wanted: bool) -> None:
    assert any(miner.wants(path) for miner in MINERS.values()) is wanted


@pytest.mark.parametrize(
    ("name", "aliases"),
    [
        ("github.com/alecthomas/chroma/v2", ("github.com/alecthomas/chroma", "alecthomas/chroma", "chroma")),
        ("golang.org/x/net", ("x/net",)),
        ("gopkg.in/yaml.v3", ("yaml.v3",)),
        ("@vitejs/plugin-vue", ("plugin-vue",)),
        ("@types/node", ()),
        ("serde_json", ("serde-json",)),
        ("react", ()),
    ],
)
def test_aliases_leave_out_last_parts_that_many_packages_share(name: str, aliases: tuple[str, ...]) -> None:
    assert package_aliases(name) == aliases


@pytest.mark.parametrize(
    ("text", "specifier"),
    [
        ("a>=1", ">=1"),
        ("a (>=1,<2)", ">=1,<2"),
        ("a[x,y] ~= 1.0 ; os_name=='nt'", "~= 1.0"),
        ("a", ""),
        ("a === weird", "=== weird"),
    ],
)
def test_a_specifier_stays_as_written(text: str, specifier: str) -> None:
    found = parse_requirement(text)
    assert found is not None
    assert found.specifier == specifier


@pytest.mark.parametrize("path", sorted(MINERS))
def test_the_laws_hold_on_real_looking_files(path: str) -> None:
    miner = MINERS[path]
    facts = facts_of(path, TEXTS[path])
    assert facts
    assert miner.family is Family.VERSIONS
    check_laws(miner, facts)
    assert facts == facts_of(path, TEXTS[path].replace("\n", "\r\n")), "line ends do not count"


HOSTILE = {
    "NUL": "a = 1\0",
    "ten megabytes in a line": "x" * 10_000_000,
    "nested arrays": "a = " + "[" * 100_000,
    "nested inline tables": "a = " + "{a=" * 100_000,
    "nested JSON": "[" * 100_000,
    "nested JSON objects": '{"a":' * 100_000,
    "a key of many parts": "a" + ".a" * 400_000 + " = 1",
    "a header of many parts": "[a" + ".a" * 400_000 + "]",
    "a dotted key inside": "a = {b" + ".b" * 400_000 + " = 1}",
    "a number of many digits": "a = " + "9" * 5_000,
    "a JSON number of many digits": '{"a": ' + "9" * 5_000 + "}",
    "a lone surrogate": '{"dependencies": {"a": "\\ud800", "\\ud800": "1"}}',
    "quotes": '"' * 900_000,
    "backslashes": "\\\n" * 450_000,
    "nested markers": "a; " + "(" * 900,
    "a continuation first": "[options]\n  x\n",
    "an option twice": "[options]\na=1\na=2\n",
    "spaces": " " * 900_000,
}


@pytest.mark.parametrize("path", sorted(MINERS))
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_read_or_unreadable(path: str, text: str) -> None:
    try:
        facts = facts_of(path, text)
    except UnreadableError:
        return
    check_laws(MINERS[path], facts)


def test_a_file_beyond_the_bound_is_unreadable() -> None:
    for path in MINERS:
        with pytest.raises(UnreadableError):
            facts_of(path, "\n" * (MAX_CHARS + 1))


def test_passwords_hashes_and_long_values_are_no_facts() -> None:
    dependencies = {
        "a": "git+https://me:secret@example.org/a.git", "b": "github:b/b#" + "0f" * 20, "c": "1" * 121, "d": "1\n2", "e": "", "f": 3,
    }  # fmt: skip
    assert besides_members("package.json", json.dumps({"dependencies": dependencies})) == set()


WRONG = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["a>=1", "a[x]==1;", "^1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["version", "git", "features", "a", "optional"]), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
JSON_KEYS = [
    "name",
    "version",
    "engines",
    "volta",
    "packageManager",
    "dependencies",
    "overrides",
    "pnpm",
    "peerDependenciesMeta",
]


@given(st.dictionaries(st.sampled_from(JSON_KEYS), WRONG, max_size=6))
def test_wrong_shapes_in_package_json_are_skipped(document: dict[str, object]) -> None:
    check_laws(PackageJsonMiner(), facts_of("package.json", json.dumps(document)))


def inline(value: object) -> str:
    """The value as TOML; null, which TOML lacks, as false."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value) if value is not None else "false"


TOML_KEYS = {
    "Cargo.toml": ["package", "workspace", "dependencies", "dev-dependencies", "dev_dependencies", "target", "features", "patch"],
    "pyproject.toml": ["project", "build-system", "dependency-groups", "tool.poetry", "tool.poetry.group", "tool.uv", "project.dependencies"],
    "rust-toolchain": ["toolchain", "toolchain.channel", "toolchain.components"],
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(TOML_KEYS))
@given(data=st.data())
def test_wrong_shapes_in_toml_are_skipped(path: str, data: st.DataObject) -> None:
    document = data.draw(st.dictionaries(st.sampled_from(TOML_KEYS[path]), WRONG, max_size=4))
    text = "".join(f"{key} = {inline(value)}\n" for key, value in document.items())
    try:
        facts = facts_of(path, text)
    except UnreadableError:
        return
    check_laws(MINERS[path], facts)


@pytest.mark.parametrize("path", sorted(MINERS))
@given(data=st.data())
def test_mangled_files_raise_nothing_but_unreadable(path: str, data: st.DataObject) -> None:
    text = TEXTS[path]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    mangled = text[:start] + data.draw(st.text(max_size=6)) + text[end:]
    try:
        facts = facts_of(path, mangled)
    except UnreadableError:
        return
    check_laws(MINERS[path], facts)
    assert facts == facts_of(path, mangled)


REQUIREMENT_LINES = [
    "a>=1", "a>=2", "A==3", "a<1; python_version<'3.9'", "a>=1; python_version>='3.9'", "b[x]", "b[y]>1", "c @ https://example.org/c", "d",
]  # fmt: skip


@given(st.lists(st.sampled_from(REQUIREMENT_LINES), max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_requirements_does_not_matter(lines: list[str], chance: random.Random) -> None:
    shuffled = lines[:]
    chance.shuffle(shuffled)
    facts = facts_of("requirements.txt", "\n".join(lines))
    check_laws(MINERS["requirements.txt"], facts)
    assert set(facts) == set(facts_of("requirements.txt", "\n".join(shuffled)))
