"""Windows that are taken before the verdicts are read: the values that depend on them, in every possible way."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from compiler.ir.instructions import Apply, Instruction, TakeAccumulated, Transform
from compiler.ir.program import window_of
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope
from runtime.codegen.lower.overflow import VERDICTS
from runtime.codegen.resources import find_uses
from runtime.codegen.text import Block, Code, Line


@dataclass(frozen=True)
class Undecided:
    """The gradient sets whose content is undecided, and the instructions that make and use them in that state."""

    sets: frozenset[str]
    early: frozenset[int]


NOTHING = Undecided(frozenset(), frozenset())
"""No set is undecided."""


def find_undecided(early: Iterable[Instruction], windows: frozenset[str]) -> Undecided:
    """Return what is undecided among the instructions before the verdicts are read; ``windows``: those that may be."""
    sets: set[str] = set()
    found: set[int] = set()
    for each in early:
        is_taken = isinstance(each, TakeAccumulated) and each.window in windows
        if is_taken or (isinstance(each, (Transform, Apply)) and not sets.isdisjoint(find_uses(each))):
            found.add(id(each))
        if id(each) in found and isinstance(each, (TakeAccumulated, Transform)):
            sets.add(each.output)
    return Undecided(frozenset(sets), frozenset(found))


def find_sets(instruction: Instruction, undecided: Undecided) -> tuple[str, ...]:
    """Return the undecided sets that an instruction uses."""
    return tuple(each for each in dict.fromkeys(find_uses(instruction)) if each in undecided.sets)


def decided_lines(code: Sequence[Code], undecided: Undecided, scope: EmitScope) -> tuple[Code, ...]:
    """Return code with undecided sets replaced by their values in the present way: ``slopes.now``."""
    return tuple(_decided(each, _Now(undecided, scope)) for each in code) if undecided.sets else tuple(code)


def take_ways(instruction: TakeAccumulated, scope: EmitScope) -> ast.expr:
    """Return ``take_undecided(verdicts, "step.window.taken", step_window)``."""
    window = syntax.name(scope.names.window(instruction.window))
    cell = syntax.constant(f"{window_of(instruction.op)}.taken")
    return syntax.call("take_undecided", syntax.name(VERDICTS), cell, window)


def make_ways(value: ast.expr, sets: Sequence[str], scope: EmitScope) -> ast.expr:
    """Return ``in_ways(verdicts, lambda: clip_norm(slopes.now, 1.0), slopes)``."""
    return syntax.call("in_ways", syntax.name(VERDICTS), syntax.later(value), *set_names(sets, scope))


def set_names(sets: Iterable[str], scope: EmitScope) -> Iterator[ast.expr]:
    """Yield the variables of sets."""
    yield from (syntax.name(scope.names.value(each)) for each in sets)


def merged_lines(code: Sequence[Code], undecided: Undecided, scope: EmitScope) -> tuple[Code, ...]:
    """Return code that checks undecided sets as the device knows them: ``merged(verdicts, slopes)``."""
    return tuple(_decided(each, _Merged(undecided, scope)) for each in code) if undecided.sets else tuple(code)


class _Now(ast.NodeTransformer):
    """Replaces undecided sets by their values in the present way."""

    def __init__(self, undecided: Undecided, scope: EmitScope) -> None:
        self.names = frozenset(scope.names.value(each) for each in undecided.sets)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the replacement of a variable."""
        is_read = isinstance(node.ctx, ast.Load) and node.id in self.names
        return self.stand_in(node) if is_read else node

    def stand_in(self, node: ast.Name) -> ast.expr:
        """Return ``slopes.now``."""
        return syntax.attribute(node, "now")


class _Merged(_Now):
    """Replaces undecided sets by what the device knows of them."""

    def stand_in(self, node: ast.Name) -> ast.expr:
        """Return ``merged(verdicts, slopes)``."""
        return syntax.call("merged", syntax.name(VERDICTS), node)


def _decided(code: Code, stand_in: _Now) -> Code:
    """Return a piece of code with undecided sets replaced."""
    match code:
        case Line():
            return replace(code, statement=stand_in.visit(deepcopy(code.statement)))
        case Block():
            body = tuple(_decided(each, stand_in) for each in code.body)
            return replace(code, header=_decided(code.header, stand_in), body=body)
        case _:
            return code
