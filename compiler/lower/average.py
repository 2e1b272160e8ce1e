"""Lowering of the writes that follow another model: ``ema`` and ``copy``."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from compiler.facts.models import ModelFacts
from compiler.facts.optimizers import find_averaging
from compiler.ir.cell import buffers_of, optimizer_cell, state_of
from compiler.ir.instructions import Assign, Blend, Instruction, Store
from compiler.ir.value import Read, Ref, Scheduled, Use, Write
from compiler.lower.context import LoweringContext
from compiler.lower.verdict import find_holdable
from compiler.timing.curves import UNKNOWN
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import AssignOp, CopyOp, EmaOp, Op, UpdateOp
from graphspec.declare.schedules import ScheduleSpec


def lower_ema(name: str, op: EmaOp, context: LoweringContext) -> tuple[Instruction, ...]:
    """Return the one node of a weight average; it follows every write of its source."""
    target = op.target(name)
    policy = buffer_policy(op, context.models[op.ema], context.models[target])
    if isinstance(op.decay, ScheduleSpec):
        decay = context.number(op.decay, name, "decay")
    elif isinstance(op.tau, ScheduleSpec):
        decay = context.number(op.tau, name, "tau")
    elif op.half_life is not None and op.half_life.unit != "updates":  # it cannot be counted
        decay = Scheduled(op=name, option="half_life", schedule=UNKNOWN, complement=True)
    else:
        decay = find_decay(context.spec, op)
    averaging = find_averaging(context.spec, op.ema) if op.schedule_free else ()
    policy = "copy" if averaging and policy == "average" else policy  # there is no decay for buffers
    blend = Blend(
        id=name,
        op=name,
        label=f"ema {name}",
        place=context.place(name),
        source=op.ema,
        target=target,
        decay=decay,
        averaging=averaging,
        half_life="" if op.half_life is None else str(op.half_life),
        buffers=policy,
    )
    follow = _follow(blend, context, buffers=policy != "ignore")
    kept = tuple(Read(cell=optimizer_cell(optimizer)) for optimizer, _ in averaging)
    return (replace(follow, reads=(*follow.reads, *kept)),)


def lower_copy(name: str, op: CopyOp, context: LoweringContext) -> tuple[Instruction, ...]:
    """Return the one node of a hard target update."""
    copy = Assign(id=name, op=name, label=f"copy {name}", place=context.place(name), source=op.copy_, target=op.into)
    return (_follow(copy, context, buffers=True),)


def find_decay(spec: GraphSpec, op: EmaOp) -> float:
    """Return the weight of the old average per firing: ``decay``, ``1 - tau``, or 2^(-k/H) for a half-life H.

    ``interval_correction`` compounds over the k writes between two firings: by default for half_life, not for the
    others, as in every library that has both options.
    """
    interval = find_interval(spec, op) or 1
    if op.half_life is not None:
        single = 2.0 ** (-1.0 / op.half_life.count)
    else:
        single = _plain(op.decay) if op.decay is not None else 1.0 - _plain(op.tau)
    return single**interval if op.correction == "compound" else single


def _plain(number: float | ScheduleSpec | None) -> float:
    """Return a number that does not change."""
    return number if isinstance(number, int | float) else 0.0


def find_interval(spec: GraphSpec, op: EmaOp) -> int | None:
    """Return how many writes of its source lie between two firings of an average; None where that is not constant.

    `every: 4` counts such writes itself. `every: step_pi` fires with that update, between whose steps a source with
    other updates is written in each step. If either update can be held by gradients that are not finite, the number of
    writes is not known.
    """
    if not isinstance(op.every, str):
        return op.every or 1
    named = spec.ops[op.every]
    writing = [name for name, other in spec.ops.items() if isinstance(other, UpdateOp) and op.ema in other.update]
    if op.every in writing:
        return 1 if len(writing) == 1 else None
    if not find_holdable(spec).isdisjoint((*writing, op.every)):
        return None
    writers = [each for name in writing if isinstance(each := spec.ops[name], UpdateOp)]
    steady = len(writers) == 1 and writers[0].window == 1 and writers[0].every in (None, 1)
    if not steady or not _is_steady(writers[0]) or not _is_steady(named) or isinstance(named.every, str):
        return None
    return (named.every or 1) * (named.window if isinstance(named, UpdateOp) else 1)


def _is_steady(op: Op) -> bool:
    """Return whether an op keeps its pace from the first step to the last; windows that epochs end do not."""
    is_cut = isinstance(op, UpdateOp) and op.window > 1 and op.at_epoch_end != "carry"
    return op.start is None and op.until is None and not is_cut


def buffer_policy(op: EmaOp, source: ModelFacts, target: ModelFacts) -> Literal["copy", "average", "ignore"]:
    """Return what happens to buffers: what the op says, else the target, else the source; without buffers: ignore."""
    if not source.buffers:
        return "ignore"
    return op.buffers or target.policy or source.policy or "ignore"


def _follow(write: Blend | Assign, context: LoweringContext, *, buffers: bool) -> Blend | Assign:
    """Return an average or copy with its effects: it reads one model's cells and writes another's."""
    source, target = context.models[write.source], context.models[write.target]
    read, written = (
        (*model.cells, *((buffers_of(model.name),) if buffers and model.buffers else ())) for model in (source, target)
    )
    return replace(
        write,
        reads=(
            *(Read(cell=cell) for cell in read),
            *(Read(cell=cell, streaming=True) for cell in written if cell not in read),
        ),
        writes=tuple(Write(cell=cell) for cell in written),
        follows=frozenset((*source.cells, buffers_of(write.source))),
    )


def lower_assign(name: str, op: AssignOp, context: LoweringContext) -> tuple[Store, ...]:
    """Return the one node of an assignment; it reads nothing of the state, which it replaces."""
    value = context.operand(op.value, name, "value")
    store = Store(
        id=name,
        op=name,
        label=f"assign {name}",
        place=context.place(name),
        uses=(Use(value=value.name, differentiable=False),) if isinstance(value, Ref) else (),
        writes=(Write(cell=state_of(op.assign)),),
        state=op.assign,
        value=value,
    )
    return (store,)
