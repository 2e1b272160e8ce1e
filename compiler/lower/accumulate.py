"""Lowering of windows: the nodes between the gradients of an update and their transforms where it accumulates.

In every step that the update takes part in, each of its gradient sets is added to a window; when the window is full,
the transforms and the write run once, on what was gathered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from compiler.batch.losses import are_added
from compiler.ir.cell import Cell
from compiler.ir.digraph import sort
from compiler.ir.instructions import (
    Accumulate,
    Guard,
    Instruction,
    Overflow,
    ResetAccumulator,
    RestoreAccumulator,
    TakeAccumulated,
    Transform,
)
from compiler.ir.program import drop_of, window_of
from compiler.ir.value import Read, Use, Write
from compiler.lower.context import LoweringContext
from compiler.lower.evaluate import lower_call
from compiler.lower.terms import (
    Share,
    add_shares,
    close_shares,
    find_missing,
    find_seeds,
    is_counted,
    lower_counted,
    lower_gradient_of,
    lower_parts,
    lower_shares,
    make_optional,
)
from compiler.lower.transform import lower_transform, transform_node
from compiler.lower.verdict import bind, find_overflow, guard_of, verdict_of
from compiler.passes.presence import find_open
from graphspec.analysis.modes import find_makers
from graphspec.declare.ops import CallOp, GradientOp, TransformOp, UpdateOp

Reduce = Literal["mean", "sum", "steps"]


class Windows:
    """The nodes that gather the gradients of one update, and the sets that they give when the window is full."""

    def __init__(self, name: str, op: UpdateOp, context: LoweringContext) -> None:
        self.name, self.op, self.context = name, op, context
        self.nodes: list[Instruction] = []
        self.taken: list[Instruction] = []
        """The gradients that it takes itself, of terms that count differently."""
        self.shared: dict[str, Mapping[str, bool]] = {}
        """The sets of such terms, and whether they are absent from some steps, by the one in whose place they are."""
        self.open, self.looked = frozenset[str](), 0
        """The sets that may miss gradients, of as many nodes."""
        self.found: dict[str, str] = {}
        """The set that replaces each of the step's."""
        self.overflow: Overflow = find_overflow(op, context.spec)
        self.guard: Guard = guard_of(name, op, context, self.overflow)
        self.filled: list[str] = []
        """The verdicts whether its windows hold anything, where their sets have verdicts."""

    def accumulate(self, value: str) -> str:
        """Return the set of the whole window for a set of the step; transforms on the way run once per window."""
        transforms: dict[str, Transform | None] = {}
        pending = [value]
        while pending:
            each = pending.pop()
            # A number that sets are multiplied with is that of the step in which the window is full.
            is_set = each == self.name or bool(self.context.value(each).models)
            if is_set and each not in transforms and each not in self.found:
                transforms[each] = made = self._find_transform(each)
                pending.extend(() if made is None else made.inputs)
        made_of = {
            name: [] if made is None else list(filter(transforms.__contains__, made.inputs))
            for name, made in transforms.items()
        }
        for name in sort(made_of):
            made = transforms[name]
            self.found[name] = self._add_window(name) if made is None else self._repeat(name, made)
        return self.found.get(value, value)

    def _find_transform(self, value: str) -> Transform | None:
        """Return what makes a set of others; nothing for a gradient."""
        match self.context.spec.ops.get(value):
            case TransformOp() as op:
                made = lower_transform(value, op, self.context)[0]
            case CallOp() as op:
                made = lower_call(value, op, self.context)[0]
            case _:
                return None
        assert isinstance(made, Transform)
        return made

    def _repeat(self, value: str, node: Transform) -> str:
        """Add a copy of a transform, applied to what was gathered, and return its set."""
        inputs = tuple(self.found.get(each, each) for each in node.inputs)
        named = dict(zip(node.inputs, inputs, strict=True))
        output = f"{self.name}.{value}"
        self.open |= find_open(self.nodes[self.looked :])
        self.looked = len(self.nodes)
        may_miss = not self.open.isdisjoint(inputs)
        uses = tuple(replace(use, value=named.get(use.value, use.value)) for use in node.uses)
        self.nodes.append(
            replace(node, id=output, uses=uses, inputs=inputs, output=output, may_miss=may_miss, gate=self.name)
        )
        return output

    def _add_window(self, value: str) -> str:
        """Add a window for a gradient set, and return what it gives when it is full."""
        own = value == self.name
        window = self.name if own else f"{self.name}.{value}"
        models = self.op.update if own else self.context.value(value).models
        given_may_miss = self.context.value(value).may_miss and self.op.missing != "error"
        may_miss = self.op.missing == "skip" if own else given_may_miss
        owner = self.context.spec.ops.get(self._owner(value))
        given = owner.gradient if isinstance(owner, GradientOp) else None
        loss = self.op.loss if own else given
        if loss is not None and self.name in self.context.accumulating:
            shares = lower_shares(loss, self.context)
            if is_counted(shares):  # terms that count differently have a window each
                return self._add_shares(window, value, shares, models)
        self._add_one(window, value, models, may_miss)
        return f"{window}.collected"

    def _add_shares(self, window: str, value: str, shares: tuple[Share, ...], models: tuple[str, ...]) -> str:
        """Add the gradient of every share with a window for each, and the sum of the windows."""
        context, taker = self.context, self._owner(value) or self.name
        owner = self.context.spec.ops[taker]
        is_given = isinstance(owner, GradientOp)
        wanted, seeds = (owner.unconnected, find_seeds(owner)) if is_given else (self.op.missing, ())
        missing = find_missing(shares, wanted)
        may_miss = missing == "skip"
        shares = tuple(sorted(shares, key=lambda share: share.is_lazy))
        names = [f"{window}.{share.term}" if share.term else window for share in shares]
        for share, name in zip(shares, names, strict=True):
            parts: tuple[Share, ...] = ()
            if context.split and share.terms and not share.count:
                # what counts by rows over steps may not do so over micro-batches
                parts = lower_parts(share.whole, context, share.terms, "rows.")
            self.taken += (
                lower_counted(taker, parts, models, f"{name}.sum", missing, context, seeds)
                if is_counted(parts)
                else lower_gradient_of(
                    share, op=taker, models=models, output=f"{name}.sum", missing=missing, context=context, seeds=seeds
                )
            )
        sums = {f"{name}.sum": share for share, name in zip(shares, names, strict=True)}
        self.shared[value] = {each: share.is_lazy for each, share in sums.items()}
        added, is_loose = [*sums], shares[0].is_lazy
        closed = ""
        if may_miss and (wanted == "error" or (wanted == "zero" and not is_loose)):
            # each of the shares may lack some, all of them together may not
            self.taken.append(close_shares(sums, taker, wanted, models, context))
            closed = self.taken[-1].defines[0]
            added[0] = added[0] if is_loose else closed
        for name, each, share in zip(names, added, shares, strict=True):
            self._add_one(name, each, models, may_miss, share)
        if is_loose:
            # only steps that have the loss add to the first window, which reads ``closed``, if there is one
            first = window_of(names[0])
            needed = [Use(value=shares[0].whole, differentiable=False)]
            needed += [Use(value=closed, differentiable=False, optional=True)] if closed else []
            self.nodes = [
                replace(node, uses=(*node.uses, *needed)) if node.id == first else node for node in self.nodes
            ]
        outputs = [f"{name}.collected" for name in names]
        if len(outputs) == 1:
            return outputs[0]
        total = f"{window}.collected"
        self.nodes.append(add_shares(total, self.name, outputs, models, context, may_miss=may_miss))
        if not may_miss or wanted == "skip":
            return total
        # plain gradients of a set that has all of them, except for what was frozen in every step
        whole = transform_node(
            f"{total}.all",
            op=self.name,
            function="accumulated",
            inputs=(total,),
            models=models,
            context=context,
            may_miss=True,
        )
        self.nodes.append(whole)
        return whole.output

    def _owner(self, value: str) -> str:
        """Return the op that defines a gradient set."""
        return find_makers(self.context.spec).get(value, "")

    def _add_one(
        self, window: str, value: str, models: tuple[str, ...], may_miss: bool, share: Share | None = None
    ) -> None:
        """Add a window for a gradient set; ``share``: what the set is the gradient of, where that is not all."""
        accumulate = self._accumulate(window, value, models, may_miss, share or Share(loss=value))
        lazy = (value, share.count) if share and share.is_lazy else ()
        place, cell, output = self.context.place(self.name), _cell_of(window), f"{window}.collected"
        reads, writes = (Read(cell=cell, streaming=True),), (Write(cell=cell),)
        filled = "" if self.guard == "none" else f"{window}.filled"
        self.filled += [filled] if filled else []
        take = TakeAccumulated(
            id=output,
            op=self.name,
            label=f"take accumulated {window}",
            place=place,
            uses=(Use(value=window_of(window), differentiable=False, optional=self.op.at_epoch_end == "flush"),),
            reads=reads,
            writes=writes,
            differentiable=False,
            window=window,
            models=models,
            output=output,
            divisor=accumulate.divisor,
            filled=filled,
            may_miss=may_miss,
        )
        self.nodes += (make_optional(accumulate, lazy), take)
        if isinstance(self.op.every, str) and self.guard != "none":
            # at the end of a step in which the update that paces it is skipped
            restore = RestoreAccumulator(
                id=f"{window}.restore",
                op=self.name,
                label=f"restore {window}",
                place=place,
                uses=_use_if_there(window_of(window), output),
                token=f"{window}.restore",
                reads=reads,
                writes=writes,
                differentiable=False,
                gate=window_of(self.name),
                defer="end",
                window=window,
            )
            self.nodes.append(restore)
        if self.op.at_epoch_end == "drop":
            # after all else that the step does with the window
            drop = ResetAccumulator(
                id=f"{window}.drop",
                op=self.name,
                label=f"drop {window}",
                place=place,
                uses=_use_if_there(window_of(window), output, f"{window}.restore"),
                reads=reads,
                writes=writes,
                differentiable=False,
                gate=drop_of(self.name),
                window=window,
            )
            self.nodes.append(drop)

    def _accumulate(self, window: str, value: str, models: tuple[str, ...], may_miss: bool, share: Share) -> Accumulate:
        """Return what adds a gradient set of the step to a window."""
        cell = _cell_of(window)
        counts = (Use(value=share.count, differentiable=False),) if share.count else ()
        accumulate = Accumulate(
            id=window_of(window),
            op=self.name,
            label=f"accumulate {window}",
            place=self.context.place(self.name),
            uses=(Use(value=value, differentiable=False), *counts),
            token=window_of(window),
            reads=(Read(cell=cell, streaming=True),),
            writes=(Write(cell=cell),),
            differentiable=False,
            gate=window_of(self.name),
            window=window,
            models=models,
            gradients=value,
            reduce=find_reduce(self, self._owner(value)),
            count=share.count,
            counted=share.counted,
            guard=self.guard,
            may_miss=may_miss,
        )
        return (
            bind(accumulate, verdict_of(self.name), self.overflow) if self.name in self.context.checked else accumulate
        )


def _cell_of(window: str) -> Cell:
    """Return the cell of the gradients that a window has accumulated."""
    return Cell("window", (window,))


def _use_if_there(*values: str) -> tuple[Use, ...]:
    """Return uses of values, or tokens, that some steps do without."""
    return tuple(Use(value=value, differentiable=False, optional=True) for value in values)


def find_reduce(windows: Windows, taken: str) -> Reduce:
    """Return how the gradients of several steps are combined: as the update says; losses that are sums are added up.

    ``taken``: the op whose sets they are, empty for the update itself.
    """
    op, context = windows.op, windows.context
    reduce: Reduce = "mean" if op.accumulate is None else op.accumulate.reduce
    if reduce != "mean":
        return reduce
    if context.value(taken).is_total or are_added(context.accumulating[windows.name], context.values):
        return "sum"
    has_rows = any(entry.shape is None or entry.shape for entry in context.spec.inputs.values())
    return "mean" if has_rows else "steps"
