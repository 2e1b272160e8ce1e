"""Types: the values that are known to be floating, of the type of the step, so that Python's operators work on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from compiler.ir.instructions import MASKS, Evaluate, Forward, Gradient, Instruction, Random, Schedule
from compiler.ir.program import Function, Program
from compiler.ir.value import Ref
from runtime.codegen.resources import find_inputs

FLOATING_TYPES = frozenset({"float32", "float64"})
"""Declared types that are replaced by the type of the step."""
FLOATING_DRAWS = frozenset({"normal", "uniform"})
OTHER_TYPES = MASKS | {"argmax", "one_hot", "where", "gather", "row_shares"}
"""Calls whose result or operands are of other types."""


def find_floating(function: Function, program: Program) -> frozenset[str]:
    """Return the values of a function that are certainly floating; nothing is known of user code."""
    declared = (*find_inputs(program, function), *program.states)
    floating = {entry.name for entry in declared if entry.dtype in FLOATING_TYPES}
    for instruction in function.instructions:
        floating.update(_find_results(instruction, program, floating))
    return frozenset(floating)


def _find_results(instruction: Instruction, program: Program, floating: set[str]) -> Iterator[str]:
    """Yield the floating results of an instruction, given the floating values before it."""
    match instruction:
        case Forward():
            if program.model(instruction.model).kind != "class":
                yield from (*instruction.outputs, *(value for value, _ in instruction.taps))
        case Schedule():
            yield instruction.output
        case Random():
            if instruction.distribution in FLOATING_DRAWS:
                yield instruction.output
        case Evaluate() if not instruction.counted:
            # A share that a value is multiplied by takes the type of that value.
            is_weighed = instruction.family == "internal" and instruction.function.name == "weigh"
            taken = replace(instruction, arguments=instruction.arguments[:1]) if is_weighed else instruction
            keeps_type = instruction.function.builtin and instruction.function.name not in OTHER_TYPES
            if keeps_type and takes_floating(taken, floating):
                yield from instruction.outputs
        case Gradient():
            pairs = zip(instruction.values, instruction.value_outputs, strict=True)
            yield from (output for value, output in pairs if value in floating)
        case _:
            return


def takes_floating(instruction: Evaluate, floating: set[str] | frozenset[str]) -> bool:
    """Return whether all operands are floating, numbers aside, and some is not a number."""
    refs = [each.operand.name for each in instruction.arguments if isinstance(each.operand, Ref)]
    return bool(refs) and floating.issuperset(refs)
