"""Windows: what an update that accumulates has of earlier steps, and the gradient of all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CallOp, GradientOp, LossOp, TransformOp, UpdateOp
from tests.oracle.counts import find_pieces
from tests.oracle.rows import Rows

if TYPE_CHECKING:
    from tests.oracle.step import StepValues
    from tests.oracle.world import Target

Gradients = Mapping["Target", np.ndarray]
Window = tuple[Gradients, float, bool, int, int]
"""The sum of all steps so far, each with its weight; the sum of the weights; whether some step is missing.

Then the rows of the steps in which what is gathered was there, and those of all steps.
"""
Held = Mapping[tuple[str, str], Window]
"""By update and gradient set."""
EMPTY: Window = ({}, 0.0, False, 0, 0)
SCALING = ("mul", "div", "neg")
"""Functions that multiply by constants where they are given one value; of a product of two the batch is the count."""
MOVING = ("sum", "mean", "reshape", "expand", "permute", "slice", "split", "subscript", "stop")
"""Functions of one value of which the result for a sum is the sum of the results."""
OWN = ""
"""The set that an update takes of its own loss."""


class Windows:
    """The windows as a step finds them, and as it leaves them."""

    def __init__(self, spec: GraphSpec, held: Held, gathering: Collection[str], ended: bool) -> None:
        self.spec, self.held, self.gathering, self.ended = spec, dict(held), gathering, ended
        self.owner = {value: name for name, op in spec.ops.items() for value in op.defines(name)}

    def whole(self, step: StepValues, name: str, op: UpdateOp, way: list[Gradients]) -> Gradients:
        """Return the gradient of a whole window, this step being its last, after the transforms on the way.

        What it is made of is added to ``way``.
        """
        found = {
            leaf: _add([self._combine(step, name, op, leaf, term) for term in self._terms(op, leaf)])
            for leaf in self.leaves(op)
        }
        way += found.values()
        if op.loss is not None:
            return found[OWN]
        before, step.sets = step.sets, dict(found)
        whole = {key: g for value in op.gradients for key, g in step.gradients(value).items()}
        way += [step.gradients(value) for value in step.find_made(op.gradients)]
        step.sets = before
        return whole

    def leaves(self, op: UpdateOp) -> list[str]:
        """Return the gradient sets that an update gathers: transforms come behind the window."""
        return (
            [OWN] if op.loss is not None else [*dict.fromkeys(leaf for v in op.gradients for leaf in self._leaves(v))]
        )

    def _leaves(self, value: str) -> Iterator[str]:
        op = self.spec.ops.get(self.owner.get(value, ""))
        if isinstance(op, TransformOp | CallOp):
            for _, name in op.inputs.references() if isinstance(op, CallOp) else enumerate(op.inputs):
                yield from self._leaves(name)
        elif isinstance(op, GradientOp):
            yield value

    def _terms(self, op: UpdateOp, leaf: str) -> list[str | None]:
        """Return the terms that a set is gathered by; just all of it, where every one counts by rows."""
        pieces = find_pieces(self.spec, self._loss(op, leaf)) if op.accumulate.reduce == "mean" else []
        return pieces or [None]

    def _loss(self, op: UpdateOp, leaf: str) -> str:
        return op.loss if leaf == OWN else self.spec.ops[self.owner[leaf]].gradient

    def is_filled(self, step: StepValues, name: str, op: UpdateOp) -> bool:
        """Return whether a window that ends has something to give: some step, or, if it is asked for, every step."""
        leaf = self.leaves(op)[0]
        _, _, is_spoiled, _, rows = self._add(step, name, op, leaf, self._terms(op, leaf)[0])
        return not is_spoiled if op.accumulate.on_nonfinite == "window" else rows > 0

    def taken(self, step: StepValues, op: UpdateOp, leaf: str) -> list[Gradients]:
        """Return the gradients of a step that windows are given in the place of a set."""
        return [self._take(step, op, leaf, term) for term in self._terms(op, leaf)]

    def _take(self, step: StepValues, op: UpdateOp, leaf: str, term: str | None) -> Gradients:
        if term is None:
            return step.own_gradients(op) if leaf == OWN else step.gradients(leaf)
        models = op.update if leaf == OWN else step.models_of(leaf)
        owner = None if leaf == OWN else self.spec.ops[self.owner[leaf]]
        missing = op.missing if owner is None else owner.unconnected
        seed = owner.grad_outputs[0] if owner is not None and owner.grad_outputs else None
        return step.term_gradients(self._loss(op, leaf), term, models, missing, seed)

    def _add(self, step: StepValues, name: str, op: UpdateOp, leaf: str, term: str | None) -> Window:
        """Return a window with this step, if the update takes part in it; without what is dropped, and its rows."""
        sums, weights, is_spoiled, present, rows = held = self.held.get((name, _key(leaf, term)), EMPTY)
        if name not in self.gathering:
            return held
        if not step.verdicts.commits(name):
            return sums, weights, True, present, rows
        now = self._count_rows(step, self._loss(op, leaf))
        if term and step.base.is_absent(term):
            return sums, weights, is_spoiled, present, rows + now
        times, weight = self._weigh(step, op, leaf, term)
        added = {key: sums.get(key, 0.0) + times * g for key, g in self._take(step, op, leaf, term).items()}
        return {**sums, **added}, weights + weight, is_spoiled, present + now, rows + now

    def _weigh(self, step: StepValues, op: UpdateOp, leaf: str, term: str | None) -> tuple[float, float]:
        """Return how often the gradients of a step are added, and for how much they stand."""
        if term:
            return 1, step.count(term)
        rows = self._count_rows(step, self._loss(op, leaf)) if self._reduce(step, op, leaf) == "mean" else 1
        return rows, rows

    def _count_rows(self, step: StepValues, loss: str) -> int:
        """Return the rows that a loss is of: those of the batch, or of the part of it that an iteration is given."""
        pending = [loss]
        while pending:
            name = pending.pop()
            op = self.spec.ops.get(self.owner.get(name, ""))
            if isinstance(op, CallOp) and op.call.name("torch") == "either":
                given = [self.spec.ops.get(self.owner.get(one.name, "")) for one in op.operands()]
                is_split = all(isinstance(one, CallOp) and one.call.name("torch") == "split_rows" for one in given)
                if is_split and not all(step.base.is_absent(one.name) for one in op.operands()):
                    return step.base.value(name).shape[1]  # behind the copies of a gradient
            pending += [one.name for one in op.operands()] if op is not None else []
        return len(next(iter(step.batch.values())))

    def _combine(self, step: StepValues, name: str, op: UpdateOp, leaf: str, term: str | None) -> Gradients:
        sums, weights, _, present, rows = self._add(step, name, op, leaf, term)
        if term and not weights:
            return sums
        if term:  # the mean over what it counts stands for the rows of the steps in which it was there
            return {key: total / weights * present / rows for key, total in sums.items()}
        return sums if self._reduce(step, op, leaf) == "sum" else {key: total / weights for key, total in sums.items()}

    def _reduce(self, step: StepValues, op: UpdateOp, leaf: str) -> str:
        """Return how steps are combined: sums are added up, whatever is asked for; so are products with rows."""
        losses = (
            [op.loss] if op.loss is not None else [self.spec.ops[self.owner[leaf]].gradient for leaf in self.leaves(op)]
        )
        wanted = op.accumulate.reduce
        is_total = leaf != OWN and self._is_of_rows(Rows(step), self.spec.ops[self.owner[leaf]])
        rows = Rows(step)
        terms = [term for loss in losses for term in self._find_terms(rows, loss)]
        is_total |= any(is_sum and is_batched for is_sum, is_batched in terms) or all(is_sum for is_sum, _ in terms)
        return "sum" if wanted == "mean" and is_total else wanted

    def _is_of_rows(self, rows: Rows, op: GradientOp) -> bool:
        """Return whether what is differentiated has rows, each with a number that multiplies it."""
        return bool(op.grad_outputs) and rows.has(op.gradient)

    def _find_terms(self, rows: Rows, value: str) -> list[tuple[bool, bool]]:
        """Return of every term of a loss whether it is a sum, and whether it depends on the batch.

        One that does not is the same in every step, as a mean is. A sum is a loss that says so, and what adds up rows.
        """
        op = self.spec.ops.get(self.owner.get(value, ""))
        if isinstance(op, CallOp):
            names = [name for _, name in op.inputs.references()]
            call, batched = op.call.name("torch"), [name for name in names if self._is_batched(name)]
            if call in ("sum", "matmul") and any(map(rows.has, names)) and not rows.has(value):
                return [(True, True)]
            if call in ("add", "sub") or (call in (*SCALING, *MOVING) and len(batched) == 1):
                return [term for name in names for term in self._find_terms(rows, name)]
        return [(isinstance(op, LossOp) and op.reduction == "sum", self._is_batched(value))]

    def _is_batched(self, value: str) -> bool:
        """Return whether a value depends on the batch."""
        op = self.spec.ops.get(self.owner.get(value, ""))
        if op is None:
            return value in self.spec.inputs
        return "batch" in (getattr(op, "shape", None) or ()) or any(self._is_batched(one.name) for one in op.operands())

    def final(self, step: StepValues, firing: list[str]) -> Held:
        """Return the windows after a step: those that are full begin anew, and those that an epoch ends.

        One whose update goes by an update that is held is as it was: its update takes no part in the step.
        """
        found = dict(self.held)
        idle = {name for name in self.gathering if step.verdicts.is_paced_by_held(name)}
        for name in set(self.gathering) - idle:
            for leaf in self.leaves(self.spec.ops[name]):
                for term in self._terms(self.spec.ops[name], leaf):
                    found[name, _key(leaf, term)] = self._add(step, name, self.spec.ops[name], leaf, term)
        begun = set(firing) - idle
        return {key: held for key, held in found.items() if key[0] not in begun and not self._is_dropped(key[0])}

    def _is_dropped(self, name: str) -> bool:
        """Return whether an update forgets its window after this step."""
        return self.ended and self.spec.ops[name].accumulate.on_epoch_end == "drop"


def _key(leaf: str, term: str | None) -> str:
    return leaf if term is None else f"{leaf}|{term}"


def _add(sets: list[Gradients]) -> Gradients:
    """Return the sum of gradient sets."""
    return {key: sum(each[key] for each in sets if key in each) for one in sets for key in one}
