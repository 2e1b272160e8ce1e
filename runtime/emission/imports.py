"""Imports of the emitted module: the framework, what support code needs, and the user's classes and functions."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator

from compiler.ir.program import ModelDecl, Program
from runtime.effects import find_functions
from runtime.emission import syntax
from runtime.emission.dialect import Dialect
from runtime.emission.names import Names
from runtime.emission.support import Imported, Support
from runtime.emission.text import Code, Line, Source


def import_lines(used: Iterable[str], support: Support, users: Iterable[Imported], dialect: Dialect) -> Iterator[Code]:
    """Yield the imports: the future, the standard library, the framework, the user's modules, blank lines between."""
    needed = {*support.imports, *(dialect.own[name] for name in used if name in dialect.own)}
    standard = {each for each in needed if each[0].partition(".")[0] in sys.stdlib_module_names}
    for block in ({("__future__", "annotations", None)}, standard, needed - standard, set(users)):
        if block:
            yield Source(text="")
            yield from (Line(statement=statement) for statement in unite(block))


def unite(imports: Iterable[Imported]) -> Iterator[ast.stmt]:
    """Yield import statements in alphabetical order, plain ones first; what comes from one module is united."""
    members: dict[str, list[tuple[str, str | None]]] = {}
    for module, member, alias in sorted(imports, key=_order):
        if member is None:
            yield syntax.bring(module, alias)
        else:
            members.setdefault(module, []).append((member, alias))
    for module, aliases in members.items():
        yield syntax.bring_from(module, aliases)


def _order(imported: Imported) -> tuple[bool, str, str, str]:
    """Return the key that sorts imports."""
    module, member, alias = imported
    return member is not None, module, member or "", alias or ""


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
    for instruction in (each for function in find_functions(program) for each in function.instructions):
        for path in instruction.functions:
            found.setdefault(path, instruction.op)
    return found


def is_constructed(model: ModelDecl, provided: frozenset[str]) -> bool:
    """Return whether a model is made by calling the user's class: not given, and not the copy of another."""
    is_copy = model.like is not None and model.initial == "copy"
    return model.kind == "class" and not is_copy and model.name not in provided
