"""Conditions of writes: the host asks the device for verdicts where it needs one; up to there the device decides."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.instructions import (
    Accumulate,
    Apply,
    Assign,
    Blend,
    CheckFinite,
    Commit,
    Instruction,
    ResolveOverflow,
    RestoreAccumulator,
    Store,
    TakeAccumulated,
)
from compiler.ir.instructions.base import find_verdicts
from compiler.ir.program import window_of
from compiler.timing.curves import find_scheduled
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.lower.overflow import SCALE, VERDICTS, commit_value
from runtime.codegen.lower.writes import written_lists
from runtime.codegen.scope import hold, line_of
from runtime.codegen.text import Block, Code, Line

COMMITTED = "committed"
"""The variable that holds, by op, whether it takes place."""
Conditional: TypeAlias = Apply | Blend | Assign
"""Instructions that change tensors in place; a state is replaced."""


class Read(Struct, frozen=True, kw_only=True):
    """A read of verdicts: the host waits for the device, and then knows whether some ops take place.

    ``windows`` learn whether the gradients of the step were added.
    """

    held: tuple[tuple[str, Commit], ...]
    windows: tuple[str, ...]


class Reading(Struct, frozen=True, kw_only=True):
    """The reads of a function, each by the id of the instruction that it comes before.

    ``known``: the ids of the conditional writes of which the host knows whether they take place, with the last read
    ahead of each. ``final``: those after the last verdict. ``heard``: the ids of instructions that add to a window of
    which the host knows, too, whether it takes that in, with what was checked for it.
    """

    reads: Mapping[int, Read]
    known: Mapping[int, int]
    final: frozenset[int]
    heard: Mapping[int, tuple[str, ...]]


def find_reading(instructions: Sequence[Instruction], *, debug: bool, late: bool = False) -> Reading | None:
    """Return where a function reads verdicts; None where it has none. Instructions are identified by their ids.

    The host asks where it must know: before a write after the last verdict; before anything that depends on an early
    update of an optimizer (its slots, how often it was applied); before it takes a window of which it must know the
    missing gradients, or restores one; and at the end. A debug build inspects what is written, and asks before every
    write. One that asks ``late`` does not ask before writes: the device decides on all of them, and puts back what
    does not take place.
    """
    resolve = next((each for each in instructions if isinstance(each, ResolveOverflow)), None)
    if resolve is None:
        return None
    deciding = (at for at, each in enumerate(instructions) if isinstance(each, CheckFinite) or _is_open(each))
    last = max(deciding, default=-1)
    wanted = {*resolve.verdicts}.union(*(find_verdicts(commits) for _, commits in resolve.conditional))
    reads, known, latest = dict[int, Read](), dict[int, int](), 0
    heard = dict[int, tuple[str, ...]]()
    judged = {each.output: (each.key,) for each in instructions if isinstance(each, CheckFinite)}
    for each in (one for one in instructions if one.combined):
        judged |= dict.fromkeys(each.defines, tuple(key for verdict in each.combined for key in judged[verdict]))
    on_device, on_host = set[str](), set[str]()  # the verdicts that the device has, and those that the host has too
    early, windows = set[str](), dict[str, None]()  # what the host must hear of: optimizers stepped early, windows
    for at, each in enumerate(instructions):
        condition = {*find_verdicts(each.unless if isinstance(each, RestoreAccumulator) else each.commits)}
        is_write = isinstance(each, RestoreAccumulator) or (isinstance(each, Conditional) and bool(condition))
        if (
            early & _find_counted(each)
            or (isinstance(each, TakeAccumulated | RestoreAccumulator) and each.window in windows)
            or (is_write and not condition <= on_host and (debug or (at > last and not late)))
            or (isinstance(each, RestoreAccumulator) and not condition <= on_host)
            or (each is resolve and (windows or not wanted <= on_host))
        ):
            held = ((op, commits) for op, commits in resolve.conditional if {*find_verdicts(commits)} <= on_device)
            new = ((op, commits) for op, commits in held if not {*find_verdicts(commits)} <= on_host)
            latest = id(each)
            reads[latest] = Read(held=tuple(new), windows=tuple(windows))
            on_host |= on_device
            early.clear()
            windows.clear()
        match each:
            case CheckFinite(output=output):
                on_device.add(output)
            case _ if each.combined:
                on_device.update(each.defines)
            case TakeAccumulated(filled=filled) if filled:
                on_device.add(filled)
            case Accumulate(commits=(way,)) if _is_open(each) and judged.keys() & on_host >= {*way}:
                heard[id(each)] = tuple(key for verdict in way for key in judged[verdict])
            case Accumulate(window=window) if _is_open(each):
                windows[window] = None
            case Apply() if is_write and not condition <= on_host:
                early |= _find_counted(each)
            case _:
                pass
        if is_write and condition <= on_host and (not late or isinstance(each, RestoreAccumulator)):
            known[id(each)] = latest
    final = frozenset(id(each) for each in instructions[last + 1 :] if id(each) in known)
    return Reading(reads=reads, known=known, final=final, heard=heard)


def _is_open(instruction: Instruction) -> bool:
    """Return whether an instruction adds to a window of which the host must know whether it took that in.

    A window that a step spoils is not applied, no matter which gradients there are.
    """
    match instruction:
        case Accumulate(gradients=str(), commits=commits, may_miss=True, guard="drop"):
            return bool(commits)
        case _:
            return False


def _find_counted(instruction: Instruction) -> frozenset[str]:
    """Return the optimizers that an instruction applies, or whose updates its numbers count."""
    numbers = (number.optimizer for number in find_scheduled(instruction))
    parts = instruction.parts if isinstance(instruction, Apply) else ()
    return frozenset((*filter(None, numbers), *(part.optimizer for part in parts)))


def conditioned(instruction: Instruction, lowered: Lowered, scope: EmitScope, reading: Reading | None) -> Lowered:
    """Return the code of an instruction under verdicts: with a condition, or a choice of its value."""
    if reading is None:
        return lowered
    return replace(lowered, code=_decided(instruction, lowered.code, scope, reading))


def _decided(instruction: Instruction, code: tuple[Code, ...], scope: EmitScope, reading: Reading) -> tuple[Code, ...]:
    """Return code under its condition."""
    if isinstance(instruction, RestoreAccumulator):
        took_part = syntax.item(syntax.name(COMMITTED), syntax.constant(window_of(instruction.op)))
        return (Block(header=line_of(instruction, syntax.when(syntax.negate(took_part))), body=code),)
    if isinstance(instruction, Store) and instruction.commits:
        commits, held = commit_value(instruction.commits, scope), hold(instruction.state)
        line, *rest = code
        assert isinstance(line, Line)
        assert isinstance(line.statement, ast.Assign)
        value = syntax.call("torch.where", commits, line.statement.value, held)
        return replace(line, statement=ast.Assign(targets=line.statement.targets, value=value)), *rest
    if isinstance(instruction, Accumulate) and id(instruction) in reading.heard:
        keys = map(syntax.constant, reading.heard[id(instruction)])
        window, given = scope.names.window(instruction.window), syntax.call(f"{VERDICTS}.gave", *keys)
        return *code, line_of(instruction, syntax.perform(syntax.call(f"{window}.settle", given)))
    if not (isinstance(instruction, Conditional) and instruction.commits):
        return code
    op = syntax.constant(instruction.op)
    if id(instruction) in reading.known:
        condition = syntax.when(syntax.item(syntax.name(COMMITTED), op))
    else:
        changed = written_lists(instruction, scope)
        condition = syntax.within(
            syntax.call(f"{VERDICTS}.held", op, commit_value(instruction.commits, scope), *changed)
        )
    return (Block(header=line_of(instruction, condition), body=code),)


def begin_lines(reading: Reading | None) -> Iterator[Line]:
    """Yield the line that clears the verdicts of the previous step."""
    if reading is not None:
        yield Line(statement=syntax.perform(syntax.call(f"{VERDICTS}.begin")))


def read_lines(instruction: Instruction, scope: EmitScope, reading: Reading | None) -> Iterator[Line]:
    """Yield ``committed = verdicts.read({"step_d": step_d_finite})`` where that comes before an instruction."""
    if reading is None or id(instruction) not in reading.reads:
        return
    read = reading.reads[id(instruction)]
    windows = (syntax.name(scope.names.window(each)) for each in read.windows)
    held = syntax.dictionary({op: commit_value(commits, scope) for op, commits in read.held})
    value = syntax.call(f"{VERDICTS}.read", held, *windows)
    statement = syntax.assign(COMMITTED, value) if id(instruction) in reading.known.values() else syntax.perform(value)
    yield Line(statement=statement, comment="waits for the device")


def lower_resolve(instruction: ResolveOverflow, scope: EmitScope) -> Lowered:
    """Return ``loss_scale.update(verdicts.finite)``."""
    if not (instruction.scaled and instruction.verdicts):
        return Lowered(code=(), graph="either")
    updated = syntax.call(f"{SCALE}.update", syntax.dotted(f"{VERDICTS}.finite"))
    return Lowered(code=(line_of(instruction, syntax.perform(updated)),), graph="either")
