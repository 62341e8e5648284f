"""The slots of configuration keys: names many tools share get their own, the rest go by what the value is."""

from __future__ import annotations

from dataclasses import dataclass

from operators.normal import Form

GENERIC = {
    "switch": ("setting", "option", "flag"),
    "amount": ("setting", "limit", "value"),
    "version": ("version",),
    "setting": ("setting", "option", "value"),
    "entry": ("entry", "list"),
}
_OF_FORM = {Form.FLAG: "switch", Form.NUMBER: "amount", Form.VERSION: "version"}


@dataclass(frozen=True, slots=True)
class _Slot:
    form: Form
    words: tuple[str, ...]
    keys: tuple[str, ...]


_SCALARS = {
    "line-length": _Slot(
        Form.NUMBER,
        ("line length", "line width", "width", "max width"),
        ("line-length", "max-width", "printWidth", "max-line-length", "lineWidth", "column-width", "wrap"),
    ),
    "indent-width": _Slot(
        Form.NUMBER,
        ("indent", "indentation", "tab width"),
        ("tabWidth", "indent-width", "tab-spaces", "indentWidth", "indent-size", "tab-size"),
    ),
    "timeout": _Slot(
        Form.NUMBER,
        ("timeout", "time limit"),
        ("timeout", "timeout-minutes", "timeout-ms", "slow-timeout", "testTimeout", "period"),
    ),
    "request-limit": _Slot(
        Form.NUMBER,
        ("limit", "pull request limit"),
        ("open-pull-requests-limit", "prConcurrentLimit", "prHourlyLimit", "branchConcurrentLimit"),
    ),
    "cooldown": _Slot(
        Form.NUMBER, ("cooldown", "days"), ("default-days", "minimumReleaseAge", "stabilityDays")
    ),
    "max-complexity": _Slot(
        Form.NUMBER,
        ("complexity", "threshold"),
        ("max-complexity", "cognitive-complexity-threshold", "too-many-arguments-threshold"),
    ),
    "opt-level": _Slot(Form.NAME, ("opt-level", "optimization level"), ("opt-level",)),
    "codegen-units": _Slot(Form.NUMBER, ("codegen units",), ("codegen-units",)),
    "lto": _Slot(Form.NAME, ("lto", "link-time optimization"), ("lto",)),
    "strip": _Slot(Form.NAME, ("strip", "symbols"), ("strip",)),
    "debug-info": _Slot(Form.NAME, ("debug", "debug info"), ("debug",)),
    "panic": _Slot(Form.NAME, ("panic", "panic strategy"), ("panic",)),
    "edition": _Slot(Form.VERSION, ("edition",), ("edition", "style-edition")),
    "resolver": _Slot(Form.NAME, ("resolver",), ("resolver", "moduleResolution")),
    "target-version": _Slot(
        Form.VERSION,
        ("target", "target version"),
        (
            "target",
            "target-version",
            "python-version",
            "pythonVersion",
            "py-version",
            "msrv",
            "minimum-version",
        ),
    ),
    "module-kind": _Slot(Form.NAME, ("module", "module kind"), ("module",)),
    "jsx": _Slot(Form.NAME, ("jsx",), ("jsx", "jsxImportSource")),
    "extends": _Slot(Form.NAME, ("base config", "extends"), ("extends",)),
    "lint-level": _Slot(Form.NAME, ("lint", "level", "lint level"), ()),
    "schedule": _Slot(
        Form.NAME, ("schedule", "interval"), ("interval", "schedule", "cron", "autoupdate-schedule")
    ),
    "merge-policy": _Slot(
        Form.NAME,
        ("merge", "policy"),
        (
            "multiple-versions",
            "unused-allowed-license",
            "yanked",
            "wildcards",
            "unknown-git",
            "rangeStrategy",
        ),
    ),
    "quote-style": _Slot(
        Form.NAME, ("quotes", "quote style"), ("quote-style", "quoteStyle", "inline-quotes")
    ),
    "line-ending": _Slot(
        Form.NAME, ("line ending", "newline style"), ("line-ending", "endOfLine", "newline-style")
    ),
    "docstring-style": _Slot(Form.NAME, ("docstring style", "convention"), ("convention", "docstring-style")),
    "site-url": _Slot(
        Form.NAME, ("site url", "base url"), ("site-url", "baseURL", "baseUrl", "repo-url", "site")
    ),
    "title": _Slot(Form.TEXT, ("title", "name"), ("title", "site-name", "site-description", "repo-name")),
    "theme": _Slot(Form.NAME, ("theme",), ("theme", "palette", "scheme", "primary", "accent", "font")),
    "output": _Slot(
        Form.NAME,
        ("output", "output directory"),
        ("outDir", "output", "out-dir", "publish", "publishDir", "site-dir", "declarationDir"),
    ),
    "source": _Slot(
        Form.NAME,
        ("source", "root", "directory"),
        ("rootDir", "directory", "base", "docs-dir", "src", "root"),
    ),
    "build-command": _Slot(
        Form.NAME,
        ("command", "build command"),
        ("command", "runner", "entry", "build-command", "rustc-wrapper"),
    ),
    "coverage-threshold": _Slot(
        Form.NUMBER, ("coverage", "threshold"), ("fail-under", "threshold", "target-coverage")
    ),
    "branch": _Slot(Form.NAME, ("branch",), ("target-branch", "baseBranch", "branch", "default-branch")),
    "log-level": _Slot(Form.NAME, ("log level", "level"), ("log-level", "logLevel", "log-cli-level")),
    "strict": _Slot(Form.FLAG, ("strict", "strict mode"), ("strict",)),
    "use-tabs": _Slot(Form.FLAG, ("tabs", "use tabs"), ("useTabs", "hard-tabs")),
    "enabled": _Slot(Form.FLAG, ("enabled",), ("enabled", "enable", "disabled")),
}
_LISTS = {
    "rule": _Slot(
        Form.NAME,
        ("rule", "lint", "rules"),
        (
            "select",
            "extend-select",
            "ignore",
            "extend-ignore",
            "rules",
            "disable",
            "enable",
            "skip",
            "disallowed-methods",
        ),
    ),
    "exclude": _Slot(
        Form.NAME,
        ("exclude", "excluded", "ignored"),
        ("exclude", "extend-exclude", "ignorePaths", "omit", "exclude-dirs", "ignores"),
    ),
    "include": _Slot(
        Form.NAME,
        ("include", "included"),
        ("include", "files", "testpaths", "src", "packages", "members", "paths"),
    ),
    "plugin": _Slot(
        Form.NAME, ("plugin", "extension"), ("plugins", "extensions", "markdown-extensions", "presets")
    ),
    "library": _Slot(Form.NAME, ("lib", "types"), ("lib", "types", "typeRoots")),
    "allowed": _Slot(
        Form.NAME,
        ("allowed", "allow list"),
        ("allow", "allow-git", "allow-registry", "dictionaries"),
    ),
    "denied": _Slot(Form.NAME, ("denied", "deny list"), ("deny", "ban", "flagWords")),
    "label": _Slot(Form.NAME, ("label", "labels"), ("labels", "addLabels", "assignees", "reviewers")),
    "target": _Slot(Form.NAME, ("target", "targets"), ("targets", "envlist", "browserslist")),
    "compiler-flag": _Slot(
        Form.NAME,
        ("flag", "rustflags", "argument"),
        ("rustflags", "addopts", "args", "rustdocflags", "flags"),
    ),
    "warning-filter": _Slot(Form.TEXT, ("warning", "filter"), ("filterwarnings",)),
}


def _same(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


_SCALAR_OF = {_same(key): slot for slot, each in _SCALARS.items() for key in each.keys}
_LIST_OF = {_same(key): slot for slot, each in _LISTS.items() for key in each.keys}

CONFIG_SLOTS: dict[str, tuple[str, ...]] = {
    **GENERIC,
    **{slot: each.words for slot, each in (_SCALARS | _LISTS).items()},
}


def scalar_slot(path: tuple[str, ...], form: Form) -> tuple[str, Form]:
    """Slot and form of a scalar at that path of keys; `form` is what its text looks like."""
    if len(path) > 2 and "lints" in path[:2] and path[-1] != "priority":
        return "lint-level", Form.NAME
    slot = _SCALAR_OF.get(_same(path[-1]))
    if slot:
        wanted = _SCALARS[slot].form
        if wanted is form or (wanted not in {Form.FLAG, Form.NUMBER} and form is not Form.FLAG):
            return slot, wanted
    return _OF_FORM.get(form, "setting"), form


def list_slot(path: tuple[str, ...]) -> str:
    """Slot of the scalars of a list at that path of keys."""
    return _LIST_OF.get(_same(path[-1]), "entry")
