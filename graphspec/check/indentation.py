"""Keys that are indented one level too little or too much, where the text is valid YAML that says something else.

Each is moved to where it belongs, so that it has one problem, which names the cause, and the rest is checked as meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel

from graphspec.declare.blocks import CONTAINERS, BlockSpec
from graphspec.declare.data import DataSource
from graphspec.declare.formulas import FormulaOp
from graphspec.declare.graph import GraphSpec
from graphspec.declare.inputs import InputSpec, StateSpec
from graphspec.declare.models import ModelSpec
from graphspec.declare.ops import KINDS
from graphspec.declare.optimizers import OPTIMIZERS
from graphspec.declare.precision import PrecisionSpec
from graphspec.declare.run import RunSpec
from graphspec.diagnostics import Diagnostic
from graphspec.expand.formulas import Overlaid
from graphspec.limits import MOST_PROBLEMS
from graphspec.read.source import Document, Path, Plain


def _find_fields(models: Iterable[type[BaseModel]]) -> frozenset[str]:
    return frozenset(field.alias or name for model in models for name, field in model.model_fields.items())


SECTIONS = _find_fields((GraphSpec,))
"""The keys of a document."""
ENTRIES: Mapping[str, tuple[str, frozenset[str]]] = {
    "inputs": ("an input", _find_fields((InputSpec,))),
    "state": ("a state", _find_fields((StateSpec,))),
    "models": ("a model", _find_fields((ModelSpec,))),
    "ops": ("an op", _find_fields((*KINDS.values(), *CONTAINERS.values(), FormulaOp)) | {*KINDS, *CONTAINERS, "expr"}),
    "blocks": ("a block", _find_fields((BlockSpec,))),
    "data": ("a data set", _find_fields((DataSource,))),
}
"""What the entries of a section are, and the fields that they have."""
RECORDS: Mapping[str, frozenset[str]] = {"run": _find_fields((RunSpec,)), "precision": _find_fields((PrecisionSpec,))}
"""The keys of sections that have no entries."""
_AT_THE_START = "write it at the first column, like `models:` and `ops:`"
_OPTIONS = frozenset(option.name for options in OPTIMIZERS.values() for option in options) | {"name"}


class _Slip(Struct, frozen=True, kw_only=True):
    """A key that stands at one path and belongs at another."""

    path: Path
    meant: Path
    what: str
    help: str


def fix_indentation(document: Document) -> tuple[Document, tuple[Diagnostic, ...]]:
    """Return a document with every key at the level where it belongs; and the problems of those that were not."""
    data = document.data
    if not isinstance(data, dict) or document.text.lstrip().startswith("{"):  # JSON says by brackets what is in what
        return document, ()
    lines = {file: text.split("\n") for file, text in document.texts.items()}
    problems: list[Diagnostic] = []
    moved: dict[Path, Path] = {}
    for slip in islice(_find_slips(data, document), MOST_PROBLEMS):
        span = document.key_span(slip.path)
        # Between brackets indentation says nothing: a key counts where it is the first on its line.
        first = re.compile(rf"\s*['\"]?{re.escape(str(slip.path[-1]))}['\"]?\s*:")
        if not any(map(first.match, lines.get(span.file, [])[span.line - 1 : span.line])):
            continue
        label = f"indented too {'little' if len(slip.meant) > len(slip.path) else 'much'}"
        message = f"`{slip.path[-1]}` is {slip.what}"
        problems.append(Diagnostic(code="GS040", message=message, span=span, label=label, help=slip.help))
        value: Plain = data
        for key in slip.path:
            assert isinstance(value, dict)
            value = value[str(key)]
        data = _add(_remove(data, slip.path), slip.meant, value)
        moved[slip.path] = slip.meant
    if not problems:
        return document, ()
    places = {
        (*moved[path[:length]], *path[length:]): place
        for path, place in document.places.items()
        for length in range(1, len(path) + 1)
        if path[:length] in moved
    }
    return replace(document, data=data, places=Overlaid(document.places, places)), tuple(problems)


def _find_slips(data: Mapping[str, Plain], document: Document) -> Iterator[_Slip]:
    """Yield the keys that no field and no entry can be where they stand, and would be a level higher or lower."""
    above = ""
    for key, value in data.items():
        if key in SECTIONS:
            above = key
        elif _takes(above, key, value):
            what = f"a key of `{above}`" if above in RECORDS else ENTRIES[above][0]
            help = f"indent it below `{above}:` (line {document.key_span((above,)).line})"
            yield _Slip(path=(key,), meant=(above, key), what=what, help=help)
    for section, content in data.items():
        if not isinstance(content, dict):
            continue
        if section in ENTRIES:
            yield from _find_in_section(section, content, data, document)
        for key in content if section in RECORDS else ():
            if key in SECTIONS and key not in RECORDS[section] and key not in data:
                yield _Slip(path=(section, key), meant=(key,), what="a section of its own", help=_AT_THE_START)
    blocks = data.get("blocks")
    for name, block in blocks.items() if isinstance(blocks, dict) else ():
        above = ""
        for key, value in block.items() if isinstance(block, dict) else ():
            if key in ENTRIES["blocks"][1]:
                above = key
            elif above == "ops" and _takes(above, key, value):
                help = f"indent it below `ops:` (line {document.key_span(('blocks', name, 'ops')).line})"
                yield _Slip(path=("blocks", name, key), meant=("blocks", name, "ops", key), what="an op", help=help)


def _find_in_section(
    section: str, content: Mapping[str, Plain], data: Mapping[str, Plain], document: Document
) -> Iterator[_Slip]:
    """Yield the keys of a section that are fields of an entry, or sections, and the fields that are within another."""
    noun, fields = ENTRIES[section]
    above = ""
    for name, entry in content.items():
        is_entry = name not in fields and name not in SECTIONS
        if is_entry or (isinstance(entry, dict) and not fields.isdisjoint(entry)):
            above = name
            # `data: {train: {clean: ..., noisy: ...}}` is as it should be.
            for key, value in entry.items() if isinstance(entry, dict) and section != "data" else ():
                if key not in fields and key not in content and _takes(section, key, value):
                    help = f"indent it as '{name}' (line {document.key_span((section, name)).line})"
                    yield _Slip(path=(section, name, key), meant=(section, key), what=noun, help=help)
            inner = entry.get("optimizer") if section == "models" and isinstance(entry, dict) else None
            for key in inner if isinstance(inner, dict) else ():
                if key in fields - _OPTIONS - {"class", "args"} and isinstance(entry, dict) and key not in entry:
                    path, help = (section, name, "optimizer", key), "indent it as `optimizer`"
                    yield _Slip(path=path, meant=(section, name, key), what=f"a field of {noun}", help=help)
            continue
        other, span = content.get(above), document.value_span((section, above))
        is_open = other is None or (isinstance(other, dict) and span.line > document.key_span((section, above)).line)
        if above and name in fields and is_open and not (isinstance(other, dict) and name in other):
            help = f"indent it below '{above}' (line {document.key_span((section, above)).line})"
            yield _Slip(path=(section, name), meant=(section, above, name), what=f"a field of {noun}", help=help)
        elif name in SECTIONS and name not in data:
            yield _Slip(path=(section, name), meant=(name,), what="a section of its own", help=_AT_THE_START)


def _takes(section: str, key: str, value: Plain) -> bool:
    """Return whether a section has such a key, or such an entry."""
    if section in RECORDS:
        return key in RECORDS[section]
    return section in ENTRIES and isinstance(value, dict) and 0 < len(value) == len(ENTRIES[section][1] & value.keys())


def _remove(node: Plain, path: Path) -> Plain:
    assert isinstance(node, dict)
    first, *rest = path
    if not rest:
        return {key: each for key, each in node.items() if key != first}
    return {key: _remove(each, tuple(rest)) if key == first else each for key, each in node.items()}


def _add(node: Plain, path: Path, value: Plain) -> dict[str, Plain]:
    known = node if isinstance(node, dict) else {}
    first, *rest = path
    key = str(first)
    return {**known, key: _add(known.get(key), tuple(rest), value) if rest else value}
