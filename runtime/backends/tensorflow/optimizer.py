"""Access to the optimizers of an executed module of TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed
from runtime.backends.tensorflow.slots import Wrapping, slot_tensors
from runtime.engine.backend import OptimizerAccess, Place, Slots, Value
from runtime.engine.contents import name_slots
from runtime.support.clocks import Clock


@final
class Settable:
    """A number, or several, in place of one of the spec: a variable, so that graphs stay valid when it is set again.

    Where the variable is NaN, the spec applies: a number or a schedule.
    """

    def __init__(self, written: Any, value: Value) -> None:
        self.written = written
        self.variable = tf.Variable(typed(self.spell(value), tf.float64), trainable=False, name="set")

    def __call__(self, before: Any) -> Any:
        """Return the number after so many updates."""
        usual, held = self.written(before) if callable(self.written) else self.written, self.variable.read_value()
        pairs = zip(usual, tf.unstack(held), strict=True) if isinstance(usual, (tuple, list)) else ()
        return tuple(map(_choose, *zip(*pairs, strict=True))) if held.shape.rank else _choose(usual, held)

    def put(self, value: Value | None) -> None:
        """Be a number from now on; None restores the spec's."""
        unset = tf.fill(self.variable.shape, typed(math.nan, tf.float64))
        self.variable.assign(unset if value is None else typed(self.spell(value), tf.float64))

    @staticmethod
    def spell(value: Value) -> Any:
        """Return the numbers to make a tensor of."""
        return [*value] if isinstance(value, tuple) else value


def _choose(usual: Any, held: tf.Tensor) -> tf.Tensor:
    """Return the number that was set, else the spec's."""
    return tf.where(tf.math.is_nan(held), typed(usual, tf.float64), held)


@final
@dataclass(slots=True, kw_only=True)
class TensorFlowOptimizer(OptimizerAccess):
    """An optimizer of the library; its learning rate is a variable, so that no graph changes with it."""

    cell: str
    shell: Any
    names: Mapping[int, str]
    clock: Clock
    steps: Any = None
    """The variable of the finished train steps, where schedules read them; every step writes it first."""
    unlike: int
    """How many groups with different options it has."""
    retrace: Callable[[], None]
    """Lets the graphs be traced again by the next step."""
    replaced: float | None = field(default=None)
    """The original value of a rate that was set: a number, or NaN for a schedule."""
    settable: dict[Place, Settable] = field(default_factory=dict[Place, Settable])
    """The replacements of numbers that were set; setting one for the first time traces the graphs again."""

    @property
    def native(self) -> object:
        """Return the optimizer as the emitted module made it."""
        return self.shell

    @property
    def is_scheduled(self) -> bool:
        """Return whether a schedule gives the learning rate."""
        return callable(self.shell.options.get(self.shell.rate_name))

    @property
    def variable(self) -> Any:
        """Return the variable that holds the learning rate."""
        shell: Any = self.shell
        is_keras = isinstance(self.shell, Wrapping) and not self.is_scheduled
        return shell.optimizer.learning_rate if is_keras else shell.rate

    def rate(self) -> float:
        """Return the learning rate of the next update."""
        self._assign_steps()
        return float(self.shell.next_rate(self.shell.applied.read_value()))

    def used(self) -> float:
        """Return the learning rate of the last update."""
        return float(self.shell.used.numpy()) if self.is_scheduled else self.rate()

    def set_rate(self, rate: float | None) -> None:
        """Set the learning rate of the updates to come."""
        if self.replaced is None:
            self.replaced = math.nan if self.is_scheduled else self.rate()
        self.variable.assign(self.replaced if rate is None else rate)

    def number(self, place: Place) -> Value:
        """Return a number of the next update."""
        self._assign_steps()
        found: Any = self._holder(place)[place.option]
        now: Any = found(self.shell.applied.read_value()) if callable(found) else found
        return tuple(map(float, now)) if isinstance(now, (tuple, list)) else float(now)

    def set_number(self, place: Place, value: Value | None) -> None:
        """Set a number of the updates to come."""
        if place in self.settable:
            self.settable[place].put(value)
        elif value is not None:
            holder = self._holder(place)
            with tf.device(self.shell.rate.device):
                holder[place.option] = self.settable[place] = Settable(holder[place.option], value)
            self.retrace()

    def why_fixed(self, place: Place) -> str:
        """Return why a number cannot be set; empty where it can."""
        if isinstance(self.shell, Wrapping):
            return "Keras takes it when the optimizer is made, and changes no more than learning rates"
        is_known = place.group is None or len(self._find_shares()) > place.group
        return "" if is_known else "the parameters of some groups are those of others"

    def _holder(self, place: Place) -> Any:
        """Return the options of the optimizer, or of a group."""
        return self.shell.options if place.group is None else self._find_shares()[place.group]

    def _find_shares(self) -> list[Any]:
        """Return the options of each group; nothing where some groups have no parameters of their own."""
        shares = [changes for _, changes in self.shell.shares if changes]
        return shares if len(shares) == self.unlike else []

    def _assign_steps(self) -> None:
        """Pass the number of finished steps to schedules that count steps."""
        if self.steps is not None:
            self.steps.assign(self.clock.steps.get("train", 0))

    def why_counted(self) -> str:
        """Return nothing: the number of updates can be set."""
        return ""

    def set_applied(self, applied: int, first: Mapping[str, float]) -> None:
        """Set how many updates were applied; one of Keras has its own count, and keeps its slots."""
        self.shell.applied.assign(applied)
        if isinstance(self.shell, Wrapping):
            self.shell.optimizer.iterations.assign(applied)
        elif not applied:
            for slot, variables in self.shell.slots.items():
                for variable in variables:
                    start = typed(first.get(slot, 0.0), variable.dtype)
                    variable.assign(tf.fill(variable.shape, start))

    def applied(self) -> int:
        """Return how many updates were applied."""
        return int(self.shell.applied.numpy())

    def slots(self) -> Slots:
        """Return copies of the slots of the parameters."""
        known = frozenset(name_slots(self.shell.parameters, self.names))
        found: dict[str, dict[str, object]] = {}
        for path, variable in slot_tensors(self.cell, self.shell, self.names):
            slot, _, name = path.removeprefix(f"optimizers.{self.cell}.").partition(".")
            if name in known:
                found.setdefault(name, {})[slot] = variable.read_value()
        return found
