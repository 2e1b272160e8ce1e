"""What instructions read and define: the names of values, whatever the backend."""

from __future__ import annotations

from compiler.ir.instructions import Apply, Evaluate, Forward, Gather, Instruction, Judge, Store
from compiler.ir.program import Function, InputDecl, Program, StateDecl


def find_uses(instruction: Instruction) -> tuple[str, ...]:
    """Return the names of the values an instruction reads, in order, and the verdicts under which it writes."""
    return (*instruction.operands, *(verdict for way in instruction.commits for verdict in way))


def find_functions(program: Program) -> tuple[Function, ...]:
    """Return the functions of all modes."""
    return tuple(function for mode in program.modes for function in mode.functions)


def find_training_modes(program: Program) -> frozenset[str]:
    """Return the modes in which an update is applied."""
    pairs = (
        (mode.mode, each) for mode in program.modes for function in mode.functions for each in function.instructions
    )
    return frozenset(mode for mode, each in pairs if isinstance(each, Apply))


def find_inputs(program: Program, function: Function) -> tuple[InputDecl, ...]:
    """Return the inputs a function needs: those it reads, and those whose free sizes a draw takes."""
    used = {name for instruction in function.instructions for name in find_uses(instruction)}
    sizes = {size for instruction in function.instructions for size in instruction.sizes}
    chosen = {find_sized_input(program, size, function).name for size in sizes if program.inputs}
    return tuple(entry for entry in program.inputs if entry.name in used | chosen)


def find_windows(program: Program) -> tuple[Gather, ...]:
    """Return what adds to each window of a program."""
    instructions = (each for function in find_functions(program) for each in function.instructions)
    return tuple({each.window: each for each in instructions if isinstance(each, Gather)}.values())


def find_judged(program: Program) -> tuple[Judge, ...]:
    """Return what looks at the gradients of each update of a program."""
    instructions = (each for function in find_functions(program) for each in function.instructions)
    return tuple({each.key: each for each in instructions if isinstance(each, Judge)}.values())


def find_states(program: Program) -> tuple[StateDecl, ...]:
    """Return the states that the functions of a program read or write."""
    functions = find_functions(program)
    used = {name for function in functions for each in function.instructions for name in find_uses(each)}
    used |= {each.state for function in functions for each in function.instructions if isinstance(each, Store)}
    return tuple(state for state in program.states if state.name in used)


def find_sized_input(program: Program, size: str, function: Function) -> InputDecl:
    """Return the input that tells a free size: the first declared with it, else the first.

    Where data sets may have different inputs, those that the function reads come before others.
    """
    used = {name for instruction in function.instructions for name in find_uses(instruction)}
    inputs = program.inputs
    if program.datasets:
        inputs = tuple(sorted(inputs, key=lambda entry: entry.name not in used))
    return next((entry for entry in inputs if size in (entry.shape or ())), inputs[0])


def count_parts(program: Program) -> int:
    """Return how many micro-batches a step has."""
    return max((each.part for function in find_functions(program) for each in function.instructions), default=0) or 1


def is_lowered(forward: Forward) -> bool:
    """Return whether a model computes in another type than float32."""
    return forward.compute != "float32"


def is_running(instruction: Instruction) -> bool:
    """Return whether an instruction gives a value that runs over several steps, or may do so as a user's metric may."""
    if not isinstance(instruction, Evaluate) or instruction.family != "metric":
        return False
    return not (instruction.function.builtin and instruction.reset == "step")
