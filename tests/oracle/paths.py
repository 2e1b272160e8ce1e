"""P(g): what lies on a differentiable way from the targets of a gradient to its loss, by recursion over the values."""

from __future__ import annotations

from collections.abc import Collection, Container

from graphspec.declare.ops import AdaptOp, CallOp, ForwardOp, GradientOp, LossOp, MetricOp, TransformOp, UpdateOp
from tests.oracle.meaning import Meaning

MASKS = (
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_not",
)  # fmt: skip
CONSTANT = ("stop", "argmax", "one_hot", *MASKS)


class Paths:
    """The paths of all gradients of a mode; the gradient of an update is named ``<update>.gradient``.

    ``resting``: models that no gradient is run back to for now.
    """

    def __init__(self, meaning: Meaning, firing: Container[str] | None = None, resting: Collection[str] = ()) -> None:
        self.meaning, self.ops, self.firing, self.resting = meaning, meaning.ops, firing, resting
        self.known: dict[str, frozenset[str]] = {}

    def path(self, gradient: str) -> frozenset[str]:
        """Return the ops on the path of a gradient."""
        if gradient not in self.known:
            loss, models, values = self.describe(gradient)
            targets = frozenset(models).difference(self.resting)
            self.known[gradient] = frozenset(self._between(loss, targets, frozenset(values)))
        return self.known[gradient]

    def describe(self, gradient: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """Return the loss of a gradient, and its targets: holders of parameters, and values."""
        op = self.ops[gradient.removesuffix(".gradient")]
        if isinstance(op, UpdateOp):
            return op.loss, self.meaning.storages.all_holders(op.update), ()
        models, values = op.split({*self.meaning.spec.models, *self.meaning.spec.shadows()})
        return op.gradient, self.meaning.storages.all_holders(models), values

    def find_set(self, value: str) -> tuple[str, ...]:
        """Return the holders of the parameters that a gradient set spans; nothing for another value."""
        op = self.ops.get(self.meaning.owner.get(value, ""))
        match op:
            case GradientOp():
                models, _ = op.split({*self.meaning.spec.models, *self.meaning.spec.shadows(), *self.meaning.derived})
                return self.meaning.storages.all_holders(tuple(map(self.meaning.called, models)))
            case TransformOp():
                return self.find_set(op.inputs[0])
            case CallOp():
                return next(filter(None, (self.find_set(one) for _, one in op.inputs.references())), ())
            case _:
                return ()

    def _between(self, value: str, models: frozenset[str], values: frozenset[str]) -> set[str]:
        """Return the ops between the targets and a value, its own included; nothing where no way leads there."""
        name = self.meaning.owner.get(value)
        if name is None or self._is_blocked(name) or (self.firing is not None and name not in self.firing):
            return set()
        passing = self._passing(name)
        starts = bool(self.called(name) & models) or any(one in values for one in passing)
        starts = starts or any(one in values for one in self._taps(name) if one != value)
        found = set().union(*(self._between(one, models, values) for one in passing))
        if isinstance(self.ops[name], GradientOp):
            inner = self.path(name)
            starts = starts or any(self.called(one) & models for one in inner)
            starts = starts or any(value in values for one in inner for value in self._passing(one))
            found |= inner if starts or found else set()
        return found | {name} if starts or found else set()

    def _taps(self, name: str) -> list[str]:
        """Return what inner layers of a call give: what it goes on with."""
        op = self.ops[name]
        return [one.name for one in op.outputs or () if one.tap] if isinstance(op, ForwardOp) else []

    def _is_blocked(self, name: str) -> bool:
        op = self.ops[name]
        match op:
            case ForwardOp() | GradientOp():
                return op.stop
            case CallOp():
                return op.call.name("torch") in CONSTANT
            case _:
                return not isinstance(op, LossOp | MetricOp | AdaptOp)

    def called(self, name: str) -> set[str]:
        """Return the holders of the parameters that an op is a function of."""
        op = self.ops[name]
        model = op.forward if isinstance(op, ForwardOp) else op.adapt if isinstance(op, AdaptOp) else None
        read = [*self.meaning.rates(name), *([] if model is None or model in self.meaning.derived else [model])]
        return {holder for one in read for holder in self.meaning.storages.holders(one)}

    def _passing(self, name: str) -> list[str]:
        """Return the values that a gradient flows back to from an op."""
        op = self.ops[name]
        if isinstance(op, GradientOp):
            _, values = op.split({*self.meaning.spec.models, *self.meaning.spec.shadows()})
            return [op.gradient, *values, *(op.grad_outputs or ())]
        if isinstance(op, AdaptOp):
            derived = [op.adapt] if op.adapt in self.meaning.derived else []
            return [*derived, *([op.gradients] if op.order == 2 else [])]
        derived = [op.forward] if isinstance(op, ForwardOp) and op.forward in self.meaning.derived else []
        return [*derived, *(value for _, value in op.inputs.references())]
