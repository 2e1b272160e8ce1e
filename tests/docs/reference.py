"""The reference of the Python API, written from signatures and docstrings: ``python -m tests.docs.reference``."""

from __future__ import annotations

import ast
import doctest
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from compiler import Pace, Plan, compile_step
from graphspec import Diagnostic, Graph, GraphSpec, SpecError, dump, load, render
from graphspec.declare.base import Declaration
from graphspec.diagnostics import Span
from runtime import Optimizer, Step, StepError, StepReport, UpdateReport, build, emit, reopen
from runtime.audit import Report, audit
from runtime.audit.findings.finding import Finding
from runtime.audit.session import Audit
from runtime.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from runtime.cli import execute
from runtime.data import Feed, open_feed
from runtime.export.export import Exported
from runtime.options import Options
from runtime.state import State

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "api.md"
ERRORS = {path.stem for path in (ROOT / "docs" / "errors").glob("*.md")}
INTRODUCTION = """\
# API

What Python code can import. `python -m tests.docs.reference` writes this page from the docstrings. The examples run in
the tests, from the root of the repository; the methods of a class continue where the example of the class ends.
What the parts of a spec mean is in [the language](language.md).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What one module gives: functions by the names they are imported by, and classes."""

    title: str
    text: str
    parts: tuple[Callable[..., object], ...]


SECTIONS = (
    Section(title="Specs", text="`from graphspec import ...`", parts=(load, dump, GraphSpec)),
    Section(
        title="Specs from Python",
        text="`from graphspec import ...`; [the page about Python](python.md) says what values, models and ops are.",
        parts=(Graph,),
    ),
    Section(
        title="Problems",
        text="`from graphspec import ...`; a `Span` comes with a diagnostic. Every code has [a page](errors/).",
        parts=(SpecError, Diagnostic, Span, render),
    ),
    Section(title="Plans", text="`from compiler import ...`", parts=(compile_step, Plan, Pace)),
    Section(title="Steps", text="`from runtime import ...`", parts=(build, emit, reopen, Step, StepError)),
    Section(
        title="Optimizers and reports",
        text="`from runtime import ...`; `Options` is what `Optimizer.options` returns.",
        parts=(Optimizer, Options, StepReport, UpdateReport),
    ),
    Section(
        title="States, checkpoints and exports",
        text="`from runtime.checkpoints import ...`; `Step.state` returns a `State`, `Step.export` an `Exported`.",
        parts=(State, Checkpoint, write_checkpoint, read_checkpoint, Exported),
    ),
    Section(title="Data", text="`from runtime.data import ...`", parts=(open_feed, Feed)),
    Section(
        title="Audits",
        text="`from runtime.audit import ...`; [the page about audits](audit.md) has every code of a `Finding`.",
        parts=(audit, Audit, Report, Finding),
    ),
    Section(title="Commands", text="`from runtime.cli import ...`", parts=(execute,)),
)
INTERNAL = {
    Audit: {"complete"},
    Report: {"trace"},
    Finding: {"key"},
    Exported: {"describe"},
    Feed: {"batches", "place", "position", "inspector", "parts"},
    GraphSpec: {
        "read",
        "compute",
        "loss_scale",
        "source",
        "shadows",
        "parallel",
        "is_replicated",
        "phases",
        "batches",
    },
}
"""Public attributes that are there for other modules of this project."""
SPECIAL = {"__call__", "__getitem__", "__setitem__"}
"""Special methods that users call."""
ROLE = re.compile(r":\w+:`([^`]+)`")
CODE = re.compile(r"\b(?:GS\d{3}|[EW]-[A-Z]+(?:-[A-Z]+)*)\b")
WIDEST = 110
"""Characters of a signature on one line."""


def write_page() -> str:
    """Return the page."""
    return "\n".join([INTRODUCTION, *(line for section in SECTIONS for line in _write_section(section))])


def _write_section(section: Section) -> Iterator[str]:
    yield from (f"## {section.title}", "", section.text, "")
    for part in section.parts:
        yield from _write_class(part) if isinstance(part, type) else _write_function(part)


def name_part(part: Callable[..., object]) -> str:
    """Return the name by which a part is imported."""
    return "dump" if part is dump else part.__name__


def _write_function(function: Callable[..., object]) -> Iterator[str]:
    (node,) = _parse(function).body
    yield from (f"### `{name_part(function)}`", "", *_write_signature(node, name_part(function)), *_write_text(node))


def _write_class(kind: type) -> Iterator[str]:
    """Yield a class: its text, its fields and properties, its methods; what it inherits comes first."""
    bodies = _find_bodies(kind)
    yield from (f"### `{kind.__name__}`", "", *_write_text(bodies[-1]))
    listed = [line for body in bodies for line in (*_list_fields(kind, body), *_list_properties(kind, body))]
    yield from [*listed, ""] if listed else []
    for node in find_methods(kind):
        yield from (f"#### `{kind.__name__}.{node.name}`", "", *_write_signature(node, node.name), *_write_text(node))


def find_methods(kind: type) -> list[ast.FunctionDef]:
    """Return the methods of a class that users call, in the order in which they are written."""
    return [each for body in _find_bodies(kind) for each in _find_shown(kind, body) if not each.decorator_list]


def _find_bodies(kind: type) -> list[ast.ClassDef]:
    """Return a class and those of this project from which it inherits, which come first."""
    ours = (
        each for each in reversed(kind.__mro__) if each.__module__.startswith(("compiler.", "graphspec.", "runtime."))
    )
    return [_parse(each).body[0] for each in ours if each is not Declaration]


def _find_shown(kind: type, body: ast.ClassDef) -> list[ast.FunctionDef]:
    written = [each for each in body.body if isinstance(each, ast.FunctionDef)]
    public = [each for each in written if each.name[0] != "_" or each.name in SPECIAL]
    return [each for each in public if each.name not in INTERNAL.get(kind, ())]


def _parse(part: Callable[..., object]) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(part)))


def _list_fields(kind: type, body: ast.ClassDef) -> Iterator[str]:
    """Yield a line for every field of a class, with the text below it."""
    for node, after in pairwise([*body.body, None]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, annotation = node.target.id, node.annotation
            if name[0] == "_" or name in INTERNAL.get(kind, ()):
                continue
            if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
                annotation = annotation.slice.elts[0]
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            text = f": {_join(after.value.value)}" if is_text else ""
            # `Deferred[...]` says how pydantic reads it, not what it is.
            shown = re.sub(r"Deferred\[(\w+)\]", r"\1", ast.unparse(annotation))
            yield f"- `{name}: {shown}`{text}"


def _list_properties(kind: type, body: ast.ClassDef) -> Iterator[str]:
    """Yield a line for every property of a class."""
    shown = _find_shown(kind, body)
    settable = {each.name for each in shown if any(ast.unparse(by).endswith(".setter") for by in each.decorator_list)}
    for node in shown:
        if any(ast.unparse(by) == "property" for by in node.decorator_list):
            text = _join(ast.get_docstring(node)).removeprefix("Return ")
            note = " (can be set)" if node.name in settable else ""
            yield f"- `{node.name}: {ast.unparse(node.returns)}`{note}: {text[0].upper()}{text[1:]}"


def _write_signature(node: ast.FunctionDef, name: str) -> Iterator[str]:
    """Yield a signature without `self`, with a parameter per line where it is long."""
    given = node.args
    bare = len(given.args) - len(given.defaults)
    places = [_spell(each, given.defaults[at - bare] if at >= bare else None) for at, each in enumerate(given.args)]
    named = [_spell(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    star = [f"*{_spell(given.vararg, None)}"] if given.vararg else ["*"] if named else []
    rest = [f"**{_spell(given.kwarg, None)}"] if given.kwarg else []
    parts = [*(each for each in places if each != "self"), *star, *named, *rest]
    returned = ast.unparse(node.returns)
    whole = f"{name}({', '.join(parts)}) -> {returned}"
    lines = [whole] if len(whole) <= WIDEST else [f"{name}(", *(f"    {each}," for each in parts), f") -> {returned}"]
    yield from ("```py", *lines, "```", "")


def _spell(parameter: ast.arg, default: ast.expr | None) -> str:
    spelled = parameter.arg if parameter.annotation is None else f"{parameter.arg}: {ast.unparse(parameter.annotation)}"
    is_text = isinstance(default, ast.Constant) and isinstance(default.value, str)
    value = "" if default is None else json.dumps(default.value) if is_text else ast.unparse(default)
    return f"{spelled} = {value}" if value else spelled


def _write_text(node: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    """Yield a docstring: its prose, and its example in a block."""
    prose, mark, example = (ast.get_docstring(node) or "").partition(">>> ")
    yield from (_mark(prose.strip()), "")
    if mark:
        yield from ("```pycon", re.sub(r"  # doctest: .*", "", mark + example.rstrip()), "```", "")


def _join(text: str | None) -> str:
    return _mark(" ".join((text or "").split()))


def _mark(text: str) -> str:
    """Return prose in Markdown; codes of errors lead to their pages."""
    plain = ROLE.sub(r"`\1`", text).replace("``", "`")
    return CODE.sub(lambda code: f"[{code[0]}](errors/{code[0]}.md)" if code[0] in ERRORS else code[0], plain)


def find_examples(part: Callable[..., object]) -> list[doctest.DocTest]:
    """Return the examples of a function, or of a class and its methods, in the order in which they run."""
    name = name_part(part)
    nodes = [_parse(part).body[0], *(find_methods(part) if isinstance(part, type) else ())]
    names = [name, *(f"{name}.{node.name}" for node in nodes[1:])]
    texts = [(ast.get_docstring(node) or "", title) for node, title in zip(nodes, names, strict=True)]
    parser = doctest.DocTestParser()
    return [each for text, title in texts if (each := parser.get_doctest(text, {}, title, None, None)).examples]


def find_bare(part: Callable[..., object]) -> list[str]:
    """Return a function, or a class and its methods, that should have an example and have none."""
    name = name_part(part)
    methods = find_methods(part) if isinstance(part, type) else ()
    return sorted({name, *(f"{name}.{node.name}" for node in methods)} - {each.name for each in find_examples(part)})


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
