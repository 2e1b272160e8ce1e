"""Lowering of windows: what stands between the gradients of an update and their transforms where it accumulates.

In every step that the update takes part in, each of its gradient sets is added to a window; when the window is full,
the transforms and the write run once, on what was gathered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from compiler.cells import drop_of, window_of
from compiler.gaps import find_open
from compiler.gathering import are_sums
from compiler.instructions import Collect, Drop, Gather, Guard, Transform
from compiler.ir import Node, Overflow, Read, Use, Write
from compiler.ops.context import Lowering
from compiler.ops.evaluate import lower_call
from compiler.ops.shares import (
    Share,
    add_shares,
    close_shares,
    find_missing,
    is_counted,
    lower_gradient_of,
    lower_shares,
)
from compiler.ops.transform import lower_transform
from compiler.ops.verdict import bind, find_overflow, guard_of, verdict_of
from graphspec.ops import CallOp, GradientOp, TransformOp, UpdateOp

Reduce = Literal["mean", "sum", "steps"]


class Windows:
    """The nodes that gather the gradients of one update, and the sets that they give when the window is full."""

    def __init__(self, name: str, op: UpdateOp, context: Lowering) -> None:
        self.name, self.op, self.context = name, op, context
        self.nodes: list[Node] = []
        self.taken: list[Node] = []
        """The gradients of terms that count differently, which it takes itself."""
        self.shared: dict[str, tuple[str, ...]] = {}
        """The sets of such terms, by the one in whose place they are gathered."""
        self.found: dict[str, str] = {}
        """The set that stands for each of the step's."""
        self.overflow: Overflow = find_overflow(op, context.spec)
        self.guard: Guard = guard_of(name, op, context, self.overflow)
        self.filled: list[str] = []
        """The verdicts whether its windows have something to give, where their sets are judged."""

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

    def _repeat(self, value: str, node: Node) -> str:
        """Add a transform again, of what was gathered, and return its set."""
        assert isinstance(node.instruction, Transform)
        inputs = tuple(self.gather(each) for each in node.instruction.inputs)
        named = dict(zip(node.instruction.inputs, inputs, strict=True))
        output = f"{self.name}.{value}"
        gaps = not find_open(self.nodes).isdisjoint(inputs)
        instruction = replace(node.instruction, inputs=inputs, output=output, gaps=gaps)
        uses = tuple(replace(use, value=named.get(use.value, use.value)) for use in node.uses)
        self.nodes.append(
            replace(node, id=output, instruction=instruction, uses=uses, defines=(output,), gate=self.name)
        )
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
        """Return the shares of the loss behind a set, where its terms are gathered by what they count."""
        owners = {made: op for name, op in self.context.spec.ops.items() for made in op.defines(name)}
        owner = owners.get(value)
        loss = self.op.loss if value == self.name else owner.gradient if isinstance(owner, GradientOp) else None
        is_gathered = loss is not None and self.name in self.context.gathering
        return lower_shares(loss, self.context) if is_gathered and loss is not None else ()

    def _add_shares(self, window: str, value: str, shares: tuple[Share, ...], models: tuple[str, ...]) -> str:
        """Add the gradient of every share, and a window for each; what these give is added up."""
        owner = self.context.spec.ops.get(self._owner(value))
        wanted = owner.unconnected if isinstance(owner, GradientOp) else self.op.missing
        missing = find_missing(shares, wanted)
        gaps = missing == "skip"
        names = [f"{window}.{share.term}" if share.term else window for share in shares]
        for share, name in zip(shares, names, strict=True):
            self.taken += lower_gradient_of(
                share, op=self.name, models=models, output=f"{name}.sum", missing=missing, context=self.context
            )
            self._add_one(name, f"{name}.sum", models, gaps, share.count)
        self.shared[value] = tuple(f"{name}.sum" for name in names)
        outputs = [f"{name}.collected" for name in names]
        if len(outputs) == 1:
            return outputs[0]
        total = f"{window}.collected"
        self.nodes.append(add_shares(total, self.name, outputs, models, self.context, gaps=gaps))
        if wanted == "error":  # each of the shares may lack some, all of them together may not
            self.nodes += close_shares(total, self.name, models, self.context)
        return self.nodes[-1].defines[0]

    def _owner(self, value: str) -> str:
        """Return the op that defines a gradient set."""
        return next((name for name, op in self.context.spec.ops.items() if value in op.defines(name)), "")

    def _add_one(self, window: str, value: str, models: tuple[str, ...], gaps: bool, count: str = "") -> None:
        """Add a window for a gradient set; ``count``: the value that counts what the set is the sum over."""
        self.nodes.extend((self._gather(window, value, models, gaps, count), self._collect(window, models, gaps)))
        if self.op.at_epoch_end == "drop":
            self.nodes.append(self._drop(window))

    def _gather(self, window: str, value: str, models: tuple[str, ...], gaps: bool, count: str) -> Node:
        cell, place = window_of(window), self.context.place(self.name)
        instruction = Gather(
            op=self.name,
            place=place,
            window=window,
            models=models,
            gradients=value,
            reduce="count" if count else find_reduce(self),
            count=count,
            guard=self.guard,
            gaps=gaps,
        )
        counts = (Use(value=count, differentiable=False),) if count else ()
        node = Node(
            id=cell,
            op=self.name,
            instruction=instruction,
            label=f"gather {window}",
            uses=(Use(value=value, differentiable=False), *counts),
            defines=(cell,),
            reads=(Read(cell=cell, streaming=True),),
            writes=(Write(cell=cell),),
            differentiable=False,
            eager=True,
            place=place,
            gate=window_of(self.name),
        )
        return bind(node, verdict_of(self.name), self.overflow) if self.name in self.context.judged else node

    def _collect(self, window: str, models: tuple[str, ...], gaps: bool) -> Node:
        cell, place, output = window_of(window), self.context.place(self.name), f"{window}.collected"
        filled = "" if self.guard == "none" else f"{window}.filled"
        self.filled += [filled] if filled else []
        collect = Collect(
            op=self.name, place=place, window=window, models=models, output=output, filled=filled, gaps=gaps
        )
        return Node(
            id=output,
            op=self.name,
            instruction=collect,
            label=f"collect {window}",
            uses=(Use(value=cell, differentiable=False, optional=self.op.at_epoch_end == "flush"),),
            defines=(output, filled) if filled else (output,),
            reads=(Read(cell=cell, streaming=True),),
            writes=(Write(cell=cell),),
            differentiable=False,
            place=place,
        )

    def _drop(self, window: str) -> Node:
        """Return what forgets a window at the end of an epoch, behind whatever else the step does with it."""
        cell, place = window_of(window), self.context.place(self.name)
        return Node(
            id=f"{window}.dropped",
            op=self.name,
            instruction=Drop(op=self.name, place=place, window=window),
            label=f"drop {window}",
            uses=tuple(
                Use(value=value, differentiable=False, optional=True) for value in (cell, f"{window}.collected")
            ),
            reads=(Read(cell=cell, streaming=True),),
            writes=(Write(cell=cell),),
            differentiable=False,
            eager=True,
            place=place,
            gate=drop_of(self.name),
        )


def find_reduce(windows: Windows) -> Reduce:
    """Return how the gradients of several steps are combined: as the update says; losses that are sums are added up."""
    op, context = windows.op, windows.context
    reduce: Reduce = "mean" if op.accumulate is None else op.accumulate.reduce
    if reduce != "mean":
        return reduce
    if True in are_sums(context.gathering[windows.name], context.spec):
        return "sum"
    has_rows = any(entry.shape is None or entry.shape for entry in context.spec.inputs.values())
    return "mean" if has_rows else "steps"
