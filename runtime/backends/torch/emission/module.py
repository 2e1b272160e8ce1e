"""Emission of the whole module: imports, models, ``build``, one function per active set, ``step``, support code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from compiler.program import Program
from runtime.backends.torch.emission import syntax
from runtime.backends.torch.emission.building import emit_build
from runtime.backends.torch.emission.construction import emit_models
from runtime.backends.torch.emission.dispatch import emit_dispatch
from runtime.backends.torch.emission.function import emit_function
from runtime.backends.torch.emission.imports import find_user_paths, import_lines, user_imports
from runtime.backends.torch.emission.measuring import epoch_function, register_lines
from runtime.backends.torch.emission.names import Names, choose_names
from runtime.backends.torch.emission.support import Support, read_library, select_support
from runtime.backends.torch.emission.text import Block, Code, Line, Source, plain, print_code
from runtime.effects import find_functions

GAP = Source(text="\n")
"""Two blank lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """An emitted module: its text, the names in it, and for each line of an op the op and its place in the spec."""

    text: str
    places: Mapping[int, tuple[str, str]]
    names: Names


def emit_module(program: Program, provided: Iterable[str] = (), *, debug: bool = False) -> Emitted:
    """Return the source of a program; models in ``provided`` are given to ``build``, their class is not imported.

    With ``debug`` every instruction is followed by checks of what it made or wrote.
    """
    given = frozenset(provided)
    library = read_library()
    # Which support code is used shows in the first text, and only that takes names from the spec: where the support
    # code that is not used took some too, the text is written again.
    careful = choose_names(program, library.definitions, debug=debug)
    parts = tuple(_emit_parts(program, careful, given))
    used = frozenset(name for part in parts for name in _find_names(part))
    support = select_support(sorted(used), library)
    names = choose_names(program, (each.name for each in support.definitions), debug=debug)
    parts = parts if names == careful else tuple(_emit_parts(program, names, given))
    page = print_code(
        (
            Source(text=_docstring(program, names, given)),
            *import_lines(used, support, user_imports(program, names, given)),
            Source(text=""),
            *parts,
            *_support_code(support),
        )
    )
    return Emitted(text=page.text, places=page.places, names=names)


def _emit_parts(program: Program, names: Names, provided: frozenset[str]) -> Iterator[Code]:
    """Yield the module's own code: registers, models, ``build``, functions and ``step``, blank lines between."""
    yield from _registers()
    yield from register_lines(program)
    yield from (GAP, emit_models(program, names, provided), GAP, emit_build(program, names))
    for function in find_functions(program):
        yield from (GAP, emit_function(function, program, names))
    for part in emit_dispatch(program, names):
        yield from (GAP, part)
    yield from epoch_function(program)


def _registers() -> Iterator[Line]:
    """Yield the dictionaries that ``build`` fills."""
    for name, kind in (("MODELS", "nn.Module"), ("OPTIMIZERS", "object")):
        annotation = syntax.item(syntax.name("dict"), ast.Tuple(elts=[syntax.name("str"), syntax.dotted(kind)]))
        target = ast.Name(id=name, ctx=ast.Store())
        yield Line(statement=ast.AnnAssign(target=target, annotation=annotation, value=syntax.dictionary({}), simple=1))


def _find_names(code: Code) -> Iterator[str]:
    """Yield every name that a piece of code uses."""
    match code:
        case Line():
            yield from (node.id for node in ast.walk(code.statement) if isinstance(node, ast.Name))
        case Block():
            yield from _find_names(code.header)
            for entry in code.body:
                yield from _find_names(entry)
        case Source():
            return


def _support_code(support: Support) -> Iterator[Code]:
    """Yield the support code, behind a line that says what it is."""
    if support.definitions:
        yield Source(text="\n\n# Support code: everything above that is not torch's own.")
    for definition in support.definitions:
        yield Source(text="\n\n" + definition.source)


def _docstring(program: Program, names: Names, provided: frozenset[str]) -> str:
    """Return the module's docstring: what it is, how it was made, how to use it."""
    quotes = '"' * 3
    users = dict.fromkeys(path.partition(":")[0] for path in find_user_paths(program, provided))
    needs = f"It needs torch, and {', '.join(users)}:" if users else "It needs torch alone:"
    models = ", ".join(sorted(provided))
    build = f'build(seed={program.seed}, device="cpu"' + (f", models={{...}})  # {models}" if models else ")")
    batch = ", ".join(f'"{entry.name}": {names.value(entry.name)}' for entry in program.inputs)
    modes = ", ".join(mode.mode for mode in program.modes)
    return "\n".join(
        (
            f"{quotes}{plain(program.name)}: a training step in PyTorch, made by stepgraph (order: {program.order}).",
            "",
            needs,
            "",
            f"    {build}",
            f"    outputs = step({{{batch}}})    # modes: {modes}",
            "",
            "Comments give the version of the weights an instruction reads or writes, counted within the step.",
            quotes,
        )
    )
