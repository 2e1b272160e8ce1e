"""Micro-batches by the letter: which ops run for each of them, and what each adds to a value of the whole batch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from graphspec.declare.ops import CallOp, ForwardOp, GradientOp, LossOp, RandomOp, TransformOp, UpdateOp
from tests.oracle.counts import is_own
from tests.oracle.functions import CALLS, nothing
from tests.oracle.meaning import Meaning, Past, close
from tests.oracle.numbers import Array
from tests.oracle.paths import Paths

if TYPE_CHECKING:
    from tests.oracle.world import World

LENIENT = ("add", "stack", "either")
"""Functions of the operands that are there; others run with all of theirs."""
LINEAR = ("neg", "mean", "sum", "reshape", "expand", "permute", "slice", "subscript", "stop", "either")
"""Calls of one value of which the result for a sum is the sum of the results."""


class Parts:
    """The micro-batches of a mode; where there is one only, no op is split."""

    def __init__(self, meaning: Meaning) -> None:
        self.meaning = meaning
        self.count = meaning.spec.micro_batches if meaning.mode == "train" else 1

    @cached_property
    def split(self) -> frozenset[str]:
        """Return the ops that run for every micro-batch.

        What no gradient runs through, and only what runs once uses, runs once as well.
        """
        if self.count == 1:
            return frozenset()
        ops, paths = self.meaning.ops, Paths(self.meaning)
        gradients = [name for name, op in ops.items() if isinstance(op, GradientOp)]
        gradients += [f"{name}.gradient" for name, op in ops.items() if isinstance(op, UpdateOp) and op.loss]
        recorded = frozenset[str]().union(*(paths.path(name) for name in gradients))
        found = {name for name in ops if self._runs_often(name)}
        users = {name: {other for other in ops if name in self.meaning.inputs[other]} for name in ops}
        taken = {name for name in ops if isinstance(ops[name], UpdateOp) and self.is_batched(ops[name].loss)}
        while True:
            late = {
                name
                for name in found - recorded
                if isinstance(ops[name], CallOp | LossOp) and not users[name] & (found | taken)
            }
            if not late:
                return frozenset(found)
            found -= late

    @cached_property
    def added(self) -> frozenset[str]:
        """Return the gradients that add up what each part has by itself, as the updates that take them say."""
        found = {name: self.adds(None) for name, op in self.meaning.ops.items() if isinstance(op, GradientOp)}
        for op in (op for op in self.meaning.ops.values() if isinstance(op, UpdateOp)):
            pending = [*(op.gradients or ())]
            while pending:
                owner = self.meaning.owner.get(pending.pop(), "")
                maker = self.meaning.ops.get(owner)
                if isinstance(maker, GradientOp):
                    found[owner] = self.adds(op)
                elif isinstance(maker, TransformOp | CallOp):
                    pending += [each.name for each in maker.operands()]
        return frozenset(name for name, is_added in found.items() if is_added)

    def adds(self, update: UpdateOp | None) -> bool:
        """Return whether an update adds up what each part has by itself; ``None``: what no update takes."""
        parallel = self.meaning.spec.parallel
        usual = "mean" if parallel is None else parallel.reduce
        return (usual if update is None or update.reduce is None else update.reduce) == "sum"

    def _runs_often(self, name: str) -> bool:
        """Return whether the values of an op depend on the batch, other than by being drawn."""
        op = self.meaning.ops[name]
        if isinstance(op, GradientOp):
            return self.is_batched(op.gradient)
        if isinstance(op, ForwardOp | CallOp | LossOp) and not self._is_of_sets(name):
            return any(self.is_batched(value) for _, value in op.inputs.references())
        return False

    def _is_of_sets(self, name: str) -> bool:
        """Return whether an op maps gradient sets: these are there once."""
        return bool(Paths(self.meaning).find_set(name)) and not isinstance(self.meaning.ops[name], GradientOp)

    def is_batched(self, value: str | None) -> bool:
        """Return whether a value depends on the batch, so that every micro-batch has its own."""
        declared = self.meaning.spec.inputs.get(value or "")
        if declared is not None:
            return declared.shape is None or "batch" in declared.shape
        name = self.meaning.owner.get(value or "")
        op = self.meaning.ops.get(name or "")
        if isinstance(op, RandomOp):
            return self.is_batched(op.like) if op.like else "batch" in op.shape
        return name is not None and self._runs_often(name)

    def names(self, name: str) -> list[str]:
        """Return the runs of an op: ``fake#1``, ``fake#2``, or its name where it runs once."""
        return [f"{name}#{part}" for part in range(1, self.count + 1)] if name in self.split else [name]

    def listed(self, names: Iterable[str]) -> list[str]:
        """Return the runs of ops, those of the first micro-batch first."""
        runs = [run for name in names for run in self.names(name)]
        return sorted(runs, key=lambda run: int(run.partition("#")[2] or 0))

    @cached_property
    def past(self) -> Past:
        """Return everything that happens before every run: what is declared holds for all runs of an op."""
        pairs: set[tuple[str, str]] = set()
        for name in self.meaning.ops:
            for other in self.meaning.inputs[name]:
                both = name in self.split and other in self.split
                found = self._same(other, name) if both else self._all(other, name)
                is_shape = isinstance(self.meaning.ops[name], RandomOp)  # which the first micro-batch gives
                pairs |= {pair for pair in found if pair[0] == self.names(other)[0]} if is_shape else found
        for before, after in self.meaning.declared:
            pairs |= self._all(before, after)
        return close([run for name in self.meaning.ops for run in self.names(name)], pairs)

    def _same(self, before: str, after: str) -> set[tuple[str, str]]:
        return set(zip(self.names(before), self.names(after), strict=True))

    def _all(self, before: str, after: str) -> set[tuple[str, str]]:
        return {(one, other) for one in self.names(before) for other in self.names(after)}

    def cut(self, array: Array, part: int) -> Array:
        """Return the rows of a micro-batch; the batch is the second axis, behind the copies."""
        return np.array_split(array, self.count, axis=1)[part - 1]


def share(world: World, name: str) -> Array:
    """Return what a micro-batch adds to a value of the whole batch: means count by their rows."""
    parts, rows = world.step.parts, _count_rows(world)
    owner = world.step.meaning.owner.get(name)
    op = world.step.meaning.ops.get(owner or "")
    found = world.value(name)
    if not parts.is_batched(name):
        return found * rows
    if is_own(world.step.meaning.spec, name):
        return _share_count(world, name, op)
    if has_rows(world, name) or isinstance(op, GradientOp) or (isinstance(op, LossOp) and op.reduction == "sum"):
        return found
    if isinstance(op, CallOp):
        return _share_call(world, owner or "", op, found * rows)
    return found * rows


def _share_call(world: World, name: str, op: CallOp, weighed: Array) -> Array:
    """Return the share of a call that makes one number of the rows, or that is linear in such numbers."""
    called = op.call.name("torch")
    operands = [one for _, one in op.inputs.items() if not (called in LENIENT and world.is_absent(one))]
    if not op.call.is_builtin:
        return weighed
    batched = [one for one in operands if isinstance(one, str) and world.step.parts.is_batched(one)]
    if any(has_rows(world, one) for one in batched):
        return world.value(name) if called in ("sum", "matmul") else weighed
    if called in ("add", "sub"):
        shares = [share(world, one) if isinstance(one, str) else one * _count_rows(world) for one in operands]
        return CALLS[called](
            world.numbers, *[world.numbers.lift(np.array([s])) if np.isscalar(s) else s for s in shares]
        )
    is_linear = called in LINEAR or (called in ("mul", "div") and len(batched) == 1 and operands[0] in batched)
    if is_linear or (called == "mul" and len(batched) == 1):
        taken = [share(world, one) if one in batched else world.operand(one, name) for one in operands]
        return CALLS[called](world.numbers, *taken, **op.args)
    return weighed


def _share_count(world: World, name: str, op: LossOp) -> Array:
    """Return the sum of a loss that counts by itself, by the counts of all micro-batches."""
    count = sum(part.counted(name, op)[1] for part in world.whole.parts)
    total = world.counted(name, op)[0]
    return total / count if count else nothing(world.numbers, total)


def has_rows(world: World, name: str) -> bool:
    """Return whether a value has as many rows as its micro-batch: its sizes change with those."""
    first, last = (world.step.base.parts[at].value(name) for at in (0, -1))
    return first.shape != last.shape


def join(world: World, name: str) -> Array:
    """Return a value of the whole batch, from its micro-batches."""
    found = [share(part, name) for part in world.parts]
    if not has_rows(world, name):
        return sum(found[1:], start=found[0])
    axis = next(
        at for at, sizes in enumerate(zip(found[0].shape, found[-1].shape, strict=True)) if sizes[0] != sizes[1]
    )
    return np.concatenate(found, axis)


def _count_rows(world: World) -> float:
    """Return the share of the rows that a micro-batch has."""
    rows = next(value.shape[0] for value in world.step.batch.values())
    return len(np.array_split(np.arange(rows), world.step.parts.count)[world.part - 1]) / rows
