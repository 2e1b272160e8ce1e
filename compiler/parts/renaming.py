"""Renaming: an instruction with other values in the place of those that it uses and defines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from compiler.instructions import Evaluate, Forward, Gradient, Instruction
from compiler.operands import Argument, Operand, Ref

Renamed = Callable[[str], str]


def rename(instruction: Instruction, use: Renamed, define: Renamed) -> Instruction:
    """Return an instruction that may run for a micro-batch, with its values renamed."""
    match instruction:
        case Forward():
            return replace(
                instruction,
                arguments=_arguments(instruction.arguments, use),
                outputs=tuple(map(define, instruction.outputs)),
                taps=tuple((define(value), layer) for value, layer in instruction.taps),
            )
        case Evaluate():
            return replace(
                instruction,
                arguments=_arguments(instruction.arguments, use),
                outputs=tuple(map(define, instruction.outputs)),
            )
        case Gradient():
            return replace(
                instruction,
                loss=use(instruction.loss),
                values=tuple(map(use, instruction.values)),
                output=None if instruction.output is None else define(instruction.output),
                value_outputs=tuple(map(define, instruction.value_outputs)),
                grad_outputs=tuple(_operand(each, use) for each in instruction.grad_outputs),
            )
        case _:
            raise AssertionError(f"{instruction.op} runs for no micro-batch")


def _arguments(arguments: tuple[Argument, ...], use: Renamed) -> tuple[Argument, ...]:
    """Return arguments with their values renamed."""
    return tuple(replace(argument, operand=_operand(argument.operand, use)) for argument in arguments)


def _operand(operand: Operand, use: Renamed) -> Operand:
    """Return an operand, renamed where it is a value."""
    return replace(operand, name=use(operand.name)) if isinstance(operand, Ref) else operand
