"""Reading YAML that people write: every fault is reported with file, line and field.

Only null is resolved; every other scalar reaches the model as the text that stands in the file, so that
`on`, `1.10` and `2026-01-01T00:00:00Z` mean what they look like. The model's types do the conversion.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from rapidfuzz import process

from operators.errors import InputError

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32
ModelT = TypeVar("ModelT", bound=BaseModel)


class _TextLoader(yaml.SafeLoader):
    """A safe loader that resolves nothing but null."""


_TextLoader.yaml_implicit_resolvers = {}
_TextLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|)$"), ["~", "n", ""])


@dataclass(frozen=True, slots=True)
class Located(Generic[ModelT]):
    """A checked model together with where each of its fields stands."""

    value: ModelT
    file: Path
    root: yaml.Node

    def line(self, field: Sequence[str | int]) -> int:
        return _line_of(self.root, field)

    def fault(self, message: str, field: Sequence[str | int], *, hint: str = "") -> InputError:
        """An error that points at a field of this file."""
        return InputError(
            message, file=self.file, line=self.line(field), field=".".join(map(str, field)), hint=hint
        )


def read_text(path: Path) -> str:
    """The UTF-8 text of a file of at most 4 MiB. Raises: InputError."""
    if not path.is_file():
        raise InputError("no such file", file=path, hint="check the path")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise InputError(f"{size:,} bytes, more than {MAX_BYTES:,}", file=path, hint="split the file")
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = raw.count(b"\n", 0, fault.start) + 1
        raise InputError(
            f"not UTF-8 (byte {raw[fault.start]:#04x})", file=path, line=line, hint="save the file as UTF-8"
        ) from fault


def load_yaml(path: Path, model: type[ModelT]) -> Located[ModelT]:
    """Read one YAML document as `model`.

    Raises: InputError for an empty file, a wrong encoding, aliases or nesting deeper than 32 (both can
    make a small file enormous), a repeated or unknown key, and any field that does not fit.
    """
    text = read_text(path)
    try:
        _refuse_bombs(text, path)
        loader = _TextLoader(text)
        root = loader.get_single_node()
        if root is None:
            raise InputError("the file is empty", file=path, hint=f"it should hold a {model.__name__}")
        _refuse_repeated_keys(root, path, ())
        data = loader.construct_document(root)
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None)
        problem = getattr(fault, "problem", None) or str(fault).splitlines()[0]
        line = mark.line + 1 if mark is not None else None
        raise InputError(f"not YAML: {problem}", file=path, line=line, hint="see that line") from fault
    try:
        return Located(model.model_validate(data), path, root)
    except ValidationError as fault:
        raise _field_fault(fault, path, root, model) from fault


def _refuse_bombs(text: str, path: Path) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else None
        if isinstance(event, yaml.AliasEvent):
            raise InputError("YAML aliases are not accepted", file=path, line=line, hint="write it out")
        if getattr(event, "tag", None) is not None:
            raise InputError("YAML tags are not accepted", file=path, line=line, hint="write plain values")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise InputError(f"nested deeper than {MAX_DEPTH}", file=path, line=line, hint="flatten it")


def _refuse_repeated_keys(node: yaml.Node, path: Path, field: tuple[str | int, ...]) -> None:
    if isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            _refuse_repeated_keys(child, path, (*field, number))
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, child in node.value:
            name = str(key.value)
            where = (*field, name)
            if name in seen:
                line = key.start_mark.line + 1
                raise InputError(
                    "this key stands twice", file=path, line=line, field=".".join(map(str, where)),
                    hint="keep one of them",
                )  # fmt: skip
            seen.add(name)
            _refuse_repeated_keys(child, path, where)


def _line_of(root: yaml.Node, field: Sequence[str | int]) -> int:
    """The 1-based line of a field, or of the nearest part of its path that exists."""
    node, line = root, root.start_mark.line + 1
    for part in field:
        if isinstance(node, yaml.MappingNode):
            match = next(((key, child) for key, child in node.value if key.value == str(part)), None)
            if match is None:
                break
            line, node = match[0].start_mark.line + 1, match[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _field_fault(fault: ValidationError, path: Path, root: yaml.Node, model: type[BaseModel]) -> InputError:
    """The first of pydantic's faults, in the file's terms."""
    first = fault.errors(include_url=False)[0]
    loc = first["loc"]
    more = f" (and {fault.error_count() - 1} more)" if fault.error_count() > 1 else ""
    hint = "see the format in docs/FORMATS.md"
    if first["type"] == "extra_forbidden":
        near = process.extractOne(str(loc[-1]), sorted(_field_names(model)), score_cutoff=60)
        hint = f"did you mean `{near[0]}`?" if near else "remove it"
    message = first["msg"].removeprefix("Value error, ")
    return InputError(
        message + more, file=path, line=_line_of(root, loc), field=".".join(map(str, loc)), hint=hint
    )


def _field_names(model: type[BaseModel]) -> set[str]:
    """The field names of a model and of every model inside it."""
    names: set[str] = set()
    definitions = model.model_json_schema()
    for part in (definitions, *definitions.get("$defs", {}).values()):
        names |= set(part.get("properties", {}))
    return names
