"""Where Python code declares something: the call or operation in its file, and the names that its result is given."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import cast

from msgspec import Struct

from graphspec.declare.fields import is_name
from graphspec.diagnostics import Span
from graphspec.read.syntax import parse

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


class Site(Struct, frozen=True, kw_only=True):
    """A call or an operation in a Python file."""

    span: Span
    node: ast.expr | None
    """Its syntax, where the file can be read."""
    names: tuple[str, ...] = ()
    """What its result is assigned to: one name, or one for each of several results."""

    @property
    def name(self) -> str | None:
        """Return the one name that its result is assigned to."""
        return self.names[0] if len(self.names) == 1 else None


class _File(Struct, frozen=True, kw_only=True):
    """The syntax of a file: expressions by their places, calls by their ends, and the names that are assigned."""

    shown: str
    """Its name in messages."""
    lines: tuple[str, ...]
    nodes: Mapping[tuple[int, int, int, int], ast.expr]
    calls: Mapping[tuple[int, int], ast.Call]
    names: Mapping[ast.expr, tuple[str, ...]]


class Sources(Struct):
    """The Python files that declare parts of one graph."""

    _files: dict[str, _File] = {}

    @property
    def texts(self) -> Mapping[str, str]:
        """Return their texts by the names that spans have for them."""
        return {file.shown: "".join(file.lines) for file in self._files.values()}

    def find(self, *, is_operator: bool = False) -> Site:
        """Return where the caller of this package is; an operator may be a part of a call, as of `sum`."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
            frame = frame.f_back
        site = Site(span=_at("<python>", 1), node=None) if frame is None else self._locate(frame)
        return Site(span=site.span, node=None) if is_operator and isinstance(site.node, ast.Call) else site

    def span(self, site: Site, node: ast.expr | ast.keyword) -> Span:
        """Return the place of a part of a site."""
        file = next(each for each in self._files.values() if each.shown == site.span.file)
        end_line, end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return _measure(site.span.file, file.lines, node.lineno, node.col_offset, end_line, end)

    def _locate(self, frame: FrameType) -> Site:
        name = frame.f_code.co_filename
        if name not in self._files:
            path, here = Path(name), Path.cwd()
            shown = path.relative_to(here).as_posix() if path.is_relative_to(here) else name
            lines = tuple(linecache.getlines(name, frame.f_globals))
            self._files[name] = _read(_find_cell(frame, lines) or shown, lines)
        file, shown = self._files[name], self._files[name].shown
        found = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None, None, None, None))
        line, end_line, column, end_column = found
        if line is None or end_line is None or column is None or end_column is None or len(file.lines) < end_line:
            return Site(span=_at(shown, line or frame.f_lineno), node=None)
        # What calls a method may begin at the method.
        node = file.nodes.get((line, column, end_line, end_column)) or file.calls.get((end_line, end_column))
        span = _measure(shown, file.lines, line, column, end_line, end_column)
        return Site(span=span, node=node, names=file.names.get(node, ()) if node is not None else ())


def _find_cell(frame: FrameType, lines: tuple[str, ...]) -> str | None:
    """Return the name that IPython prints next to a cell, as `In[3]`, where the code is one; its file means nothing."""
    cells, text = frame.f_globals.get("In"), "".join(lines).rstrip("\n")
    if "get_ipython" not in frame.f_globals or not isinstance(cells, list) or not text:
        return None
    inputs = [str(each).rstrip("\n") for each in cast("list[object]", cells)]
    return next((f"In[{number}]" for number in range(len(inputs) - 1, 0, -1) if inputs[number] == text), None)


def _at(file: str, line: int) -> Span:
    return Span(file=file, line=line, column=1, end_line=line, end_column=1)


def _measure(file: str, lines: tuple[str, ...], line: int, start: int, end_line: int, end: int) -> Span:
    """Return a span; Python counts columns in bytes and from 0."""

    def count(number: int, offset: int) -> int:
        """Return the column of a byte of a line."""
        return len(lines[number - 1].encode()[:offset].decode(errors="replace")) + 1

    return Span(file=file, line=line, column=count(line, start), end_line=end_line, end_column=count(end_line, end))


def _read(shown: str, lines: tuple[str, ...]) -> _File:
    try:
        tree = parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _File(shown=shown, lines=lines, nodes={}, calls={}, names={})
    nodes: dict[tuple[int, int, int, int], ast.expr] = {}
    calls: dict[tuple[int, int], ast.Call] = {}
    names: dict[ast.expr, tuple[str, ...]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            end_line, end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
            nodes.setdefault((node.lineno, node.col_offset, end_line, end), node)
            if isinstance(node, ast.Call):
                calls.setdefault((end_line, end), node)
        match node:
            case (
                ast.Assign(targets=[target, *_], value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
            ):
                names.update(_find_names(target, value))
            case _:
                pass
    return _File(shown=shown, lines=lines, nodes=nodes, calls=calls, names=names)


def _find_names(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """Yield what is assigned with its names; names that no spec can have, and `_`, are none."""
    match target, value:
        case ast.Name(id=name), _ if is_name(name) and name != "_":
            yield value, (name,)
        case (ast.Tuple(elts=targets), ast.Tuple(elts=values)) if len(targets) == len(values):
            for one, other in zip(targets, values, strict=True):
                yield from _find_names(one, other)
        case ast.Tuple(elts=targets), _:
            names = [each.id for each in targets if isinstance(each, ast.Name) and is_name(each.id) and each.id != "_"]
            if len(names) == len(targets) > 1:
                yield value, tuple(names)
        case _:
            pass
