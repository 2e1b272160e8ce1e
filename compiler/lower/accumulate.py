"""Lowering of windows: what stands between the gradients of an update and their transforms where it accumulates.

In every step that the update takes part in, each of its gradient sets is added to a window; when the window is full,
the transforms and the write run once, on what was gathered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from compiler.batch.losses import are_added
from compiler.ir.cell import Cell
from compiler.ir.instructions import Collect, Drop, Gather, Guard, Instruction, Overflow, Restore, Transform
from compiler.ir.program import drop_of, window_of
from compiler.ir.value import Operand, Read, Use, Write
from compiler.lower.context import Lowering
from compiler.lower.evaluate import lower_call
from compiler.lower.terms import (
    Missing,
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
    spare,
)
from compiler.lower.transform import lower_transform, transform_node
from compiler.lower.verdict import FILLED, bind, find_overflow, guard_of, verdict_of
from compiler.passes.presence import find_open
from graphspec.declare.ops import CallOp, GradientOp, TransformOp, UpdateOp

Reduce = Literal["mean", "sum", "steps"]


class Windows:
    """The nodes that gather the gradients of one update, and the sets that they give when the window is full."""

    def __init__(self, name: str, op: UpdateOp, context: Lowering) -> None:
        self.name, self.op, self.context = name, op, context
        self.nodes: list[Instruction] = []
        self.taken: list[Instruction] = []
        """The gradients that it takes itself, of terms that count differently."""
        self.shared: dict[str, Mapping[str, bool]] = {}
        """The sets of such terms, and whether they are absent from some steps, by the one in whose place they are."""
        self.found: dict[str, str] = {}
        """The set that replaces each of the step's."""
        self.overflow: Overflow = find_overflow(op, context.spec)
        self.guard: Guard = guard_of(name, op, context, self.overflow)
        self.filled: list[str] = []
        """The verdicts whether its windows hold anything, where their sets have verdicts."""

    def gather(self, value: str) -> str:
        """Return the set of the whole window for a set of the step; transforms on the way run once per window."""
        if value != self.name and value not in self.context.sets:
            return value  # a number that sets are multiplied with: that of the step in which the window is full
        if value not in self.found:
            owner = self.context.spec.ops.get(value)
            match owner:
                case TransformOp():
                    self.found[value] = self._repeat(value, lower_transform(value, owner, self.context)[0])
                case CallOp():
                    self.found[value] = self._repeat(value, lower_call(value, owner, self.context)[0])
                case _:
                    self.found[value] = self._add_window(value)
        return self.found[value]

    def _repeat(self, value: str, node: Instruction) -> str:
        """Add a copy of a transform, applied to what was gathered, and return its set."""
        assert isinstance(node, Transform)
        inputs = tuple(self.gather(each) for each in node.inputs)
        named = dict(zip(node.inputs, inputs, strict=True))
        output = f"{self.name}.{value}"
        gaps = not find_open(self.nodes).isdisjoint(inputs)
        uses = tuple(replace(use, value=named.get(use.value, use.value)) for use in node.uses)
        self.nodes.append(replace(node, id=output, uses=uses, inputs=inputs, output=output, gaps=gaps, gate=self.name))
        return output

    def _add_window(self, value: str) -> str:
        """Add a window for a gradient set, and return what it gives when it is full."""
        own = value == self.name
        window = self.name if own else f"{self.name}.{value}"
        models = self.op.update if own else self.context.sets[value]
        gaps = self.op.missing == "skip" if own else value in self.context.gaps and self.op.missing != "error"
        shares = self._find_shares(value)
        if not is_counted(shares):
            self._add_one(window, value, models, gaps)
            return f"{window}.collected"
        return self._add_shares(window, value, shares, models)

    def _find_shares(self, value: str) -> tuple[Share, ...]:
        """Return the shares of a set's loss, where its terms are grouped by what they count."""
        owners = {made: op for name, op in self.context.spec.ops.items() for made in op.defines(name)}
        owner = owners.get(value)
        loss = self.op.loss if value == self.name else owner.gradient if isinstance(owner, GradientOp) else None
        is_gathered = loss is not None and self.name in self.context.gathering
        return lower_shares(loss, self.context) if is_gathered and loss is not None else ()

    def _add_shares(self, window: str, value: str, shares: tuple[Share, ...], models: tuple[str, ...]) -> str:
        """Add the gradient of every share with a window for each, and the sum of the windows."""
        taker = self._owner(value) or self.name
        owner = self.context.spec.ops[taker]
        is_given = isinstance(owner, GradientOp)
        wanted, seeds = (owner.unconnected, find_seeds(owner)) if is_given else (self.op.missing, ())
        missing = find_missing(shares, wanted)
        gaps = missing == "skip"
        shares = tuple(sorted(shares, key=lambda share: share.is_lazy))
        names = [f"{window}.{share.term}" if share.term else window for share in shares]
        for share, name in zip(shares, names, strict=True):
            self.taken += self._take(share, taker, models, f"{name}.sum", missing, seeds)
        sums = {f"{name}.sum": share for share, name in zip(shares, names, strict=True)}
        self.shared[value] = {each: share.is_lazy for each, share in sums.items()}
        added, is_loose = [*sums], shares[0].is_lazy
        closed = ""
        if gaps and (wanted == "error" or (wanted == "zero" and not is_loose)):
            # each of the shares may lack some, all of them together may not
            self.taken.append(close_shares(sums, taker, wanted, models, self.context))
            closed = self.taken[-1].defines[0]
            added[0] = added[0] if is_loose else closed
        for name, each, share in zip(names, added, shares, strict=True):
            self._add_one(name, each, models, gaps, share)
        if is_loose:
            self._need(names[0], shares[0].whole, closed)
        outputs = [f"{name}.collected" for name in names]
        if len(outputs) == 1:
            return outputs[0]
        total = f"{window}.collected"
        self.nodes.append(add_shares(total, self.name, outputs, models, self.context, gaps=gaps))
        if gaps and wanted != "skip":
            self.nodes.append(self._settle(total, models))
        return self.nodes[-1].defines[0]

    def _need(self, window: str, loss: str, closed: str) -> None:
        """Let only steps that have a loss add to a window, and make the window read ``closed``, if there is one."""
        at = next(at for at, node in enumerate(self.nodes) if node.id == window_of(window))
        needed = [Use(value=loss, differentiable=False)]
        needed += [Use(value=closed, differentiable=False, optional=True)] if closed else []
        self.nodes[at] = replace(self.nodes[at], uses=(*self.nodes[at].uses, *needed))

    def _settle(self, value: str, models: tuple[str, ...]) -> Instruction:
        """Return what makes plain gradients of a set that has all of them but of what was frozen in every step."""
        return transform_node(
            f"{value}.all",
            op=self.name,
            function="gathered",
            inputs=(value,),
            models=models,
            context=self.context,
            gaps=True,
        )

    def _take(
        self,
        share: Share,
        op: str,
        models: tuple[str, ...],
        output: str,
        missing: Missing,
        seeds: tuple[Operand, ...],
    ) -> tuple[Instruction, ...]:
        """Return the gradient of a share; what counts by rows over steps may not do so over micro-batches."""
        parts = lower_parts(share.whole, self.context, share.terms, "rows.") if share.terms and not share.count else ()
        if self.context.parted and is_counted(parts):
            return lower_counted(op, parts, models, output, missing, self.context, seeds)
        return lower_gradient_of(
            share, op=op, models=models, output=output, missing=missing, context=self.context, seeds=seeds
        )

    def _owner(self, value: str) -> str:
        """Return the op that defines a gradient set."""
        return next((name for name, op in self.context.spec.ops.items() if value in op.defines(name)), "")

    def _add_one(
        self, window: str, value: str, models: tuple[str, ...], gaps: bool, share: Share | None = None
    ) -> None:
        """Add a window for a gradient set; ``share``: what the set is the gradient of, where that is not all."""
        gather = self._gather(window, value, models, gaps, share or Share(loss=value))
        lazy = (value, share.count) if share and share.is_lazy else ()
        self.nodes.extend((spare(gather, lazy), self._collect(window, models, gaps)))
        if isinstance(self.op.every, str) and self.guard != "none":
            self.nodes.append(self._restore(window))
        if self.op.at_epoch_end == "drop":
            self.nodes.append(self._drop(window))

    def _gather(self, window: str, value: str, models: tuple[str, ...], gaps: bool, share: Share) -> Gather:
        """Return what adds a gradient set of the step to a window."""
        cell = _cell_of(window)
        counts = (Use(value=share.count, differentiable=False),) if share.count else ()
        gather = Gather(
            id=window_of(window),
            op=self.name,
            label=f"gather {window}",
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
            gaps=gaps,
        )
        return bind(gather, verdict_of(self.name), self.overflow) if self.name in self.context.judged else gather

    def _collect(self, window: str, models: tuple[str, ...], gaps: bool) -> Collect:
        """Return what takes the gradient set of a full window."""
        cell, output = _cell_of(window), f"{window}.collected"
        filled = "" if self.guard == "none" else f"{window}{FILLED}"
        self.filled += [filled] if filled else []
        return Collect(
            id=output,
            op=self.name,
            label=f"collect {window}",
            place=self.context.place(self.name),
            uses=(Use(value=window_of(window), differentiable=False, optional=self.op.at_epoch_end == "flush"),),
            reads=(Read(cell=cell, streaming=True),),
            writes=(Write(cell=cell),),
            differentiable=False,
            window=window,
            models=models,
            output=output,
            filled=filled,
            gaps=gaps,
        )

    def _restore(self, window: str) -> Restore:
        """Return what restores a window at the end of a step in which the update that paces it is skipped."""
        cell, name = _cell_of(window), f"{window}.restore"
        return Restore(
            id=name,
            op=self.name,
            label=f"restore {window}",
            place=self.context.place(self.name),
            uses=_use_if_there(window_of(window), f"{window}.collected"),
            token=name,
            reads=(Read(cell=cell, streaming=True),),
            writes=(Write(cell=cell),),
            differentiable=False,
            gate=window_of(self.name),
            defer="end",
            window=window,
        )

    def _drop(self, window: str) -> Drop:
        """Return what discards a window at the end of an epoch, after all else the step does with it."""
        cell = _cell_of(window)
        return Drop(
            id=f"{window}.drop",
            op=self.name,
            label=f"drop {window}",
            place=self.context.place(self.name),
            uses=_use_if_there(window_of(window), f"{window}.collected", f"{window}.restore"),
            reads=(Read(cell=cell, streaming=True),),
            writes=(Write(cell=cell),),
            differentiable=False,
            gate=drop_of(self.name),
            window=window,
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
    if taken in context.totals or are_added(context.gathering[windows.name], context.sums, context.whole):
        return "sum"
    has_rows = any(entry.shape is None or entry.shape for entry in context.spec.inputs.values())
    return "mean" if has_rows else "steps"
