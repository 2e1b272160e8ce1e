"""Types: the values that are known to be floating, of the type of the step, so that Python's operators work on them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from compiler.ir.instructions import MASKS, Evaluate, Forward, Gradient, Instruction, Random, Schedule
from compiler.ir.program import Function, Program
from compiler.ir.value import Argument, Ref
from runtime.codegen.resources import find_inputs

FLOATING_TYPES = frozenset({"float32", "float64"})
"""Declared types that are replaced by the type of the step."""
FLOATING_DRAWS = frozenset({"normal", "uniform"})
OTHER_TYPES = MASKS | {"argmax", "one_hot", "gather", "sort", "topk", "row_shares", "rank_share", "rank_shares"}
"""Calls whose result or operands are of other types."""
WHOLE_TYPES = frozenset({"bool", "uint8", "int32", "int64"})
PROMOTING = frozenset({"add", "sub", "mul", "div", "pow", "minimum", "maximum", "where", "lerp"})
"""Calls whose result has the type of the floating operands where others are masks or whole numbers."""


def find_floating(function: Function, program: Program) -> frozenset[str]:
    """Return the values of a function that are certainly floating; nothing is known of user code."""
    declared = (*find_inputs(program, function), *program.states)
    floating = {entry.name for entry in declared if entry.dtype in FLOATING_TYPES}
    whole = {entry.name for entry in declared if entry.dtype in WHOLE_TYPES}
    for instruction in function.instructions:
        floating.update(_find_results(instruction, program, floating, whole))
        if isinstance(instruction, Evaluate) and instruction.function.builtin and instruction.function.name in MASKS:
            whole.update(instruction.outputs)
    return frozenset(floating)


def _find_results(instruction: Instruction, program: Program, floating: set[str], whole: set[str]) -> Iterator[str]:
    """Yield the floating results of an instruction, given the floating values, masks and whole numbers before it."""
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
            refs = _find_refs(taken)
            others = [value for value in refs if value not in floating]
            are_fitting = whole.issuperset(others) if instruction.function.name in PROMOTING else not others
            some_are_floating = len(others) < len(refs)
            if keeps_type and are_fitting and some_are_floating:
                yield from instruction.outputs
        case Gradient():
            pairs = zip(instruction.values, instruction.value_outputs, strict=True)
            yield from (output for value, output in pairs if value in floating)
        case _:
            return


def takes_floating(instruction: Evaluate, floating: set[str] | frozenset[str]) -> bool:
    """Return whether all operands are floating, numbers and a condition aside, and some is not a number."""
    refs = _find_refs(instruction)
    return bool(refs) and floating.issuperset(refs)


def begins_with_tensor(instruction: Evaluate) -> bool:
    """Return whether the first operand is no number: one has the type of a tensor before it, of none after it."""
    return isinstance(_find_arguments(instruction)[0].operand, Ref)


def _find_refs(instruction: Evaluate) -> list[str]:
    """Return the values among the operands, a condition aside."""
    return [each.operand.name for each in _find_arguments(instruction) if isinstance(each.operand, Ref)]


def _find_arguments(instruction: Evaluate) -> tuple[Argument, ...]:
    is_chosen = instruction.function.builtin and instruction.function.name == "where"
    return instruction.arguments[1:] if is_chosen else instruction.arguments
