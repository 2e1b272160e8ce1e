"""Forwards: the part of a program that a look at user classes needs, and sizes read off results of two runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from compiler.ir.instructions import Emit, Evaluate, Forward, Instruction, Random, Schedule
from compiler.ir.program import Function, Program
from compiler.ir.value import Dimension
from runtime.effects import find_functions, find_uses


def find_forwards(program: Program, known: frozenset[str], asked: frozenset[str] = frozenset()) -> Program:
    """Return the program of the forwards alone, with the pure ops between them, as far as the known models reach.

    Its functions return every result, so that types can be read off; nothing in it writes a weight. ``asked``: users'
    losses of which it is also asked whether they return (sum, count).
    """
    modes = tuple(
        replace(mode, gates=(), functions=tuple(_find_forwards(each, program, known, asked) for each in mode.functions))
        for mode in program.modes
    )
    models = tuple(model for model in program.models if model.name in known)
    return replace(program, models=models, optimizers=(), modes=modes)


def _find_forwards(function: Function, program: Program, known: frozenset[str], asked: frozenset[str]) -> Function:
    """Return a function's forwards, pure ops and draws whose inputs are all known."""
    defined = {entry.name for entry in (*program.inputs, *program.states)}
    kept: list[Instruction] = []
    for instruction in function.instructions:
        is_known = isinstance(instruction, (Evaluate, Random, Schedule)) or (
            isinstance(instruction, Forward) and instruction.model in known
        )
        if is_known and defined.issuperset(find_uses(instruction)):
            kept += (_unchecked(instruction), *_ask(instruction, asked))
            defined.update(instruction.defines)
    values = tuple(value for each in kept for value in each.defines)
    return replace(function, gated=(), instructions=(*kept, Emit(op="", values=values)))


def _unchecked(instruction: Instruction) -> Instruction:
    """Return a loss without the check of its shapes: they are read off, and the compiler tells which do not fit."""
    return replace(instruction, open=False) if isinstance(instruction, Evaluate) else instruction


def _ask(instruction: Instruction, asked: frozenset[str]) -> Iterator[Evaluate]:
    """Yield what asks a user's loss whether it returns (sum, count), where that is not known."""
    if isinstance(instruction, Evaluate) and instruction.op in asked and instruction.family == "loss":
        yield replace(instruction, outputs=(asked_of(instruction.op),), counted="asked")


def asked_of(loss: str) -> str:
    """Return the value that has as many elements as a user's loss returns pieces."""
    return f"{loss}.pieces"


def find_assumed(program: Program) -> frozenset[str]:
    """Return the users' losses of which it is assumed that they return (sum, count)."""
    every = (each for function in find_functions(program) for each in function.instructions)
    return frozenset(each.op for each in every if isinstance(each, Evaluate) and each.counted == "assumed")


def find_known(program: Program) -> frozenset[str]:
    """Return the models whose structure is known: all but layers whose input sizes are still open."""
    return frozenset(model.name for model in program.models if model.kind != "layers" or model.layers)


def evaluating(program: Program) -> Program:
    """Return a program with every forward in evaluation: no statistics are written, nothing is dropped."""
    modes = tuple(
        replace(mode, functions=tuple(_evaluate(function) for function in mode.functions)) for mode in program.modes
    )
    return replace(program, modes=modes)


def _evaluate(function: Function) -> Function:
    """Return a function with every forward in evaluation."""
    instructions = tuple(
        replace(each, train=False, draws=False) if isinstance(each, Forward) else each for each in function.instructions
    )
    return replace(function, instructions=instructions)


def find_dimension(one: int, other: int, small: int, large: int, batch: str) -> Dimension:
    """Return a fixed size, or one that grows with the batch: ``batch``, ``4*batch``, ``2*batch-1``.

    ``one`` was seen at the batch size ``small``, ``other`` at ``large``.
    """
    factor, rest = divmod(other - one, large - small)
    if factor == 0 and rest == 0:
        return one
    offset = one - factor * small
    product = batch if factor == 1 else f"{factor}*{batch}"
    return f"{product}{offset:+d}" if offset else product
