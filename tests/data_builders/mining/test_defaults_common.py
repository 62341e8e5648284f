"""Defaults in any language: names, paths, uniqueness, the textual check, hostile files."""

from __future__ import annotations

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_builders.mining.facts import Family, Miner, UnreadableError
from data_builders.mining.miners.defaults_go import GoDefaultsMiner
from data_builders.mining.miners.defaults_python import PythonDefaultsMiner
from data_builders.mining.miners.defaults_rust import RustDefaultsMiner
from data_builders.mining.miners.defaults_script import ScriptDefaultsMiner
from data_builders.mining.miners.defaults_shared import MAX_SIZE, snake, string
from operators.normal import Form

PYTHON, RUST, SCRIPT, GO = (
    PythonDefaultsMiner(),
    RustDefaultsMiner(),
    ScriptDefaultsMiner(),
    GoDefaultsMiner(),
)
MINERS: dict[str, Miner] = {"src/a.py": PYTHON, "src/a.rs": RUST, "src/a.ts": SCRIPT, "pkg/a.go": GO}


def values(miner: Miner, text: str, path: str = "src/a.ts") -> dict[tuple[str, str], str]:
    return {(fact.thing, fact.slot): fact.value for fact in miner.read(path, text)}


class TestCommon:
    def test_one_key_in_two_tables_is_called_after_its_table(self) -> None:
        one, two = "export const A = [{name: 'x', v: 1}];\n", "export const B = [{name: 'x', v: 2}];\n"
        expected = {("A.x", "v"): "1", ("B.x", "v"): "2"}
        assert values(SCRIPT, one + two) == values(SCRIPT, two + one) == expected

    def test_a_key_wins_over_an_id_and_a_name(self) -> None:
        text = "export const A = [{name: 'A thing', id: 'thing-1', key: 'thing', n: 1}];"
        assert values(SCRIPT, text) == {
            ("thing", "name"): "A thing",
            ("thing", "id"): "thing-1",
            ("thing", "n"): "1",
        }

    @pytest.mark.parametrize(
        ("text", "form"),
        [
            ("1.2.3", Form.VERSION),
            ("^18.2.0", Form.VERSION),
            ("v1.2", Form.VERSION),
            ("30s", Form.NUMBER),
            ("10 MB", Form.NUMBER),
            ("gpt-5", Form.NAME),
            ("src/main.py", Form.NAME),
            ("two words", Form.TEXT),
        ],
    )
    def test_form_of_a_string(self, text: str, form: Form) -> None:
        scalar = string(text)
        assert scalar is not None
        assert scalar.form is form

    @pytest.mark.parametrize(
        "text",
        [
            "",
            " ",
            "x" * 121,
            "two\nlines",
            "a\0b",
            "d41d8cd98f00b204e9800998ecf8427e",
            "sha256-abc",
            "aB3" * 11,
        ],
    )
    def test_what_is_no_value(self, text: str) -> None:
        assert string(text) is None

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("defaultEnabled", "default_enabled"),
            ("HTTPTimeout", "http_timeout"),
            ("UUIDv3", "uuidv3"),
            ("a-b c", "a_b_c"),
        ],
    )
    def test_snake(self, name: str, expected: str) -> None:
        assert snake(name) == expected

    @pytest.mark.parametrize(
        ("miner", "path", "wanted"),
        [
            (RUST, "codex-rs/features/src/lib.rs", True),
            (RUST, "crates/x/tests/it.rs", False),
            (RUST, "src/exec_tests.rs", False),
            (PYTHON, "fastapi/applications.py", True),
            (PYTHON, "test_x.py", False),
            (PYTHON, "vendor/x.py", False),
            (PYTHON, "a_pb2.py", False),
            (PYTHON, "conftest.py", False),
            (PYTHON, "src/latest_news.py", True),
            (SCRIPT, "src/index.tsx", True),
            (SCRIPT, "src/index.test.ts", False),
            (SCRIPT, "src/types.d.ts", False),
            (SCRIPT, "node_modules/a/index.js", False),
            (SCRIPT, "lib/a.min.js", False),
            (GO, "cmd/main.go", True),
            (GO, "cmd/main_test.go", False),
            (GO, "README.md", False),
        ],
    )
    def test_wanted_paths(self, miner: Miner, path: str, wanted: bool) -> None:
        assert miner.wants(path) is wanted

    @pytest.mark.parametrize("path", MINERS)
    def test_a_miner_says_what_it_is(self, path: str) -> None:
        miner = MINERS[path]
        assert miner.family is Family.DEFAULTS
        assert re.fullmatch(r"defaults-\w+", miner.name)
        assert {"value", "default", "stage", "default_enabled"} <= set(miner.slots)


VALID = {
    "src/a.py": [
        "A = 1", "B: str = 'x'", "F = [dict(name='A', v=1)]", "class C:\n    A = 2\n    b: int = 3",
        "G = [dict(key='A', v=2), dict(key='A', v=3)]", "class E(Enum):\n    A = 1", "DEFAULTS = {'A': {'b': 1}}",
    ],
    "src/a.rs": [
        "const A: u8 = 1;", "mod A { const B: u8 = 1; }", 'const F: &[S] = &[S { key: "A", v: 1 }];',
        'const G: &[S] = &[S { key: "A", v: 1 }, S { key: "A", v: 2 }];', "enum A { B = 1, #[default] C }",
        "#[cfg(unix)] const A: u8 = 2;", "impl Default for A { fn default() -> Self { A { B: 1 } } }",
    ],
    "src/a.ts": [
        "export const A = 1;", "enum A { B = 1 }", "const F = [{ key: 'A', v: 1, value: 3 }];",
        "const DEFAULTS = { A: { v: 1 } };", "const G = [{ key: 'A', v: 1 }, { key: 'A', v: 2 }];",
    ],
    "pkg/a.go": [
        "const A = 1", 'var F = []S{{Name: "A", V: 1, Value: 2}}', "func DefaultA() A { return A{B: 1} }",
        "func NewConfig() A { return A{B: 2} }", 'var G = map[string]S{"A": {V: 1}}',
    ],
}  # fmt: skip


def source(path: str) -> st.SearchStrategy[str]:
    head = ["package x"] if path.endswith(".go") else []
    return st.lists(st.sampled_from(VALID[path])).map(lambda parts: "\n".join([*head, *parts]))


@pytest.mark.parametrize("path", MINERS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_thing_and_slot_are_unique_and_reading_is_pure(path: str, data: st.DataObject) -> None:
    text = data.draw(source(path))
    facts = MINERS[path].read(path, text)
    assert len({(fact.thing, fact.slot) for fact in facts}) == len(facts)
    assert facts == MINERS[path].read(path, text)
    assert all(0 < len(fact.value) <= 120 and "\n" not in fact.value for fact in facts)
    assert all(
        fact.thing not in fact.aliases and len(set(fact.aliases)) == len(fact.aliases) for fact in facts
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/a.rs", "const/*c*/A/*d*/:u8=1;"),
        ("src/a.rs", "static\nA: u8 = 1;"),
        ("src/a.rs", "impl core::default::Default\nfor A{fn default()->A{A{b:1}}}"),
        ("src/a.py", "A\\\n=1"),
        ("src/a.py", "import a; B = 3"),
        ("src/a.py", "\ufeffA = 1"),
        ("src/a.py", "def f():\n  parser . add_argument('--x', default=1)"),
        ("src/a.ts", "export/**/const/**/A=1"),
        ("pkg/a.go", "package x;const A=1"),
        ("pkg/a.go", "package x\nfunc /*\n*/ DefaultA() A { return A{B: 1} }"),
    ],
)
def test_unusual_spacing_passes_the_textual_check(path: str, text: str) -> None:
    assert len(MINERS[path].read(path, text)) == 1


@pytest.mark.parametrize("path", MINERS)
@given(text=st.text(alphabet=st.characters(codec=None), max_size=80))
@settings(max_examples=80, deadline=None)
def test_any_text_is_read_or_unreadable(path: str, text: str) -> None:
    for prefix in ("", "const A: u8 = ", "A = ", "const A = ", "package x\nconst A = "):
        with suppress(UnreadableError):
            MINERS[path].read(path, prefix + text)


HOSTILE = {
    "syntax error": "const A = = class ; (",
    "deep brackets": "const A: u8 = " + "(\n" * 9000 + "1" + ")\n" * 9000 + ";",
    "deep objects": "export const DEFAULTS = " + '{"a":\n' * 5000 + "1" + "}\n" * 5000,
    "deep lists": "A = " + "[\n" * 9000 + "1" + "]\n" * 9000,
    "nul": "A = 1\0\nconst A: u8 = 1;\0",
    "many operators": "A = 1" + "\n + 1" * 9000,
    "long line": 'A = "' + "x" * 10_000_000 + '"',
    "surrogate": 'A = "\ud800"\nconst A: &str = "\ud800";',
    "deep modules": "mod a {\n" * 3000 + "const A: u8 = 1;" + "}\n" * 3000,
    "deep classes": "".join(f"{' ' * depth}class A:\n" for depth in range(300)) + " " * 300 + "A = 1\n",
}


@pytest.mark.parametrize("path", MINERS)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_soon(path: str, name: str) -> None:
    start = time.perf_counter()
    with suppress(UnreadableError):
        MINERS[path].read(path, HOSTILE[name])
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("path", MINERS)
def test_a_syntax_error_is_unreadable(path: str) -> None:
    with pytest.raises(UnreadableError, match="not valid"):
        MINERS[path].read(path, "const A = = class A ( ; \nA = = 3")


@pytest.mark.parametrize("path", MINERS)
def test_large_and_minified_files_hold_nothing(path: str) -> None:
    comment = "#" if path.endswith(".py") else "//"
    code = {
        "src/a.py": "A = 1",
        "src/a.rs": "const A: u8 = 1;",
        "src/a.ts": "export const A = 1",
        "pkg/a.go": "package x\nconst A = 1",
    }
    assert MINERS[path].read(path, f"{code[path]}\n{comment} short")
    assert not MINERS[path].read(path, f"{code[path]}\n" + f"{comment} padding\n" * (MAX_SIZE // 8))
    assert not MINERS[path].read(path, f"{code[path]}\n{comment} {'x' * 30_000}")
