"""Headers of functions: what a function is, and the inputs that it reads."""

from __future__ import annotations

import ast

from compiler.ir.program import Function, InputDecl, Program
from compiler.passes.datasets import is_particular, tell_datasets
from runtime.emission.text import Line


def input_line(entry: InputDecl, statement: ast.stmt, *, comment: str) -> Line:
    """Return a line that belongs to an input."""
    return Line(statement=statement, comment=comment, op=entry.name, place=entry.place)


def shape_comment(entry: InputDecl) -> str:
    """Return an input's declared shape and type."""
    return entry.dtype if entry.shape is None else f"{entry.dtype} [{', '.join(map(str, entry.shape))}]"


def describe_function(function: Function, program: Program) -> str:
    """Return what a function is: its step, mode, what fires in it, and the policy that ordered it."""
    active = f", active: {', '.join(function.active)}" if function.active else ""
    averages = {gate.op for gate in program.mode(function.mode).gates if gate.clock == "averaged"}
    used = ", ".join(op for op in function.gated if op in averages)
    swapped = f", evaluating {used}" if used else ""
    told = f", on {tell_datasets(function.datasets)}" if is_particular(function, program) else ""
    return f"{program.name}, {function.mode}{told}{active}{swapped}. Order: {program.order}."
