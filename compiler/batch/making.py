"""Builds the nodes that micro-batches need in addition to the copies: splits, shares, sums, and joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from compiler.ir.instructions import (
    CheckFinite,
    Evaluate,
    Forward,
    Gradient,
    Instruction,
    Sent,
    Start,
    Store,
    TakeAccumulated,
    Transform,
)
from compiler.ir.value import Argument, FunctionRef, Operand, Ref, Setting, Use

COLLECTIVES = frozenset({"all_rows", "all_sum", "reduce_set", "all_gather", "all_mean"})
"""Functions that every replica calls at the same place of the step: they wait for a message."""
OF_ROWS = frozenset({"all_rows", "all_gather"})
"""Those whose message brings rows; others bring sums."""
SPLITTING = {
    "all_rows", "all_sum", "reduce_set",
    "micro_batches", "row_shares", "weigh", "quotient", "inverse", "own_rows", "rank_share", "rank_shares",
}  # fmt: skip
"""Functions that split a value into micro-batches or between replicas, compute their shares of the rows, multiply by
these, and join what replicas have; and those that divide by the count of a loss."""

Waiting = TypeVar("Waiting", Evaluate, Transform, CheckFinite)
"""Nodes that wait for a message."""


def evaluate(
    name: str,
    function: str,
    operands: Sequence[str],
    outputs: tuple[str, ...],
    *,
    like: Instruction | None = None,
    op: str = "",
    place: str = "",
    micro_batch: int = 0,
    options: Mapping[str, Setting] | None = None,
    constant: bool = False,
    free_early: bool = False,
) -> Evaluate:
    """Return a node that calls a function of the library; ``like``: the node whose op and gate it has.

    ``constant``: no gradient goes through it.
    """
    op, place = (op, place) if like is None else (like.op, like.place)
    return Evaluate(
        id=name,
        op=op,
        label=f"evaluate {name}",
        place=place,
        micro_batch=micro_batch,
        uses=tuple(Use(value=value, differentiable=not constant) for value in operands),
        differentiable=not constant,
        gate="" if like is None else like.gate,
        free_early=free_early,
        family="internal" if function in SPLITTING else "call",
        function=FunctionRef(name=function, builtin=True),
        arguments=tuple(Argument(operand=Ref(name=each)) for each in operands),
        options=options or {},
        outputs=outputs,
    )


def reduce_set(name: str, local: str, made: Gradient | TakeAccumulated) -> Transform:
    """Return a node that adds up over the replicas the sets that each of them has."""
    may_miss = made.unconnected == "skip" or bool(made.frozen) if isinstance(made, Gradient) else made.may_miss
    return Transform(
        id=f"{name}.reduced",
        op=made.op,
        label=f"reduce {name}",
        place=made.place,
        uses=(Use(value=local, differentiable=False),),
        differentiable=False,
        gate=made.gate,
        function=FunctionRef(name="reduce_set", builtin=True),
        inputs=(local,),
        output=name,
        models=made.models,
        may_miss=may_miss,
    )


def wait(node: Waiting, local: str, of: str, *, compresses: bool = False) -> tuple[Start, Waiting]:
    """Return the start of a message with what a replica has of a value, and the node that gives what all have of it.

    ``of``: the value of the spec; ``compresses``: a gradient set is sent in part, and the rest of it is kept.
    """
    (whole,) = node.defines
    message = f"{whole}#sent"
    is_rows = isinstance(node, Evaluate) and node.function.name in OF_ROWS
    axis = node.options.get("axis", 0) if isinstance(node, Evaluate) else 0
    assert isinstance(axis, int)
    models = node.models if isinstance(node, Transform) else ()
    start = Start(
        id=f"{whole}#start",
        op=node.op,
        label=f"start {whole}",
        place=node.place,
        uses=(Use(value=local, differentiable=False),),
        differentiable=False,
        gate=node.gate,
        free_early=True,
        output=message,
        collective="gather" if is_rows else "compress" if models and compresses else "sum",
        parts=(Sent(value=local, wholes=(whole,), of=of, axis=axis, models=models),),
    )
    uses = (*node.uses, Use(value=message, differentiable=False))
    return start, replace(node, uses=uses, message=message)


def check_everywhere(check: CheckFinite) -> tuple[CheckFinite, CheckFinite]:
    """Return nodes for a check of what replicas have of their own: one for its verdict, and one for that of all."""
    own = replace(check, id=f"{check.id}#own", label=f"own {check.label}", scope="own")
    return own, replace(check, scope="all")


def add_sets(name: str, inputs: tuple[str, ...], gradient: Gradient, micro_batch: int) -> Transform:
    """Return a node that adds two sets of a gradient; an absent entry adds nothing."""
    return Transform(
        id=f"{name}.sum",
        op=gradient.op,
        label=f"sum {name}",
        place=gradient.place,
        micro_batch=micro_batch,
        uses=tuple(Use(value=value) for value in inputs),
        gate=gradient.gate,
        function=FunctionRef(name="add_sets", builtin=True),
        inputs=inputs,
        output=name,
        models=gradient.models,
        rows=gradient.rows,
        may_miss=gradient.unconnected == "skip" or bool(gradient.frozen),
    )


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
        case Store():
            return replace(instruction, value=_operand(instruction.value, use))
        case _:
            raise AssertionError(f"{instruction.op} runs for no micro-batch")


def _arguments(arguments: tuple[Argument, ...], use: Renamed) -> tuple[Argument, ...]:
    """Return arguments with their values renamed."""
    return tuple(replace(argument, operand=_operand(argument.operand, use)) for argument in arguments)


def _operand(operand: Operand, use: Renamed) -> Operand:
    """Return an operand, renamed where it is a value."""
    return replace(operand, name=use(operand.name)) if isinstance(operand, Ref) else operand
