"""Conditions of writes: decided on the device where a step cannot know yet, by the host as soon as it knows all."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from compiler.instructions import Apply, Assign, Blend, Collect, Instruction, Judge, Settle, Store
from compiler.settings import find_scheduled
from runtime.emission import syntax
from runtime.emission.scope import Lowered, Scope, hold, line_of
from runtime.emission.text import Block, Code, Line
from runtime.emission.verdicts import SCALE, VERDICTS, commit_value, commits_by_op
from runtime.emission.writes import written_lists

COMMITTED = "committed"
"""The variable that says, by op, what takes place."""
Conditional: TypeAlias = Apply | Blend | Assign
"""What changes tensors in place; a state is replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Where a function asks the device for its verdicts: once, before ``first``, when all of them are known.

    ``known`` are the conditional writes behind that; ``asked`` those before it that the device cannot decide, which
    wait for it by themselves; ``again`` the updates that it decides of optimizers that were applied so before.
    """

    settle: Settle
    first: int
    known: frozenset[int]
    asked: frozenset[int]
    again: frozenset[int]


def find_reading(instructions: Sequence[Instruction]) -> Reading | None:
    """Return where a function asks for its verdicts; None where it has none. Instructions are told by their ids."""
    settle = next((each for each in instructions if isinstance(each, Settle)), None)
    if settle is None:
        return None
    last = max((place for place, each in enumerate(instructions) if _decides(each)), default=-1)
    conditional = [(place, each) for place, each in enumerate(instructions) if _is_conditional(each)]
    known = [id(each) for place, each in conditional if place > last]
    first = known[0] if known else id(settle)
    before = instructions[: [id(each) for each in instructions].index(first)]
    asked = _find_asked(before)
    held = [each for each in before if isinstance(each, Apply) and each.commits and id(each) not in asked]
    return Reading(
        settle=settle,
        first=first,
        known=frozenset(known),
        asked=asked,
        again=frozenset(_find_again(held)),
    )


def _decides(instruction: Instruction) -> bool:
    """Return whether an instruction gives a verdict."""
    return isinstance(instruction, Judge) or (isinstance(instruction, Collect) and bool(instruction.filled))


def _is_conditional(instruction: Instruction) -> bool:
    """Return whether an instruction changes tensors in place, under verdicts; others choose between values."""
    return isinstance(instruction, Conditional) and bool(instruction.commits)


def _find_asked(before: Sequence[Instruction]) -> frozenset[int]:
    """Return the conditional updates, of what stands before the question, that cannot wait for it.

    What an update does to parameters is put back on the device, and what its optimizer keeps when the host asks; a
    second one is made in every way in which the first may have ended. But a number that counts updates and is no part
    of one, and an update that nothing stops, must know how often an optimizer was applied.
    """
    asked: set[int] = set()
    counted: set[str | None] = set()
    for each in reversed(before):
        if not isinstance(each, Apply):
            counted |= {number.optimizer for number in find_scheduled(each)}
            continue
        optimizers = {part.optimizer for part in each.parts}
        if each.commits and optimizers & counted:
            asked.add(id(each))
        if id(each) in asked or not each.commits:
            counted |= optimizers
    return frozenset(asked)


def _find_again(held: Sequence[Apply]) -> Iterator[int]:
    """Yield the updates of which an optimizer was applied before by another of them."""
    seen: set[str] = set()
    for each in held:
        optimizers = {part.optimizer for part in each.parts}
        yield from (id(each),) if optimizers & seen else ()
        seen |= optimizers


def conditioned(instruction: Instruction, lowered: Lowered, scope: Scope, reading: Reading | None) -> Lowered:
    """Return the code of an instruction under its condition, behind the question for the verdicts where it is due."""
    if reading is None:
        return lowered
    asking = tuple(_read_lines(reading, scope)) if id(instruction) == reading.first else ()
    if isinstance(instruction, Settle):
        return replace(lowered, code=(*asking, *lowered.code), graph="either")
    if isinstance(instruction, Store) and instruction.commits:
        first, *rest = lowered.code
        return replace(lowered, code=(_chosen(instruction, first, scope), *rest))
    if not isinstance(instruction, Conditional) or not instruction.commits:
        return lowered
    header = line_of(instruction, _condition(instruction, scope, reading))
    return replace(lowered, code=(*asking, Block(header=header, body=lowered.code)))


def begin_lines(reading: Reading | None) -> Iterator[Line]:
    """Yield the line that forgets the verdicts of the step before."""
    if reading is not None:
        yield Line(statement=syntax.perform(syntax.call(f"{VERDICTS}.begin")))


def _chosen(instruction: Store, line: Code, scope: Scope) -> Code:
    """Return the write of a state that stays what it was where it is not committed."""
    assert isinstance(line, Line)
    assert isinstance(line.statement, ast.Assign)
    commits = commit_value(instruction.commits, scope)
    chosen = syntax.call("torch.where", commits, line.statement.value, hold(instruction.state))
    return replace(line, statement=ast.Assign(targets=line.statement.targets, value=chosen))


def _read_lines(reading: Reading, scope: Scope) -> Iterator[Line]:
    """Yield ``committed = verdicts.read({"step_d": step_d_finite})``."""
    if not (reading.settle.verdicts or reading.settle.held):
        return
    read = syntax.call(f"{VERDICTS}.read", commits_by_op(reading.settle, scope))
    is_used = bool(reading.known)
    statement = syntax.assign(COMMITTED, read) if is_used else syntax.perform(read)
    yield Line(statement=statement, comment="waits for the device, once")


def _condition(instruction: Conditional, scope: Scope, reading: Reading) -> ast.stmt:
    """Return the statement under which a write stands."""
    commits = commit_value(instruction.commits, scope)
    if id(instruction) in reading.known:
        return syntax.when(syntax.item(syntax.name(COMMITTED), syntax.constant(instruction.op)))
    if id(instruction) in reading.asked:
        return syntax.when(commits)
    changed = tuple(written_lists(instruction, scope))
    if id(instruction) in reading.again:
        return syntax.repeat(syntax.call(f"{VERDICTS}.ways", syntax.constant(instruction.op), commits, *changed))
    return syntax.within(syntax.call(f"{VERDICTS}.held", syntax.constant(instruction.op), commits, *changed))


def lower_settle(instruction: Settle, scope: Scope) -> Lowered:
    """Return ``loss_scale.update(verdicts.finite)``."""
    if not (instruction.scaled and instruction.verdicts):
        return Lowered(code=(), graph="either")
    updated = syntax.call(f"{SCALE}.update", syntax.dotted(f"{VERDICTS}.finite"))
    return Lowered(code=(line_of(instruction, syntax.perform(updated)),), graph="either")
