"""Emission of the whole module: imports, models, ``build``, one function per active set, ``step``, support code."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from compiler.ir.program import Function, InputDecl, ModelDecl, Program
from compiler.passes.datasets import format_datasets, is_particular
from graphspec.startup import paused_collection
from runtime.codegen import syntax
from runtime.codegen.averages import register_lines as average_register
from runtime.codegen.build import emit_build, emit_models, weights_register
from runtime.codegen.dialect import Dialect, EmitContext
from runtime.codegen.dispatch import emit_dispatch
from runtime.codegen.lower.accumulate import register_lines as window_register
from runtime.codegen.lower.messages import register_lines as compressor_register
from runtime.codegen.lower.metrics import epoch_function, register_lines
from runtime.codegen.lower.states import register_lines as state_register
from runtime.codegen.needs import find_needs
from runtime.codegen.resources import PLAIN, Extras, Names, choose_names, find_functions, find_instructions
from runtime.codegen.support_code import Imported, Support, select_support
from runtime.codegen.text import Block, Code, Line, Source, plain, print_code
from runtime.codegen.verify import verify_text


def import_lines(used: Iterable[str], support: Support, users: Iterable[Imported], dialect: Dialect) -> Iterator[Code]:
    """Yield the imports: the future, the standard library, the framework, the user's modules, blank lines between."""
    needed = {*support.imports, *(dialect.own[name] for name in used if name in dialect.own)}
    standard = {each for each in needed if each[0].partition(".")[0] in sys.stdlib_module_names}
    for block in ({("__future__", "annotations", None)}, standard, needed - standard, set(users)):
        if block:
            yield Source(text="")
            yield from (Line(statement=statement) for statement in unite(block))


def unite(imports: Iterable[Imported]) -> Iterator[ast.stmt]:
    """Yield import statements in alphabetical order, plain ones first; imports from one module are merged."""
    members: dict[str, list[tuple[str, str | None]]] = {}
    for module, member, alias in sorted(
        imports, key=lambda each: (each[1] is not None, each[0], each[1] or "", each[2] or "")
    ):
        if member is None:
            yield syntax.bring(module, alias)
        else:
            members.setdefault(module, []).append((member, alias))
    for module, aliases in members.items():
        yield syntax.bring_from(module, aliases)


def user_imports(program: Program, names: Names, provided: frozenset[str]) -> Iterator[Imported]:
    """Yield the imports of the user's classes and functions."""
    for path in find_user_paths(program, provided):
        module, _, attribute = path.partition(":")
        name = attribute.partition(".")[0]
        alias = names.imported(path).partition(".")[0]
        yield module, name, None if alias == name else alias


def find_user_paths(program: Program, provided: frozenset[str]) -> dict[str, str]:
    """Return every ``pkg.mod:Name`` that a program needs, with the op, model or optimizer cell that names it first.

    The models in ``provided`` are given to ``build``: their classes are not needed.
    """
    found: dict[str, str] = {}
    for model in program.models:
        if is_constructed(model, provided) and model.class_path is not None:
            found.setdefault(model.class_path, model.name)
    for optimizer in program.optimizers:
        if not optimizer.builtin:
            found.setdefault(optimizer.rule, optimizer.name)
    for instruction in find_instructions(program):
        for path in instruction.functions:
            found.setdefault(path, instruction.op)
    return found


def is_constructed(model: ModelDecl, provided: frozenset[str]) -> bool:
    """Return whether a model is made by calling the user's class: not given, and not the copy of another."""
    is_copy = model.like is not None and model.initial == "copy"
    return model.kind == "class" and not is_copy and model.name not in provided


GAP = Source(text="\n")
"""Two blank lines."""


class Emitted(Struct, frozen=True, kw_only=True):
    """An emitted module: its code, the names in it, and for each line of an op the op and its place in the spec.

    ``own`` is the text for the program, ``support_text`` that of the support code, which other modules have as well;
    ``support`` are its definitions, of a ``library``. ``writes`` are the lines of its functions that change state that
    outlives a step.
    """

    own: str
    support_text: str
    support: Support
    library: str
    places: Mapping[int, tuple[str, str]]
    writes: frozenset[int]
    names: Names

    @property
    def text(self) -> str:
        """Return the whole module."""
        return self.own + self.support_text


@paused_collection
def emit_module(program: Program, dialect: Dialect, provided: Iterable[str] = (), extras: Extras = PLAIN) -> Emitted:
    """Return the source of a program; models in ``provided`` are given to ``build``, their classes are not imported."""
    given = frozenset(provided)
    library = dialect.library()
    # The first draft shows which support code is used; only its names are then reserved. Where names of unused support
    # code were reserved as well, the text is written again.
    careful = _draft(program, dialect, library.homes, extras)
    parts = tuple(_emit_parts(careful, given))
    used = frozenset(name for part in parts for name in _find_names(part))
    support = select_support(sorted(used), library)
    context = _draft(program, dialect, (each.name for each in support.definitions), extras)
    parts = parts if context.names == careful.names else tuple(_emit_parts(context, given))
    whole = (
        Source(text=_docstring(context, given)),
        *import_lines(used, support, user_imports(program, context.names, given), dialect),
        Source(text=""),
        *parts,
    )
    page = print_code(whole)
    verify_text(page.text, whole)
    texts = [f"\n\n{each.source}\n" for each in support.definitions]
    heading = f"\n\n# Support code: everything above that is not {dialect.framework}'s own.\n"
    return Emitted(
        own=page.text,
        support_text="".join([heading, *texts]) if texts else "",
        support=support,
        library=library.package,
        places=page.places,
        writes=page.writes,
        names=context.names,
    )


def _draft(program: Program, dialect: Dialect, taken: Iterable[str], extras: Extras) -> EmitContext:
    """Return a draft whose names are neither those of the framework nor ``taken``."""
    names = choose_names(
        program, (*dialect.reserved, *taken), name_requests=dialect.name_requests(program), extras=extras
    )
    return EmitContext(program=program, names=names, dialect=dialect, needs=find_needs(program))


def _emit_parts(context: EmitContext, provided: frozenset[str]) -> Iterator[Code]:
    """Yield the module's own code: registers, models, ``build``, functions and ``step``, blank lines between."""
    others = ((name, "object", "object") for name in context.dialect.registers())
    for name, key, kind in (("MODELS", "str", context.dialect.model_type), ("OPTIMIZERS", "str", "object"), *others):
        yield Line(statement=syntax.register(name, syntax.name(key), syntax.dotted(kind)))
    yield from state_register(context.program, context.dialect)
    yield from window_register(context.program)
    if context.program.parallel is not None:
        yield from compressor_register(context.program)
    yield from average_register(context.program)
    yield from register_lines(context.program)
    yield from weights_register(context.program, provided)
    yield from (GAP, emit_models(context, provided), GAP, emit_build(context))
    for function in find_functions(context.program):
        yield from (GAP, context.dialect.function(function, context))
    for part in emit_dispatch(context):
        yield from (GAP, part)
    yield from epoch_function(context.program)


def _find_names(code: Code) -> Iterator[str]:
    """Yield the names that a piece of code uses."""
    match code:
        case Line():
            for node in syntax.walk(code.statement):
                if isinstance(node, ast.Name):
                    yield node.id
        case Block():
            yield from _find_names(code.header)
            for entry in code.body:
                yield from _find_names(entry)
        case Source():
            return


def _docstring(context: EmitContext, provided: frozenset[str]) -> str:
    """Return the module's docstring: its content, its origin, its use."""
    program, quotes, framework = context.program, '"' * 3, context.dialect.framework
    users = dict.fromkeys(path.partition(":")[0] for path in find_user_paths(program, provided))
    needs = f"It needs {framework}, and {', '.join(users)}:" if users else f"It needs {framework} alone:"
    models = ", ".join(sorted(provided))
    build = f'build(seed={program.seed}, device="cpu"' + (f", models={{...}})  # {models}" if models else ")")
    batch = ", ".join(f'"{entry.name}": {context.names.value(entry.name)}' for entry in program.inputs)
    modes = ", ".join(mode.mode for mode in program.modes)
    made = f"made by stepgraph (order: {program.order})"
    missing: list[str] = []
    if program.uncounted:
        reason = "This file is for reading, and `build` raises. Left out, because only a run knows the length:"
        missing = ["", reason, "", *(f"    {plain(each)}" for each in program.uncounted)]
    return "\n".join(
        (
            f"{quotes}{plain(program.name)}: a training step in {context.dialect.title}, {made}.",
            "",
            needs,
            "",
            f"    {build}",
            f"    outputs = step({{{batch}}})    # modes: {modes}",
            "",
            "Comments give the version of the weights an instruction reads or writes, counted within the step.",
            *missing,
            quotes,
        )
    )


def input_line(entry: InputDecl, statement: ast.stmt, *, comment: str) -> Line:
    """Return a line that belongs to an input."""
    return Line(statement=statement, comment=comment, op=entry.name, place=entry.place)


def shape_comment(entry: InputDecl) -> str:
    """Return an input's declared shape and type."""
    return entry.dtype if entry.shape is None else f"{entry.dtype} [{', '.join(map(str, entry.shape))}]"


def describe_function(function: Function, program: Program) -> str:
    """Return a description of a function: its step, mode, active ops, and the policy that ordered it."""
    active = f", active: {', '.join(function.active)}" if function.active else ""
    averages = {gate.op for gate in program.mode(function.mode).gates if gate.clock == "averaged"}
    used = ", ".join(op for op in function.gated if op in averages)
    swapped = f", evaluating {used}" if used else ""
    datasets = f", on {format_datasets(function.datasets)}" if is_particular(function, program) else ""
    return f"{program.name}, {function.mode}{datasets}{active}{swapped}. Order: {program.order}."
