"""Lowering of the writes that follow another model: ``ema`` and ``copy``."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from compiler.facts.models import ModelFacts
from compiler.facts.optimizers import find_averaging
from compiler.ir.cell import buffers_of, optimizer_cell, state_of
from compiler.ir.instructions import Assign, Blend, Instruction, Progress, Store
from compiler.ir.program import back_of
from compiler.ir.value import Read, Ref, Scheduled, ScheduleDecl, Use, Write
from compiler.lower.context import LoweringContext
from compiler.lower.verdict import find_skippable_updates
from compiler.timing.curves import UNKNOWN
from compiler.timing.period import find_model_writers
from graphspec.analysis.iterations import find_repeated
from graphspec.declare.decays import DecaySpec
from graphspec.declare.durations import Duration
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import AssignOp, CopyOp, EmaOp, Op, UpdateOp
from graphspec.declare.schedules import ScheduleSpec


def lower_ema(name: str, op: EmaOp, context: LoweringContext) -> tuple[Instruction, ...]:
    """Return the node of a weight average, after that of its write-back if it has one.

    An average follows every write of its source.
    """
    target = op.target(name)
    policy = buffer_policy(op, context.models[op.ema], context.models[target])
    averaging = find_averaging(context.spec, op.ema) if op.schedule_free else ()
    policy = "copy" if averaging and policy == "average" else policy  # there is no decay for buffers
    blend = Blend(
        id=name,
        op=name,
        label=f"ema {name}",
        place=context.place(name),
        source=op.ema,
        target=target,
        decay=_find_number(name, op, context),
        averaging=averaging,
        half_life="" if op.halving is None else str(op.halving),
        progress=_find_progress(name, op, context) if op.is_counted else None,
        buffers=policy,
        int_buffers=op.int_buffers or ("ignore" if policy == "ignore" else "copy"),
        is_bare=not context.models[op.ema].buffers,
        match=op.match,
        exclude=op.exclude,
        dtype=op.dtype or "",
        rounding=op.rounding or "nearest",
    )
    taken = _follow(blend, context, buffers=context.models[op.ema].buffers and blend.moves_buffers)
    if averaging:
        kept = (Read(cell=optimizer_cell(optimizer)) for optimizer, _ in averaging)
        taken = replace(taken, reads=(*taken.reads, *kept))
    if op.use.write_back is None:
        return (taken,)
    # The model takes the weights of its average, in some of the steps in which that is taken.
    back = Assign(
        id=back_of(name),
        op=name,
        label=f"write back {name}",
        place=context.place(name),
        gate=back_of(name),
        source=target,
        target=op.ema,
        moves_buffers=False,
    )
    return _follow(back, context, buffers=False), taken


def _find_number(name: str, op: EmaOp, context: LoweringContext) -> float | Scheduled:
    """Return what is kept: a number, or one that changes with the steps or with the writes of the source."""
    if isinstance(op.tau, ScheduleSpec):
        tau = context.scheduled[name, "tau"]
        return replace(tau, complement=not op.is_counted)
    if isinstance(op.decay, ScheduleSpec):
        return context.scheduled[name, "decay"]
    if op.halving is not None and op.halving.unit != "updates":  # it cannot be counted
        return Scheduled(op=name, option="half_life", schedule=UNKNOWN, complement=True)
    if op.formula is not None:
        is_known = not isinstance(op.formula.over, Duration) or op.formula.over.unit == "updates"
        fields = op.formula.numbers if is_known else UNKNOWN.fields
        curve = ScheduleDecl(kind=op.formula.kind, fields=fields, clock="writes") if is_known else UNKNOWN
        return Scheduled(op=name, option="decay", schedule=curve)
    if not op.is_counted:
        return find_decay(context.spec, op)
    # The number of one write: what was passed over is compounded where it is counted.
    curve = ScheduleDecl(kind="constant", fields={"value": find_single(op)}, clock="writes")
    return Scheduled(op=name, option="decay", schedule=curve)


def _find_progress(name: str, op: EmaOp, context: LoweringContext) -> Progress:
    """Return what an average counts.

    Its first time comes after as many writes as there are between two, but with a start at the first write from then
    on. A uniform average counts what was averaged.
    """
    is_uniform = op.formula is not None and op.formula.kind == "uniform"
    every = 1 if is_uniform else find_interval(context.spec, op) or 1
    is_dated = op.copies_before and op.start is not None and op.start.unit == "steps"
    return Progress(
        first=every if op.start is None else 1,
        every=every,
        since=int(op.start.count) if is_dated and op.start is not None else 1,
        compounds=op.correction == "compound" and every > 1,
        begin=op.beginning,
        taken=isinstance(op.tau, ScheduleSpec),
        iterations=find_repeated(context.spec).get(name, ()) if op.within else (),
    )


def lower_copy(name: str, op: CopyOp, context: LoweringContext) -> tuple[Instruction, ...]:
    """Return the one node of a hard target update."""
    copy = Assign(id=name, op=name, label=f"copy {name}", place=context.place(name), source=op.copy_, target=op.into)
    return (_follow(copy, context, buffers=True),)


def find_decay(spec: GraphSpec, op: EmaOp) -> float:
    """Return the weight of the old average per firing: ``decay``, ``1 - tau``, or 2^(-k/H) for a half-life H.

    ``interval_correction`` compounds over the k writes between two firings: by default for half_life, not for the
    others, as in every library that has both options.
    """
    single = find_single(op)
    return single ** (find_interval(spec, op) or 1) if op.correction == "compound" else single


def find_single(op: EmaOp) -> float:
    """Return the weight of the old average per write, where that does not change."""
    if op.halving is not None:
        return 2.0 ** (-1.0 / op.halving.count)
    decay = op.decay.decay if isinstance(op.decay, DecaySpec) else op.decay
    if isinstance(decay, int | float):
        return decay
    return 1.0 - op.tau if isinstance(op.tau, int | float) else 0.0


def find_interval(spec: GraphSpec, op: EmaOp) -> int | None:
    """Return how many writes of its source lie between two firings of an average; None where that is not constant.

    `every: 4` counts such writes itself. `every: step_pi` fires with that update, between whose steps a source with
    other updates is written in each step. If either update can be held by gradients that are not finite, the number of
    writes is not known.
    """
    if not isinstance(op.every, str):
        return op.every if isinstance(op.every, int) else 1
    named = spec.ops[op.every]
    writing = [name for name in find_model_writers(spec, op.ema) if isinstance(spec.ops[name], UpdateOp)]
    if op.every in writing:
        return 1 if len(writing) == 1 else None
    if not find_skippable_updates(spec).isdisjoint((*writing, op.every)):
        return None
    writers = [each for name in writing if isinstance(each := spec.ops[name], UpdateOp)]
    steady = len(writers) == 1 and writers[0].window == 1 and writers[0].every in (None, 1)
    if not steady or not _is_steady(writers[0]) or not _is_steady(named) or isinstance(named.every, str):
        return None
    return (named.every if isinstance(named.every, int) else 1) * (named.window if isinstance(named, UpdateOp) else 1)


def _is_steady(op: Op) -> bool:
    """Return whether an op keeps its pace from the first step to the last; windows that epochs end do not."""
    is_cut = isinstance(op, UpdateOp) and op.window > 1 and op.at_epoch_end != "carry"
    return op.start is None and op.until is None and not is_cut


def buffer_policy(op: EmaOp, source: ModelFacts, target: ModelFacts) -> Literal["copy", "average", "ignore"]:
    """Return what happens to buffers: what the op says, else the target, else the source; without buffers: ignore."""
    if not source.buffers:
        return "ignore"
    return op.buffer_policy or target.policy or source.policy or "ignore"


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
