"""Checks of a debug build, which runs eagerly: is every number finite, and which op made the first that is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.contents import Contents
from runtime.backends.tensorflow.library.ranges import fault_of, first_row, ranges_of
from runtime.support.checking import StepChecks
from runtime.support.findings import NonFiniteReport, Suspect


class Checks(StepChecks):
    """The checks of a step. None of them changes a number; the first that fails raises a Finding.

    A tape of its own records the step, from which the gradients of values between are taken where one is at fault.
    """

    def __init__(self, models: Mapping[str, Any], optimizers: Mapping[str, Any]) -> None:
        super().__init__(Contents(models, optimizers), optimizers)
        self.tape: Any = None
        self.loss: Any = None
        self.values: dict[str, Any] = {}

    def is_tensor(self, value: object) -> bool:
        """Return whether a value is a tensor."""
        return isinstance(value, (tf.Tensor, tf.Variable))

    def shape_of(self, value: Any) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(value.shape)

    def fault_of(self, value: object) -> str:
        """Return ``nan`` where a value holds one, else ``inf`` where it holds one, else nothing."""
        return fault_of(value)

    def first_row(self, value: object) -> str:
        """Return where along the first axis a tensor is not finite for the first time."""
        return first_row(value)

    def ranges_of(self, title: str, values: Mapping[str, object]) -> tuple[str, ...]:
        """Return one note with a line per value under a title."""
        return ranges_of(title, values)

    def start(self) -> None:
        """Begin a step; weights that are not finite before it are reported once they matter."""
        self.stop()
        super().start()
        self.tape = tf.GradientTape(persistent=True, watch_accessed_variables=False)
        self.tape.__enter__()

    def stop(self) -> None:
        """End the record of a step, also of one that failed."""
        if self.tape is not None:
            self.tape.__exit__(None, None, None)
        self.tape, self.loss, self.values = None, None, {}

    def watch(self, name: str, value: Any) -> None:
        """Watch the gradient that will flow back into a tensor."""
        if value.dtype.is_floating or value.dtype.is_complex:
            self.tape.watch(value)
            self.values[name] = value

    def before_gradient(self, op: str, name: str, loss: object, through: Mapping[str, Sequence[str]]) -> None:
        """Check a loss before it is differentiated."""
        super().before_gradient(op, name, loss, through)
        self.loss = loss

    def flows(self) -> Mapping[str, str]:
        """Return what is wrong with the gradients that flow back from the last loss, by value."""
        with self.tape.stop_recording():
            found = self.tape.gradient(self.loss, list(self.values.values()))
        named = zip(self.values, found, strict=True)
        return {name: fault_of(tf.convert_to_tensor(each)) for name, each in named if each is not None}

    def rate_of(self, optimizer: Any) -> str:
        """Return the learning rate of the last update, and how many there were."""
        updates = int(optimizer.applied)
        rate = float(optimizer.next_rate(tf.constant(updates - 1, tf.int64)))
        return f"lr {rate}, update {updates}"

    def fail(self, suspect: Suspect) -> NonFiniteReport:
        """Return the error of a suspect; the step ends with it."""
        self.stop()
        return suspect.finding()

    def returned(self, outputs: Mapping[str, object]) -> None:
        """Check the outputs that are single numbers, and end the step."""
        super().returned(outputs)
        self.stop()
