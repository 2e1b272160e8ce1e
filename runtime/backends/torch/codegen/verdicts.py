"""Conditions of writes: decided on the device until the host has read the verdicts, then by the host."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from compiler.ir.instructions import (
    Accumulate,
    Apply,
    Assign,
    Blend,
    CheckFinite,
    Instruction,
    ResolveOverflow,
    RestoreAccumulator,
    Store,
    TakeAccumulated,
)
from compiler.ir.program import window_of
from compiler.timing.curves import find_scheduled
from runtime.backends.torch.codegen.undecided import (
    NOTHING,
    Undecided,
    decided_lines,
    find_sets,
    find_undecided,
    make_ways,
    merged_lines,
    set_names,
    take_ways,
)
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.lower.accumulate import filled_line
from runtime.codegen.lower.overflow import SCALE, VERDICTS, commit_value, commits_by_op
from runtime.codegen.lower.writes import written_lists
from runtime.codegen.scope import hold, line_of
from runtime.codegen.text import Block, Code, Line

COMMITTED = "committed"
"""The variable that holds, by op, whether it takes place."""
Conditional: TypeAlias = Apply | Blend | Assign
"""Instructions that change tensors in place; a state is replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The read of the verdicts: a function reads them from the device once, before ``first``, when all are known.

    ``known`` are the conditional writes after it; ``again`` are instructions before it that depend on how often
    optimizers were applied, or on their slots, while only the device knows which of their updates were kept.
    ``filled`` are windows taken after the read, which also reads whether they have gradients; ``gathered`` are windows
    that learn from it whether the gradients of the step were added. ``undecided`` are values that depend on windows
    before the read.
    """

    resolve: ResolveOverflow
    first: int
    known: frozenset[int]
    again: frozenset[int]
    filled: tuple[TakeAccumulated, ...]
    gathered: tuple[str, ...]
    undecided: Undecided


def find_reading(instructions: Sequence[Instruction], *, debug: bool) -> Reading | None:
    """Return where a function reads its verdicts; None where it has none. Instructions are identified by their ids.

    A debug build inspects actual values, and reads the verdicts wherever it needs them.
    """
    resolve = next((each for each in instructions if isinstance(each, ResolveOverflow)), None)
    if resolve is None:
        return None
    taken = frozenset(each.window for each in instructions if isinstance(each, TakeAccumulated) and each.filled)
    deciding = (  # what makes a verdict, or adds to a window that the step takes
        place
        for place, each in enumerate(instructions)
        if isinstance(each, CheckFinite) or (isinstance(each, Accumulate) and each.window in taken)
    )
    last = max(deciding, default=-1)
    later = instructions[last + 1 :]
    again, pending = _find_again(instructions[: last + 1])
    gathers = [each for each in instructions if isinstance(each, Accumulate) and each.may_miss and each.commits]
    open_windows = frozenset(each.window for each in gathers if each.guard == "drop")
    waiting = (at for at, each in enumerate(later) if _waits(each, pending, open_windows))
    first = next(waiting, later.index(resolve))
    early = instructions[: last + 1 + first]
    begun = frozenset(each.window for each in early if isinstance(each, TakeAccumulated))
    return Reading(
        resolve=resolve,
        first=id(later[first]),
        known=frozenset(id(each) for each in later if _is_conditional(each)),
        again=again,
        filled=tuple(each for each in later[first:] if isinstance(each, TakeAccumulated) and each.filled),
        gathered=tuple(each.window for each in gathers if each.window not in begun),
        undecided=NOTHING if debug else find_undecided(early, open_windows),
    )


def _waits(instruction: Instruction, pending: frozenset[str], open_windows: frozenset[str]) -> bool:
    """Return whether an instruction must come after the read of the verdicts, once these are known.

    A window in which gradients were absent is read as the device knows it.
    """
    is_open = isinstance(instruction, TakeAccumulated) and instruction.window in open_windows
    return is_open or _is_conditional(instruction) or bool(pending & _find_counted(instruction))


def _is_conditional(instruction: Instruction) -> bool:
    """Return whether an instruction changes something in place, under verdicts; others choose between values."""
    return isinstance(instruction, RestoreAccumulator) or (
        isinstance(instruction, Conditional) and bool(instruction.commits)
    )


def _find_counted(instruction: Instruction) -> frozenset[str]:
    """Return the optimizers that an instruction applies, or whose updates its numbers count."""
    numbers = (number.optimizer for number in find_scheduled(instruction))
    parts = instruction.parts if isinstance(instruction, Apply) else ()
    return frozenset((*filter(None, numbers), *(part.optimizer for part in parts)))


def _find_again(early: Sequence[Instruction]) -> tuple[frozenset[int], frozenset[str]]:
    """Return the instructions that depend on early updates of optimizers, and the optimizers with later updates."""
    again: set[int] = set()
    pending: set[str] = set()
    for each in early:
        counted = _find_counted(each)
        if pending & counted:
            again.add(id(each))
        if isinstance(each, Apply) and (each.commits or id(each) in again):
            pending |= counted
    return frozenset(again), frozenset(pending)


def conditioned(instruction: Instruction, lowered: Lowered, scope: EmitScope, reading: Reading | None) -> Lowered:
    """Return the code of an instruction under its condition, after the read of the verdicts where that is due."""
    if reading is None:
        return lowered
    asking = tuple(_read_lines(reading, scope)) if id(instruction) == reading.first else ()
    stand_in = merged_lines if isinstance(instruction, CheckFinite) else decided_lines
    code = stand_in(lowered.code, reading.undecided, scope)
    return replace(lowered, code=(*asking, *_decided(instruction, code, scope, reading)))


def without_question(instruction: Instruction, reading: Reading | None) -> Instruction:
    """Return an instruction without the check that belongs to the read of the verdicts."""
    is_ahead = reading is not None and isinstance(instruction, TakeAccumulated) and instruction in reading.filled
    return replace(instruction, filled="") if is_ahead else instruction


def _decided(instruction: Instruction, code: tuple[Code, ...], scope: EmitScope, reading: Reading) -> tuple[Code, ...]:
    """Return the code of an instruction under verdicts: with a condition, or a choice of its value."""
    if isinstance(instruction, Conditional):
        header = _condition(instruction, scope, reading)
        if header is None:
            return code
        block = Block(header=header, body=code)
        if not scope.names.checks or id(instruction) in reading.known:
            return (block,)
        # A debug build inspects the values after an early write.
        return block, line_of(instruction, syntax.perform(syntax.call(f"{VERDICTS}.decide")))
    if isinstance(instruction, RestoreAccumulator):
        took_part = syntax.item(syntax.name(COMMITTED), syntax.constant(window_of(instruction.op)))
        return (Block(header=line_of(instruction, syntax.when(syntax.negate(took_part))), body=code),)
    if isinstance(instruction, Store) and instruction.commits:
        commits, held = commit_value(instruction.commits, scope), hold(instruction.state)
        return _choosing(code, lambda value: syntax.call("torch.where", commits, value, held))
    if id(instruction) in reading.again:
        # ``verdicts.counted(lambda: clip_norm(slopes, limit(net_adam.applied)), net_adam)``
        optimizers = [syntax.name(scope.names.optimizer(each)) for each in sorted(_find_counted(instruction))]
        code = _choosing(code, lambda value: syntax.call(f"{VERDICTS}.counted", syntax.later(value), *optimizers))
    if id(instruction) not in reading.undecided.early:
        return code
    if isinstance(instruction, TakeAccumulated):
        return (*code[:-1], *_choosing(code[-1:], lambda _: take_ways(instruction, scope)))
    sets = find_sets(instruction, reading.undecided)
    return _choosing(code, partial(make_ways, sets=sets, scope=scope))


def known_lines(
    instruction: Instruction, code: tuple[Code, ...], scope: EmitScope, reading: Reading
) -> tuple[Code, ...]:
    """Return lines that check the sets of an instruction; before the read of the verdicts, as the device knows them."""
    is_early = id(instruction) in reading.undecided.early
    return (merged_lines if is_early else decided_lines)(code, reading.undecided, scope)


def begin_lines(reading: Reading | None) -> Iterator[Line]:
    """Yield the line that clears the verdicts of the previous step."""
    if reading is not None:
        yield Line(statement=syntax.perform(syntax.call(f"{VERDICTS}.begin")))


def _choosing(code: tuple[Code, ...], choose: Callable[[ast.expr], ast.expr]) -> tuple[Code, ...]:
    """Return code whose first line assigns the chosen value in place of its own."""
    line, *rest = code
    assert isinstance(line, Line)
    assert isinstance(line.statement, ast.Assign)
    chosen = ast.Assign(targets=line.statement.targets, value=choose(line.statement.value))
    return replace(line, statement=chosen), *rest


def _read_lines(reading: Reading, scope: EmitScope) -> Iterator[Line]:
    """Yield ``committed = verdicts.read({"step_d": step_d_finite})``, after the remaining lines that it needs."""
    if not (reading.resolve.verdicts or reading.resolve.conditional):
        return
    yield from (filled_line(each, scope) for each in reading.filled)
    windows = (syntax.name(scope.names.window(each)) for each in reading.gathered)
    read = syntax.call(f"{VERDICTS}.read", commits_by_op(reading.resolve, scope), *windows)
    is_used = bool(reading.known)
    statement = syntax.assign(COMMITTED, read) if is_used else syntax.perform(read)
    yield Line(statement=statement, comment="waits for the device, once")


def _condition(instruction: Conditional, scope: EmitScope, reading: Reading) -> Line | None:
    """Return the condition of a write; None where it has none."""
    if id(instruction) in reading.known:
        return line_of(instruction, syntax.when(syntax.item(syntax.name(COMMITTED), syntax.constant(instruction.op))))
    commits = commit_value(instruction.commits, scope) if instruction.commits else syntax.constant(None)
    arguments = (syntax.constant(instruction.op), commits, *written_lists(instruction, scope))
    if id(instruction) in reading.again | reading.undecided.early:
        comment = "" if instruction.commits else "nothing stops it"
        sets = [*set_names(find_sets(instruction, reading.undecided), scope)]
        named: dict[str, ast.expr] = {"sets": syntax.listing(sets)} if sets else {}
        return line_of(
            instruction, syntax.repeat(syntax.call(f"{VERDICTS}.ways", *arguments, **named)), comment=comment
        )
    if not instruction.commits:
        return None
    return line_of(instruction, syntax.within(syntax.call(f"{VERDICTS}.held", *arguments)))


def lower_resolve(instruction: ResolveOverflow, scope: EmitScope) -> Lowered:
    """Return ``loss_scale.update(verdicts.finite)``."""
    if not (instruction.scaled and instruction.verdicts):
        return Lowered(code=(), graph="either")
    updated = syntax.call(f"{SCALE}.update", syntax.dotted(f"{VERDICTS}.finite"))
    return Lowered(code=(line_of(instruction, syntax.perform(updated)),), graph="either")
