"""Defaults in source: what each language's constructs yield, uniqueness, and hostile files."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from data_builders.mining.facts import Fact, Miner
from data_builders.mining.miners.defaults_go import GoDefaultsMiner
from data_builders.mining.miners.defaults_python import PythonDefaultsMiner
from data_builders.mining.miners.defaults_rust import RustDefaultsMiner
from data_builders.mining.miners.defaults_script import ScriptDefaultsMiner
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


def only(facts: Sequence[Fact], thing: str, slot: str) -> Fact:
    return next(fact for fact in facts if (fact.thing, fact.slot) == (thing, slot))


FEATURES = """
pub const FEATURES: &[FeatureSpec] = &[
    // Stable features.
    FeatureSpec { id: Feature::ViewImage, key: "view_image", stage: Stage::Stable, default_enabled: true },
    FeatureSpec {
        id: Feature::UnifiedExec,
        key: "unified_exec",
        // stage: Stage::Beta,
        stage: Stage::Experimental { name: "Background terminal", menu_description: "Run it" },
        default_enabled: !cfg!(windows),
    },
    FeatureSpec {
        id: Feature::Sleep,
        key: "prevent_idle_sleep",
        stage: if cfg!(target_os = "macos") { Stage::Experimental { name: "x" } } else { Stage::UnderDevelopment },
        default_enabled: false,
    },
    FeatureSpec {
        id: Feature::Utf8,
        key: "powershell_utf8",
        #[cfg(windows)]
        stage: Stage::Beta { name: "y" },
        #[cfg(not(windows))]
        stage: Stage::UnderDevelopment,
        default_enabled: cfg!(windows),
    },
];
"""


class TestRust:
    def test_a_feature_table_gives_a_fact_for_each_field_under_the_key(self) -> None:
        assert values(RUST, FEATURES) == {
            ("view_image", "id"): "ViewImage",
            ("view_image", "stage"): "Stable",
            ("view_image", "default_enabled"): "on",
            ("unified_exec", "id"): "UnifiedExec",
            ("unified_exec", "stage"): "Experimental",
            ("unified_exec", "default_enabled"): "!cfg!(windows)",
            ("prevent_idle_sleep", "id"): "Sleep",
            ("prevent_idle_sleep", "stage"): "Experimental/UnderDevelopment",
            ("prevent_idle_sleep", "default_enabled"): "off",
            ("powershell_utf8", "id"): "Utf8",
            ("powershell_utf8", "stage"): "Beta/UnderDevelopment",
            ("powershell_utf8", "default_enabled"): "cfg!(windows)",
        }

    def test_forms_and_aliases_of_a_flag(self) -> None:
        facts = RUST.read("a.rs", FEATURES)
        assert only(facts, "view_image", "default_enabled").form is Form.FLAG
        assert only(facts, "view_image", "stage").form is Form.NAME
        assert only(facts, "unified_exec", "default_enabled").form is Form.TEXT
        assert {"view-image", "ViewImage"} <= set(only(facts, "view_image", "stage").aliases)

    def test_constants(self) -> None:
        text = """
            pub const MAX_RETRIES: u64 = 10_000u64;
            const OFFSET: i32 = -3;
            static GREETING: &str = "hello world";
            const TIMEOUT: Duration = Duration::from_secs(30);
            const RAW: &str = r#"raw-name"#;
            const SIZE: usize = 4 * 1024;
            const VERSION: &str = "1.2.3";
            const RE: LazyLock<Regex> = LazyLock::new(|| make());
            mod inner { pub const DEEP: bool = true; }
            impl Limits { const FACTOR: f32 = 1.5_f32; }
            fn local() { const HIDDEN: u8 = 1; }
        """
        assert values(RUST, text) == {
            ("MAX_RETRIES", "value"): "10_000",
            ("OFFSET", "value"): "-3",
            ("GREETING", "value"): "hello world",
            ("TIMEOUT", "value"): "30s",
            ("RAW", "value"): "raw-name",
            ("SIZE", "value"): "4 * 1024",
            ("VERSION", "value"): "1.2.3",
            ("inner.DEEP", "value"): "on",
            ("Limits.FACTOR", "value"): "1.5",
        }

    def test_conditional_items_have_names_of_their_own_and_tests_have_none(self) -> None:
        text = """
            #[cfg(windows)] const SHELL: &str = "powershell";
            #[cfg(not(windows))] const SHELL: &str = "bash";
            #[cfg(not(test))] const DELAY: u8 = 1;
            #[cfg(test)] const DELAY: u8 = 2;
            #[cfg(test)] mod tests { const X: u8 = 1; }
        """
        assert values(RUST, text) == {
            ("SHELL[windows]", "value"): "powershell",
            ("SHELL[not(windows)]", "value"): "bash",
            ("DELAY", "value"): "1",
        }

    def test_default_implementations(self) -> None:
        text = """
            impl Default for Config {
                fn default() -> Self {
                    let x = 3;
                    Self {
                        retries: 4, model: Some("o3".to_string()), dir: String::from("/tmp"), mode: Mode::Auto,
                        limit: DEFAULT_LIMIT, items: Vec::new(), none: None, x, wait: Duration::from_millis(5),
                        inner: Inner { deep: true }, ..Base::default()
                    }
                }
            }
            impl std::default::Default for Mode { fn default() -> Self { Mode::Auto } }
            enum Kind { A = 1, #[default] B }
        """
        assert values(RUST, text) == {
            ("Config.retries", "default"): "4",
            ("Config.model", "default"): "o3",
            ("Config.dir", "default"): "/tmp",
            ("Config.mode", "default"): "Auto",
            ("Config.limit", "default"): "DEFAULT_LIMIT",
            ("Config.wait", "default"): "5ms",
            ("Config.inner.deep", "default"): "on",
            ("Mode", "default"): "Auto",
            ("Kind.A", "value"): "1",
            ("Kind", "default"): "B",
        }

    def test_clap_and_serde_attributes(self) -> None:
        text = """
            struct Cli {
                #[arg(long, default_value_t = 8080)] port: u16,
                #[arg(long = "colour", default_value = "auto")] color: String,
                #[clap(default_value_t = Kind::Fast)] kind: Kind,
                #[arg(long, default_value = "true")] wait: bool,
                #[serde(default = "yes")] on: bool,
                #[serde(default = "elsewhere::dflt")] other: u8,
                #[serde(default)] plain: u8,
            }
            enum Command { Serve { #[arg(long, default_value_t = -1)] level: i8 } }
            fn yes() -> bool { true }
        """
        assert values(RUST, text) == {
            ("Cli.port", "default"): "8080",
            ("Cli.color", "default"): "auto",
            ("Cli.kind", "default"): "Fast",
            ("Cli.wait", "default"): "on",
            ("Cli.on", "default"): "on",
            ("Cli.other", "default"): "elsewhere::dflt",
            ("Command.Serve.level", "default"): "-1",
        }
        assert "--colour" in only(RUST.read("a.rs", text), "Cli.color", "default").aliases


class TestPython:
    def test_constants_and_enum_members(self) -> None:
        text = """
DEFAULT_TIMEOUT: float = 30.5
__version__ = "0.110.0"
NAME, OTHER = "a", "b"
lower = 3
DEBUG = False
NOTHING = None
SIZE = 4 * 1024
DOC = '''two
lines'''
TEMPLATE = f"{NAME}"
class Color(str, Enum):
    red = "r"
    GREEN = "g"
    auto = auto()
class Plain:
    LIMIT = 5
    other = 6
"""
        assert values(PYTHON, text) == {
            ("DEFAULT_TIMEOUT", "value"): "30.5",
            ("__version__", "value"): "0.110.0",
            ("DEBUG", "value"): "off",
            ("SIZE", "value"): "4 * 1024",
            ("Color.red", "value"): "r",
            ("Color.GREEN", "value"): "g",
            ("Plain.LIMIT", "value"): "5",
        }

    def test_the_last_assignment_stands(self) -> None:
        assert values(PYTHON, "A = 1\nA = 2\n") == {("A", "value"): "2"}

    def test_fields_of_data_classes(self) -> None:
        text = """
@dataclass(frozen=True)
class Settings(BaseModel):
    port: int = 8000
    host: str = Field(default="localhost", alias="HOST")
    level: str = Field("info")
    tags: list[str] = Field(default_factory=list)
    stage: Stage = Stage.BETA
    wait: timedelta = timedelta(seconds=30)
    owner: User = relationship(back_populates="x")
    size = attr.ib(default=3)
    class Inner:
        deep: bool = True
"""
        assert values(PYTHON, text) == {
            ("Settings.port", "default"): "8000",
            ("Settings.host", "default"): "localhost",
            ("Settings.level", "default"): "info",
            ("Settings.stage", "default"): "BETA",
            ("Settings.wait", "default"): "timedelta(seconds=30)",
            ("Settings.size", "default"): "3",
            ("Settings.Inner.deep", "default"): "on",
        }

    def test_command_line_options(self) -> None:
        text = """
def main():
    parser.add_argument("-r", "--max-retries", type=int, default=3)
    serve.add_argument("--port", default=80)
    parser.add_argument("--off", default=argparse.SUPPRESS)
@app.command()
@click.option("--color/--no-color", default=True)
def run(
    count: int = typer.Option(5, "--count"),
    dry_run: Annotated[bool, typer.Option()] = False,
    name: Annotated[str, typer.Argument(help="x")] = "world",
    plain: int = 3,
):
    pass
"""
        assert values(PYTHON, text) == {
            ("main.--max-retries", "default"): "3",
            ("main.serve.--port", "default"): "80",
            ("run.--color", "default"): "on",
            ("run.--count", "default"): "5",
            ("run.--dry-run", "default"): "off",
            ("run.name", "default"): "world",
        }
        aliases = only(PYTHON.read("a.py", text), "main.--max-retries", "default").aliases
        assert {"--max-retries", "max-retries", "max_retries"} <= set(aliases)

    def test_tables_and_configuration(self) -> None:
        text = """
FLAGS = [Flag(key="new-ui", stage=Stage.BETA, enabled=True), {"name": "old-ui", "enabled": False}, Flag("x", 1)]
DEFAULT_CONFIG = {"retries": 3, "http": {"timeout": 10, "tls": {"on": True, "deep": {"er": 1}}}, "n": None}
TRANSLATIONS = {"a": "b"}
"""
        assert values(PYTHON, text) == {
            ("new-ui", "stage"): "BETA",
            ("new-ui", "enabled"): "on",
            ("old-ui", "enabled"): "off",
            ("DEFAULT_CONFIG.retries", "default"): "3",
            ("DEFAULT_CONFIG.http.timeout", "default"): "10",
            ("DEFAULT_CONFIG.http.tls.on", "default"): "on",
        }


class TestScript:
    def test_constants_enums_and_classes(self) -> None:
        text = """
export const PORT = 5173, host: string = 'localhost';
const INTERNAL = -1;
const local = 3;
let CHANGING = 3;
export const greeting = `hello`;
export const made = `a${host}`;
export enum Level { Low = 1, High = 'high', None }
const enum Inline { A = 2 }
export class Server { static readonly maxAge = 60; static LIMIT = 5; readonly own = 7; }
"""
        assert values(SCRIPT, text) == {
            ("PORT", "value"): "5173",
            ("host", "value"): "localhost",
            ("INTERNAL", "value"): "-1",
            ("greeting", "value"): "hello",
            ("Level.Low", "value"): "1",
            ("Level.High", "value"): "high",
            ("Inline.A", "value"): "2",
            ("Server.maxAge", "value"): "60",
            ("Server.LIMIT", "value"): "5",
        }

    def test_tables_and_configuration(self) -> None:
        text = """
const flags: Flag[] = [{ key: 'newUi', stage: Stage.Beta, defaultEnabled: true }] satisfies Flag[];
export const serverDefaults = Object.freeze({ port: 1, 'strict-port': false, hmr: { overlay: true }, f() {}, ...base } as const);
export const colours = { red: '#f00' };
"""
        assert values(SCRIPT, text) == {
            ("newUi", "stage"): "Beta",
            ("newUi", "default_enabled"): "on",
            ("serverDefaults.port", "default"): "1",
            ("serverDefaults.strict-port", "default"): "off",
            ("serverDefaults.hmr.overlay", "default"): "on",
        }
        assert {"new_ui", "new-ui"} <= set(only(SCRIPT.read("a.ts", text), "newUi", "stage").aliases)

    @pytest.mark.parametrize("path", ["a.tsx", "a.jsx", "a.js", "a.mjs", "a.cjs", "a.mts", "a.cts"])
    def test_every_dialect(self, path: str) -> None:
        assert values(SCRIPT, "export const A = 1", path) == {("A", "value"): "1"}


class TestGo:
    def test_constants_and_variables(self) -> None:
        text = """package x
const Timeout = 30 * time.Second
const (
	A = "x"
	B
	C = iota
	D time.Duration = time.Hour
)
var V, W = true, false
var f, err = open()
func g() { const local = 1 }
"""
        assert values(GO, text) == {
            ("Timeout", "value"): "30s",
            ("A", "value"): "x",
            ("D", "value"): "1h",
            ("V", "value"): "on",
            ("W", "value"): "off",
        }

    def test_tables(self) -> None:
        text = """package x
var Flags = []Flag{{Name: "new-ui", Enabled: true}, Flag{Name: "old-ui", Stage: stage.Beta}}
var Pointers = []*Flag{&Flag{Name: "p", Weight: 3}, {Name: "q", Weight: 4}}
var gates = map[Feature]Spec{
	pkg.NewThing: {Default: false, PreRelease: featuregate.Alpha},
	"b": {Default: true},
}
var words = map[string]string{"a": "b"}
"""
        assert values(GO, text) == {
            ("new-ui", "enabled"): "on",
            ("old-ui", "stage"): "Beta",
            ("p", "weight"): "3",
            ("q", "weight"): "4",
            ("NewThing", "default"): "off",
            ("NewThing", "pre_release"): "Alpha",
            ("b", "default"): "on",
        }

    def test_functions_that_make_defaults(self) -> None:
        text = """package x
func DefaultConfig() *Config {
	return &Config{Retries: 3, HTTP: HTTP{Timeout: 5 * time.Second}, N: runtime.NumCPU()}
}
func NewServerOptions() Options { o := Options{Port: 80}; return o }
func NewThing() Thing { return Thing{A: 1} }
var DefaultLimits = Limits{Max: 9}
"""
        assert values(GO, text) == {
            ("Config.Retries", "default"): "3",
            ("Config.HTTP.Timeout", "default"): "5s",
            ("Options.Port", "default"): "80",
            ("DefaultLimits.Max", "default"): "9",
        }

    def test_two_functions_of_one_type_are_told_apart(self) -> None:
        text = """package x
func DefaultConfig() Config { return Config{Retries: 3} }
func DefaultTestConfig() Config { return Config{Retries: 1} }
"""
        assert values(GO, text) == {
            ("DefaultConfig.Config.Retries", "default"): "3",
            ("DefaultTestConfig.Config.Retries", "default"): "1",
        }

    def test_generated_code_holds_nothing(self) -> None:
        assert not GO.read("a.go", "// Code generated by x. DO NOT EDIT.\npackage x\nconst A = 1\n")
