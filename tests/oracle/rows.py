"""Which values have rows: those whose sizes change with how many samples a batch has, as two batches show."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from graphspec.declare.ops import GradientOp, MetricOp, RandomOp
from tests.oracle.layers import has_buffers
from tests.oracle.numbers import Array, Reals
from tests.oracle.world import Target, World

if TYPE_CHECKING:
    from tests.oracle.step import StepValues


class Rows:
    """The values of a step that have rows, wherever calls have moved them: on the batch, and on the batch twice."""

    def __init__(self, step: StepValues) -> None:
        self.step = step

    @cached_property
    def _once(self) -> Sketch:
        return Sketch(self.step, 1)

    @cached_property
    def _twice(self) -> Sketch:
        return Sketch(self.step, 2)

    def has(self, value: str) -> bool:
        """Return whether some size of a value follows the rows of the batch."""
        return self._once.value(value).shape != self._twice.value(value).shape


class Sketch(World):
    """What a step makes of its batch, some times over, with the weights it begins with: of this the shapes are taken.

    Nothing is drawn, measured or differentiated for them; zeros of the same shapes stand for all of that.
    """

    def __init__(self, step: StepValues, times: int) -> None:
        super().__init__(step, Reals(), {})
        self.parts = []
        self.batch = {name: np.concatenate([array] * times) for name, array in step.batch.items()}

    def _find(self, name: str) -> Array:
        if name in self.batch:
            return self.batch[name][None]
        for other, value in self.evaluate(self.step.meaning.owner[name]).items():
            self.known.setdefault(other, value)
        return self.known[name]

    def operand(self, operand: str | float, reader: str = "") -> Array:
        """Return a value, a state as it is before the step, or a number."""
        return self.step.states[operand][None] if operand in self.step.states else super().operand(operand, reader)

    def is_absent(self, operand: str | float) -> bool:
        """Return False: a term has its shape, whether this step computes it or not."""
        return False

    def evaluate(self, name: str) -> Mapping[str, Array]:
        """Return the values that an op defines, zeros for what is more than a function of others."""
        op = self.step.meaning.ops[name]
        match op:
            case GradientOp():
                models, values = op.split({*self.step.start, *self.step.meaning.derived})
                names = op.defines(name)[bool(models) :]
                return {made: 0 * self.value(by) for made, by in zip(names, values, strict=True)}
            case RandomOp():
                rows = next(len(array) for array in self.batch.values())
                sizes = [rows if size == "batch" else size for size in op.shape or ()]
                shape = self.value(op.like).shape if op.like else (1, *sizes)
                return {name: np.zeros(shape, np.int64 if op.random in ("randint", "permutation") else np.float64)}
            case MetricOp():
                return {name: np.zeros(1)}
            case _:
                return super().evaluate(name)

    def _statistics(self, name: str, model: str, train: bool) -> Mapping[str, np.ndarray]:
        layers = self.step.meaning.spec.models[self._root(model)].layers or ()
        return self.step.buffers(model, 0) if has_buffers(layers) else {}

    def weights(self, name: str) -> Mapping[Target, Array]:
        return self._parameters(name, self.step.meaning.called(name))

    def _parameters(self, op: str, model: str) -> Mapping[Target, Array]:
        holders = self.step.meaning.storages.holders(model)
        return {(each, name): value[None] for each in holders for name, value in self.step.parameters(each, 0).items()}
