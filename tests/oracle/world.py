"""One step as a set of definitions, evaluated by memoised recursion; and worlds in which some targets are perturbed.

The base world holds the values of the step. In a perturbed world every use of a target, at whichever version, is
shifted by small numbers (complex step) or by a leaf of a graph (PyTorch); what depends on no target is as in the base.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphspec.declare.ops import AdaptOp, CallOp, ForwardOp, GradientOp, LossOp, MetricOp, RandomOp, ScheduleOp
from tests.oracle.functions import CALLS, counted, is_counted, loss, nothing, product
from tests.oracle.layers import Call, has_buffers
from tests.oracle.likeness import find_root
from tests.oracle.numbers import Array, Numbers
from tests.oracle.parts import LENIENT, join
from tests.oracle.paths import CONSTANT
from tests.oracle.users import CLASSES, MODAL

if TYPE_CHECKING:
    from tests.oracle.step import StepValues

Target = tuple[str, str]
"""A parameter as (model, name), or a value as ("", name)."""
Shifts = Mapping[Target, Sequence[Array]]


class SecondOrderError(Exception):
    """A gradient is differentiated, which complex step cannot do."""


class World:
    """The values of one step with some targets shifted."""

    def __init__(
        self, step: StepValues, numbers: Numbers, shifts: Shifts, part: int = 0, whole: World | None = None
    ) -> None:
        self.step, self.numbers, self.shifts = step, numbers, shifts
        self.part, self.whole = part, whole or self
        """The number of the micro-batch, 0 for the whole batch; and the world of that."""
        count = 0 if part or step.parts.count == 1 else step.parts.count
        self.parts = [World(step, numbers, shifts, one, self) for one in range(1, count + 1)]
        self.models = {model for model, _ in shifts if model}
        self.values = {name for model, name in shifts if not model}
        self.known: dict[str, Array] = {}
        self.moved: dict[str, bool] = {}
        self.adapted: dict[str, Mapping[Target, Array]] = {}

    @property
    def base(self) -> World:
        """Return the world without shifts of the same micro-batch."""
        return self.step.base.at(self.part)

    def at(self, part: int) -> World:
        """Return the world of a micro-batch."""
        return self.whole.parts[part - 1] if part else self.whole

    def run_of(self, name: str) -> str:
        """Return what an op is called in this micro-batch."""
        return f"{name}#{self.part}" if self.part and name in self.step.parts.split else name

    # ------------------------------------------------------------ what depends on the targets

    def touches(self, value: str) -> bool:
        """Return whether a value depends on a target in a way that a gradient flows back."""
        if value in self.values or value in self.models & self.step.meaning.derived:
            return True
        name = self.step.meaning.owner.get(value)
        if name is None:
            return False
        if name not in self.moved:
            self.moved[name] = self._moves(name)
        return self.moved[name]

    def _moves(self, name: str) -> bool:
        op = self.step.meaning.ops[name]
        match op:
            case ForwardOp():
                named = [value for _, value in op.inputs.references()]
                is_derived = op.forward in self.step.meaning.derived
                named += [op.forward] if is_derived else []
                holders = [] if is_derived else self.step.meaning.storages.holders(op.forward)
                inner = {output.name for output in op.outputs or () if output.tap is not None}
                starts = not self.models.isdisjoint(holders) or not self.values.isdisjoint(inner)
                return not op.stop and (starts or any(map(self.touches, named)))
            case CallOp():
                if op.call.name("torch") in CONSTANT:
                    return False
                return any(self.touches(value) for _, value in op.inputs.references())
            case LossOp() | MetricOp():
                return any(self.touches(value) for _, value in op.inputs.references())
            case AdaptOp():
                is_derived = op.adapt in self.step.meaning.derived
                read = [*self.step.meaning.rates(name), *([] if is_derived else [op.adapt])]
                holders = [holder for model in read for holder in self.step.meaning.storages.holders(model)]
                starts = not self.models.isdisjoint(holders) or (is_derived and self.touches(op.adapt))
                return starts or (op.order == 2 and self.touches(op.gradients))
            case GradientOp():
                return not op.stop and any(map(self.touches, (op.gradient, *op.wrt, *(op.grad_outputs or ()))))
            case _:
                return False

    # ------------------------------------------------------------ values

    def value(self, name: str) -> Array:
        """Return a value; literal numbers are values too."""
        if name not in self.known:
            found = self._find(name)
            for shift in () if self._is_tap(name) else self._shifts_of(name):
                found = found + shift
            self.known[name] = found
        return self.known[name]

    def _shifts_of(self, name: str) -> Sequence[Array]:
        """Return what is added to a value here."""
        is_own = self.step.parts.count == 1 or self.step.parts.is_batched(name) == bool(self.part)
        return self.shifts.get(("", name), ()) if is_own else ()

    def _is_tap(self, name: str) -> bool:
        """Return whether a value is what an inner layer gave: shifted in the call, which goes on with it."""
        op = self.step.meaning.ops.get(self.step.meaning.owner.get(name, ""))
        outputs = op.outputs or () if isinstance(op, ForwardOp) and not op.stop else ()
        return any(output.name == name and output.tap is not None for output in outputs)

    def _find(self, name: str) -> Array:
        base, parts = self.base, self.step.parts
        if self is not base and (name not in self.step.meaning.owner or not self._touched_before(name)):
            return self.numbers.lift(base.value(name))
        owner = self.step.meaning.owner.get(name)
        if self.part and owner not in parts.split:
            whole = self.whole.value(name)
            return parts.cut(whole, self.part) if parts.is_batched(name) else whole
        if self.parts and owner in parts.split:
            return join(self, name)
        if name in self.step.batch:
            return self.step.batch[name][None]
        found = self.evaluate(owner)
        if self is base:
            for other, value in found.items():
                self.known.setdefault(other, value)
        return found[name]

    def _touched_before(self, name: str) -> bool:
        owner = self.step.meaning.owner[name]
        if owner not in self.moved:
            self.moved[owner] = self._moves(owner)
        return self.moved[owner]

    def operand(self, operand: str | float, reader: str = "") -> Array:
        """Return the value of a name, a state as its reader sees it, or a number."""
        if operand in self.step.meaning.spec.state:
            return self.numbers.lift(self.step.seen_state(operand, self.run_of(reader))[None])
        return self.value(operand) if isinstance(operand, str) else self.numbers.lift(np.array([float(operand)]))

    def evaluate(self, name: str) -> Mapping[str, Array]:
        """Return the values that an op defines."""
        op = self.step.meaning.ops[name]
        match op:
            case ForwardOp():
                return self._forward(name, op)
            case CallOp():
                found = self._call(name, op)
                return dict(zip(op.defines(name), found if isinstance(found, list) else [found], strict=True))
            case LossOp():
                return {name: self._loss(name, op)}
            case GradientOp():
                return self.step.gradient_values(self, name, op)
            case ScheduleOp():
                return {name: np.array([float(op.curve)])}
            case RandomOp():
                return {name: self.step.draw(name, op)[None]}
            case MetricOp():
                return {name: self.step.measure(name, op)[None]}
            case _:
                raise AssertionError(f"{name} has no value")

    def _call(self, reader: str, op: CallOp) -> Array | list[Array]:
        name = op.call.name("torch")
        present = [one for _, one in op.inputs.items() if not (name in LENIENT and self.is_absent(one))]
        operands = [self.operand(one, reader) for one in present]
        if name == "argmax":
            axis = op.args.get("axis", 1)
            return self.numbers.argmax(operands[0], axis + 1 if axis >= 0 else axis).squeeze(
                axis + 1 if axis >= 0 else axis
            )
        if name == "one_hot":
            return np.eye(op.args["classes"])[operands[0].astype(np.int64)]
        return CALLS[name](self.numbers, *operands, **op.args)

    def is_absent(self, operand: str | float) -> bool:
        """Return whether a term of a sum is not computed in this step."""
        owner = self.step.meaning.owner.get(operand)
        return owner is not None and owner not in self.step.versions.firing

    def _loss(self, name: str, op: LossOp) -> Array:
        operands = [self.operand(one, name) for _, one in op.inputs.items()]
        if is_counted(op.loss.name("torch"), op.reduction, op.args):
            total, count = self.counted(name, op)
            return total / count if count else nothing(self.numbers, total)
        found = loss(self.numbers, op.loss.name("torch"), operands, op.reduction or "mean", op.args)
        return found * _times(op)

    def counted(self, name: str, op: LossOp) -> tuple[Array, int]:
        """Return the sum of a loss, as often as it weighs, and what it counts."""
        operands = [self.operand(one, name) for _, one in op.inputs.items()]
        total, count = counted(self.numbers, op.loss.name("torch"), operands, op.args)
        return total * _times(op), count

    # ------------------------------------------------------------ models

    def _forward(self, name: str, op: ForwardOp) -> Mapping[str, Array]:
        step = self.step
        model, train = step.meaning.called(op.forward), step.meaning.is_training(name)
        is_derived = op.forward in step.meaning.derived
        found = self.weights(op.forward) if is_derived else self._parameters(name, model)
        parameters = {key: array for (_, key), array in found.items()}
        declared = step.meaning.spec.models[self._root(model)]
        if declared.parameter is not None:
            return {op.defines(name)[0]: parameters["value"]}
        given = self.operand(next(iter(op.inputs.items()))[1], name)
        if declared.class_ is not None:
            path = declared.class_path("torch")
            mode = (train,) if path in MODAL else ()
            return {op.defines(name)[0]: CLASSES[path](self.numbers, parameters, given, *mode)}
        buffers = {key: self.numbers.lift(one[None]) for key, one in self._statistics(name, model, train).items()}
        call = Call(
            numbers=self.numbers,
            parameters=parameters,
            buffers=buffers,
            train=train,
            mask=step.masks(self.run_of(name)),
            shifts={} if op.stop else {one.tap: self._shifts_of(one.name) for one in op.outputs or () if one.tap},
        )
        found = call.run(declared.layers, given)
        if step.blur is not None:
            found = found * self.numbers.lift(step.blur(self.run_of(name), found.shape[1:])[None])
        if self is self.base:
            step.left[self.run_of(name)] = {key: value[0] for key, value in call.written.items()}
        if op.outputs is None:
            return {name: found}
        return {output.name: found if output.tap is None else call.taps[output.tap] for output in op.outputs}

    def _statistics(self, name: str, model: str, train: bool) -> Mapping[str, np.ndarray]:
        """Return the buffers a call reads: in training those that its turn finds, else those it sees."""
        step = self.step
        if not has_buffers(step.meaning.spec.models[self._root(model)].layers or ()):
            return {}
        cell = f"{model}.buffers"
        run = self.run_of(name)
        turn = step.versions.writers(cell).index(run) if train else step.versions.seen(run, cell)
        return step.buffers(model, turn)

    def _root(self, model: str) -> str:
        return find_root(self.step.meaning.spec, model)

    def weights(self, name: str) -> Mapping[Target, Array]:
        """Return the weights of a derived model: those that it begins with, minus rates times gradients."""
        if name not in self.adapted:
            if self is self.base or self.touches(name):
                self.adapted[name] = self._adapt(name, self.step.meaning.ops[name])
            else:
                self.adapted[name] = {key: self.numbers.lift(array) for key, array in self.base.weights(name).items()}
        return self.adapted[name]

    def _adapt(self, name: str, op: AdaptOp) -> Mapping[Target, Array]:
        begin = self.weights(op.adapt) if op.adapt in self.step.meaning.derived else self._parameters(name, op.adapt)
        if self is not self.base and op.order == 2 and self.touches(op.gradients):
            slopes = self.step.differentiate_again(self, op.gradients)
        else:
            slopes = {key: self.numbers.lift(g[None]) for key, g in self.step.gradients(op.gradients).items()}
        found, learned = {}, {rate: self._parameters(name, rate) for rate in self.step.meaning.rates(name)}
        for key, array in begin.items():
            if key in slopes:
                rate = next((group.lr for group in op.groups if re.search(group.match, key[1])), op.lr)
                times = next(iter(learned[rate].values())) if isinstance(rate, str) else self.operand(rate)
                array = array - product(self.numbers.align(times, slopes[key]))
            for shift in self.shifts.get((name, ".".join(key)), ()):
                array = array + shift
            found[key] = array
        return found

    def _parameters(self, op: str, model: str) -> Mapping[Target, Array]:
        """Return the parameters of a model as an op sees them, by holder, shifted where they are targets."""
        found = {}
        for holder in self.step.meaning.storages.holders(model):
            version = self.step.versions.seen(self.run_of(op), f"{holder}.params")
            for name, value in self.step.parameters(holder, version).items():
                array = self.numbers.lift(value[None])
                for shift in self.shifts.get((holder, name), ()):
                    array = array + shift
                found[holder, name] = array
        return found


def _times(op: LossOp) -> float:
    """Return how often a loss counts: as it weighs, and a lazy term for the steps that do without it."""
    weight = 1.0 if op.weight is None else op.weight
    return weight * op.every if isinstance(op.every, int) and op.lazy != "none" else weight
