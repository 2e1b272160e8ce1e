"""Numbers of ops that follow a schedule, and the form in which each is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from compiler.ir.instructions import Apply, Blend, Instruction, Random, Schedule, Transform
from compiler.ir.program import Program
from compiler.ir.value import Scheduled
from compiler.timing.curves import find_scheduled
from runtime.codegen.resources import find_instructions

Form: TypeAlias = Literal["value", "operand", "option"]
"""The form of a number: a value of the step, a number among values, or an option in double precision."""


def find_numbers(program: Program) -> Iterator[tuple[Scheduled, Form, Instruction]]:
    """Yield every number of a program's ops that follows a schedule, its form, and an instruction that reads it."""
    seen: set[str] = set()
    for instruction in find_instructions(program):
        form: Form = "operand"
        match instruction:
            case Schedule():
                form = "value"
            case Apply() | Blend() | Random():
                form = "option"
            case Transform():
                form = "option" if instruction.function.builtin else "operand"
            case _:
                pass
        for number in find_scheduled(instruction):
            if number.name not in seen:
                seen.add(number.name)
                yield number, form, instruction
