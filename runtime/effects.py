"""What instructions read and define: the names of values, whatever the backend."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.program import (
    Apply,
    Assign,
    Blend,
    Emit,
    Evaluate,
    Forward,
    Function,
    Gradient,
    InputDecl,
    Instruction,
    Program,
    Random,
    Ref,
    Release,
    Transform,
)


def find_definitions(instruction: Instruction) -> tuple[str, ...]:
    """Return the names of the values an instruction defines."""
    match instruction:
        case Forward():
            tapped = (value for value, _ in instruction.taps if value not in instruction.outputs)
            return (*instruction.outputs, *tapped)
        case Evaluate():
            return instruction.outputs
        case Random() | Transform():
            return (instruction.output,)
        case Gradient():
            output = () if instruction.output is None else (instruction.output,)
            return (*output, *instruction.value_outputs)
        case Apply() | Blend() | Assign() | Release() | Emit():
            return ()


def find_uses(instruction: Instruction) -> tuple[str, ...]:
    """Return the names of the values an instruction reads, in order."""
    match instruction:
        case Forward() | Evaluate():
            return tuple(each.operand.name for each in instruction.arguments if isinstance(each.operand, Ref))
        case Random():
            return () if instruction.like is None else (instruction.like,)
        case Gradient():
            seeds = (each.name for each in instruction.grad_outputs if isinstance(each, Ref))
            return (instruction.loss, *instruction.values, *seeds)
        case Transform():
            return instruction.inputs
        case Apply():
            return tuple(part.gradients for part in instruction.parts)
        case Emit():
            return instruction.values
        case Blend() | Assign() | Release():
            return ()


def find_functions(program: Program) -> tuple[Function, ...]:
    """Return the functions of all modes."""
    return tuple(function for mode in program.modes for function in mode.functions)


def find_inputs(program: Program, function: Function) -> tuple[InputDecl, ...]:
    """Return the inputs a function needs: those it reads, and those whose free sizes a draw takes."""
    used = {name for instruction in function.instructions for name in find_uses(instruction)}
    sizes = set(_find_sizes(function))
    chosen = {find_sized_input(program, size).name for size in sizes if program.inputs}
    return tuple(entry for entry in program.inputs if entry.name in used | chosen)


def find_sized_input(program: Program, size: str) -> InputDecl:
    """Return the input that tells a free size: the first declared with it, else the first."""
    return next((entry for entry in program.inputs if size in (entry.shape or ())), program.inputs[0])


def _find_sizes(function: Function) -> Iterator[str]:
    """Yield the free sizes that draws of a function have."""
    for instruction in function.instructions:
        if isinstance(instruction, Random):
            yield from (size for size in instruction.shape or () if isinstance(size, str))


def is_running(instruction: Instruction) -> bool:
    """Return whether an instruction gives a value that runs over several steps, or may do so as a user's metric may."""
    if not isinstance(instruction, Evaluate) or instruction.family != "metric":
        return False
    return not (instruction.function.builtin and instruction.reset == "step")
