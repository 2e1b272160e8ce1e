"""The path of a gradient within a function: which forwards it goes through, and which cells they are held to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compiler.ir.cell import is_buffers
from compiler.ir.instructions import Evaluate, Forward, Gradient, Instruction
from compiler.ir.program import Function, Program
from compiler.ir.value import Ref


def find_through(function: Function, gradient: Gradient, program: Program) -> Mapping[str, tuple[str, ...]]:
    """Return, by forward on the path of a gradient, the cell versions that must still be there: ``net.params@0``.

    Those are what autograd keeps without a copy: weights, and buffers where the forward evaluates. Statistics that a
    forward in training reads are not needed for its gradient.
    """
    instructions = function.instructions
    path = find_path(gradient, instructions, program)
    forwards = [each for each in instructions if isinstance(each, Forward) and id(each) in path]
    kept = {each.op: tuple(str(at) for at in each.reads if _is_kept(each, at.cell)) for each in forwards}
    return {op: reads for op, reads in kept.items() if reads}


def _is_kept(forward: Forward, cell: str) -> bool:
    """Return whether a gradient through a forward reads a cell itself, not a clone."""
    if is_buffers(cell):
        return not forward.train and forward.snapshot == "none"
    return forward.snapshot != "all"


def find_path(gradient: Gradient, instructions: Sequence[Instruction], program: Program) -> frozenset[int]:
    """Return the ids of the instructions on a differentiable path from a gradient's targets to its loss.

    A gradient on the path brings its own path along: differentiating it again reads all of that.
    """
    producers = {value: each for each in instructions for value in each.defines}
    reaching = set(find_reaching(gradient.loss, producers))
    inner = {
        id(each): find_path(each, instructions, program)
        for each in instructions
        if isinstance(each, Gradient) and id(each) in reaching
    }
    reaching = reaching.union(*inner.values())
    derived: set[int] = set()
    models = find_holders(gradient, program)
    used = {value for each in instructions if id(each) in reaching for value in _find_uses(each)} | {gradient.loss}
    for each in (each for each in instructions if id(each) in reaching):
        is_target = isinstance(each, Forward) and each.model in models and not each.frozen
        if (
            is_target
            or _begins(each, gradient, used)
            or _depends(each, gradient, producers, derived)
            or not derived.isdisjoint(inner.get(id(each), ()))
        ):
            derived.add(id(each))
    return frozenset(derived).union(*(inner[each] for each in derived & inner.keys()))


def _begins(instruction: Instruction, gradient: Gradient, used: set[str]) -> bool:
    """Return whether a gradient is taken by a tap of a call, of a loss that is made from its other results."""
    begun = instruction.begun if isinstance(instruction, Forward) else ()
    targets = [value for value in begun if value in gradient.values]
    return any(other in used for value in targets for other in instruction.defines if other != value)


def find_reaching(loss: str, producers: Mapping[str, Instruction]) -> Iterator[int]:
    """Yield the ids of the instructions from which a recorded path leads to a value."""
    pending, seen = [loss], {loss}
    while pending:
        producer = producers.get(pending.pop())
        if producer is None or not producer.recorded:
            continue
        yield id(producer)
        following = [value for value in _find_uses(producer) if value not in seen]
        seen.update(following)
        pending.extend(following)


def is_recomputed(forward: Forward, program: Program) -> bool:
    """Return whether a forward runs again, in whole or in part, when a gradient is taken through it."""
    return forward.checkpoint or program.model(forward.model).recomputes


def _find_uses(instruction: Instruction) -> tuple[str, ...]:
    """Return the values that a graph goes through into an instruction."""
    match instruction:
        case Forward() | Evaluate():
            operands = (argument.operand for argument in instruction.arguments)
            return tuple(each.name for each in operands if isinstance(each, Ref) and not each.detach)
        case Gradient():
            return (instruction.loss, *(each.name for each in instruction.grad_outputs if isinstance(each, Ref)))
        case _:
            return instruction.operands if instruction.recorded else ()


def find_holders(gradient: Gradient, program: Program) -> frozenset[str]:
    """Return the models whose calls read weights that a gradient is taken for: its own, and what shares theirs."""
    awake = [name for name in gradient.models if name not in gradient.asleep]
    return frozenset(awake).union(*(program.model(name).tied for name in awake))


def _depends(
    instruction: Instruction, gradient: Gradient, producers: Mapping[str, Instruction], derived: set[int]
) -> bool:
    """Return whether what an instruction is made from changes with a gradient's targets, given what before it does."""
    uses = _find_uses(instruction)
    return any(value in gradient.values or (value in producers and id(producers[value]) in derived) for value in uses)
