"""Which files are configuration that people keep by hand, told from the path alone."""

from __future__ import annotations

from data_builders.mining.miners.paths import folders, is_kept_by_hand

_YAML_ENDINGS = (".yml", ".yaml")
_JSON_ENDINGS = (".json", ".jsonc", ".json5")
_YAML_WITHOUT_ENDING = frozenset(
    {".clang-format", ".clang-tidy", ".clangd", ".eslintrc", ".prettierrc", ".stylelintrc", ".yamllint"}
)
_JSON_WITHOUT_ENDING = frozenset({".babelrc", ".jshintrc", ".nycrc", ".swcrc", ".jscsrc", ".bowerrc"})
_NAMES = frozenset(
    """.codecov .commitlintrc .golangci .goreleaser .markdownlint .markdownlint-cli2 .mocharc .oxfmtrc
    .oxlintrc .readthedocs .rubocop .rustfmt .stylua .taplo .typos .yamlfmt .yamllint _config _typos
    angular appveyor biome book bunfig cliff clippy codecov components config cross cspell .cspell deny
    dependabot deno devcontainer firebase goreleaser hugo labeler lefthook lerna mkdocs mypy netlify
    nextest nx poetry pyproject pyrightconfig release release-please-config renovate ruff rustfmt
    settings snapcraft spellcheck taplo turbo typos vercel wrangler zizmor""".split()
)
_STARTS = (
    "tsconfig",
    "jsconfig",
    ".eslintrc",
    ".prettierrc",
    ".stylelintrc",
    ".babelrc",
    "api-extractor",
    "tslint",
)
_FOLDERS = frozenset(
    {".cargo", ".config", ".devcontainer", ".vscode", "config", "configs", "conf", ".github"}
)
_NOT_CONFIG = frozenset(
    """.all-contributorsrc .gitlab-ci .pre-commit-config action bower cargo codeowners composer
    contributors.json environment environment-dev funding manifest package package-lock npm-shrinkwrap
    pnpm-lock pnpm-workspace rust-toolchain sponsors uv poetry.lock people translations""".split()
)
_GENERATED_MARKS = (
    "lock",
    "schema",
    "snapshot",
    "openapi",
    "swagger",
    "fixture",
    "changelog",
    "sponsors",
    "baseline",
    "manifest",
)
_OWN_FORMATS = ("azure-pipelines", "docker-compose", "compose.", "pylock")


def wants_toml(path: str) -> bool:
    """pyproject and Cargo (for what is not a dependency), formatters, linters, sites."""
    stem, is_root = _stem(path, (".toml",))
    return _is_config(path, stem, is_root) or (stem in {"pyproject", "cargo"} and is_kept_by_hand(path))


def wants_yaml(path: str) -> bool:
    last = path.rpartition("/")[2]
    if last in _YAML_WITHOUT_ENDING:
        return is_kept_by_hand(path)
    stem, is_root = _stem(path, _YAML_ENDINGS)
    return _is_config(path, stem, is_root) or (stem == "pnpm-workspace" and is_root)


def wants_json(path: str) -> bool:
    last = path.rpartition("/")[2]
    if last in _JSON_WITHOUT_ENDING:
        return is_kept_by_hand(path)
    stem, is_root = _stem(path, _JSON_ENDINGS)
    return _is_config(path, stem, is_root) or (stem == "package" and is_kept_by_hand(path))


def _stem(path: str, endings: tuple[str, ...]) -> tuple[str, bool]:
    """The lower-case name without its ending (empty if it has another), and whether it is at the root."""
    folder, _, last = path.lower().rpartition("/")
    for ending in endings:
        if last.endswith(ending):
            return last.removesuffix(ending), not folder
    return "", not folder


def _is_config(path: str, stem: str, is_root: bool) -> bool:
    if not stem or stem in _NOT_CONFIG or stem.startswith(_OWN_FORMATS) or not is_kept_by_hand(path):
        return False
    if any(mark in stem for mark in _GENERATED_MARKS):
        return False
    on_the_way = folders(path)
    if {".circleci", ".gitlab", "issue_template", "discussion_template", "workflows", "actions"} & set(
        on_the_way
    ):
        return False
    if is_root or stem in _NAMES or stem.startswith(_STARTS) or stem.endswith((".config", "rc")):
        return True
    return on_the_way[-1] in _FOLDERS
