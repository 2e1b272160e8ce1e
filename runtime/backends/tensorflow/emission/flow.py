"""Flow: which values something recorded on a tape may depend on."""

from __future__ import annotations

from compiler.ir.instructions import Evaluate, Forward, Gradient, Instruction, Transform
from compiler.ir.program import Function, Program
from compiler.ir.value import Ref
from runtime.codegen.flow import Flow, find_flow, find_holders


def find_recorded(function: Function, program: Program) -> Flow:
    """Return the flow of a function whose tapes record whatever is done while they are open.

    A tape has no ``no_grad``: beside what is meant to carry a graph, everything made from it does, until it is stopped.
    """
    meant = find_flow(function)
    gradients = (each for each in function.instructions if isinstance(each, Gradient))
    targets = frozenset[str]().union(*(find_holders(each, program) for each in gradients))
    carrying = set(meant.carrying)
    for instruction in function.instructions:
        if _carries(instruction, targets, carrying):
            carrying.update(instruction.defines)
    return Flow(carrying=frozenset(carrying), leaves=meant.leaves, siblings=meant.siblings, recorded=meant.recorded)


def _carries(instruction: Instruction, targets: frozenset[str], carrying: set[str]) -> bool:
    """Return whether the results of an instruction depend on what some tape watches."""
    match instruction:
        case Forward():
            is_recorded = instruction.model in targets or _enters(instruction, carrying) or bool(instruction.begun)
            return not instruction.stop and is_recorded
        case Evaluate():
            return not instruction.constant and _enters(instruction, carrying)
        case Gradient():
            return True
        case Transform():
            return not carrying.isdisjoint(instruction.inputs)
        case _:
            return instruction.recorded


def _enters(instruction: Forward | Evaluate, carrying: set[str]) -> bool:
    """Return whether an argument depends on what some tape watches."""
    operands = (argument.operand for argument in instruction.arguments)
    return any(isinstance(each, Ref) and not each.detach and each.name in carrying for each in operands)
