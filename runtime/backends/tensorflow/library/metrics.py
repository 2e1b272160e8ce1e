"""Metrics: figures of a batch that are not one call of TensorFlow, and figures that run over many batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from runtime.backends.tensorflow.library.losses import matched_numbers


def accuracy(scores: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Return the share of targets equal to the greatest score along axis 1; raise ValueError for other shapes."""
    chosen, target = matched_numbers(tf.argmax(scores, 1, output_type=tf.int64), tf.cast(target, tf.int64))
    hits = tf.equal(chosen, target)
    return tf.reduce_mean(tf.cast(hits, tf.float32))


class Running:
    """A metric's mean over the batches since its reset, each weighted by the rows of its first input.

    ``since`` says when it starts anew: with each ``epoch`` or ``step``, ``never``, or after so many steps of its mode.
    It counts in variables of the graph, under the number of the step: what a step that failed has counted, the next one
    of the same number forgets.
    """

    def __init__(
        self,
        clock: Any,
        mode: str,
        metric: Callable[..., Any],
        since: str | int = "epoch",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.clock, self.mode, self.metric, self.since, self.options = clock, mode, metric, since, dict(options or {})
        self.now, self.before = Count("now"), Count("before")  # with the step that counted last, and without it
        self.step = tf.Variable(tf.zeros((), tf.int64), trainable=False, name="step")  # which that was

    def __call__(self, number: tf.Tensor, /, *inputs: Any, **named: Any) -> tf.Tensor:
        """Return the running value with this batch, in the step of a number."""
        value = tf.stop_gradient(tf.convert_to_tensor(self.metric(*inputs, **named, **self.options)))
        rows, window = count_rows(*inputs, *named.values()), window_of(self.since, number)
        failed = tf.equal(self.step, number)
        total, seen, since = (tf.where(failed, *pair) for pair in zip(self.before.read(), self.now.read(), strict=True))
        self.before.write(total, seen, since)
        total, seen = (tf.where(tf.equal(since, window), each, tf.zeros_like(each)) for each in (total, seen))
        total = require_shape(total, value, seen) + tf.where(rows > 0, tf.cast(value, tf.float64), 0.0) * tf.cast(
            rows, tf.float64
        )
        self.now.write(total, seen + rows, window)
        self.step.assign(number)
        mean = tf.cast(total / tf.cast(seen + rows, tf.float64), value.dtype if value.dtype.is_floating else tf.float32)
        return tf.ensure_shape(mean, value.shape)

    def counted(self) -> Count:
        """Return what the finished steps have counted."""
        return self.now if int(self.step.numpy()) <= self.clock.steps.get(self.mode, 0) else self.before

    def settle(self) -> None:
        """Keep what was counted though the steps of the mode start at 1 again."""
        self.now.write(*self.counted().read())
        self.step.assign(0)

    def reset(self) -> None:
        """Start anew."""
        self.now.write(0.0, 0, 0)
        self.step.assign(0)

    def state(self) -> Mapping[str, Any] | None:
        """Return what was counted."""
        total, rows, window = (each.numpy() for each in self.counted().read())
        return {"total": total if rows else None, "rows": int(rows), "window": int(window)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what was counted."""
        self.now.write(0.0 if state["total"] is None else state["total"], state["rows"], state["window"])
        self.step.assign(0)


class Count:
    """What a running metric counts: the sum of value * rows, the rows, and the stretch of steps they are of."""

    def __init__(self, name: str) -> None:
        unknown: Any = None  # a metric's shape is known only when it is called
        zero = tf.zeros((), tf.float64)
        self.total = tf.Variable(zero, shape=tf.TensorShape(unknown), trainable=False, name=f"{name}/total")
        self.rows = tf.Variable(tf.zeros((), tf.int64), trainable=False, name=f"{name}/rows")
        self.window = tf.Variable(tf.zeros((), tf.int64), trainable=False, name=f"{name}/window")

    def read(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return total, rows and window."""
        return self.total.read_value(), self.rows.read_value(), self.window.read_value()

    def write(self, total: Any, rows: Any, window: Any) -> None:
        """Set total, rows and window."""
        self.total.assign(total)
        self.rows.assign(rows)
        self.window.assign(window)


def require_shape(total: tf.Tensor, value: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Return a sum; raise InvalidArgumentError where the value to be added is of another shape."""
    same = tf.logical_and(tf.equal(tf.size(total), tf.size(value)), tf.equal(tf.rank(total), tf.rank(value)))
    message = "the metric gave a value of another shape than before: write `reset: step`"
    check = tf.debugging.Assert(tf.logical_or(tf.equal(rows, 0), same), [message, tf.shape(total), tf.shape(value)])
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(total)


class Kept:
    """A metric that counts by itself, with ``update``, ``compute`` and ``reset``; ``since`` as for :class:`Running`.

    It keeps what it counted in a step that fails: that cannot be undone.
    """

    def __init__(self, metric: Counting, since: str | int = "epoch") -> None:
        self.metric, self.since = metric, since
        self.window = tf.Variable(tf.zeros((), tf.int64), trainable=False, name="window")

    def __call__(self, number: tf.Tensor, /, *inputs: Any, **named: Any) -> tf.Tensor:
        """Return what the metric computes with this batch, in the step of a number."""
        if self.since not in ("epoch", "never"):
            window = window_of(self.since, number)
            tf.cond(tf.equal(window, self.window), lambda: None, self.metric.reset)
            self.window.assign(window)
        self.metric.update(*inputs, **named)
        return tf.convert_to_tensor(self.metric.compute())

    def settle(self) -> None:
        """Do nothing: it does not look at the number of a step that failed."""

    def reset(self) -> None:
        """Start anew."""
        self.metric.reset()
        self.window.assign(0)

    def state(self) -> Mapping[str, Any] | None:
        """Return what the metric counted; None where it does not tell."""
        if not isinstance(self.metric, Stateful):
            return None
        return {"own": self.metric.state_dict(), "window": int(self.window.numpy())}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what was counted."""
        if isinstance(self.metric, Stateful):
            self.metric.load_state_dict(state["own"])
        self.window.assign(state["window"])


@runtime_checkable
class Counting(Protocol):
    """What a metric has that counts by itself."""

    def update(self, *inputs: Any) -> Any:
        """Count a batch."""

    def compute(self) -> Any:
        """Return the value of all that was counted."""

    def reset(self) -> None:
        """Forget what was counted."""


@runtime_checkable
class Stateful(Protocol):
    """A metric with a state that can be saved."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return what was counted."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Go on from what was counted."""


@runtime_checkable
class KerasCounting(Protocol):
    """What a metric of Keras has."""

    variables: Any

    def update_state(self, *inputs: Any) -> Any:
        """Count a batch."""

    def result(self) -> Any:
        """Return the value of all that was counted."""

    def reset_state(self) -> None:
        """Forget what was counted."""


class KerasMetric:
    """A metric of Keras under the names that others have; its inputs are Keras's, the target first."""

    def __init__(self, metric: KerasCounting) -> None:
        self.metric = metric

    def update(self, *inputs: Any, **named: Any) -> None:
        """Count a batch."""
        self.metric.update_state(*inputs, **named)

    def compute(self) -> Any:
        """Return the value of all that was counted."""
        return self.metric.result()

    def reset(self) -> None:
        """Forget what was counted."""
        self.metric.reset_state()

    def state_dict(self) -> Mapping[str, Any]:
        """Return the variables in order."""
        return {str(index): variable.numpy() for index, variable in enumerate(self.metric.variables)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the variables."""
        for index, variable in enumerate(self.metric.variables):
            variable.assign(state[str(index)])


def running(
    clock: Any,
    mode: str,
    metric: Any,
    since: str | int = "epoch",
    options: Mapping[str, Any] | None = None,
) -> Running | Kept:
    """Return a user's metric as one that runs: a function of a batch, or a class or object that counts by itself.

    ``options`` are given to a class when it is made, and to a function with every batch.
    """
    made = metric(**(options or {})) if isinstance(metric, type) else metric
    if not isinstance(made, (Counting, KerasCounting)):
        if isinstance(metric, type):
            raise TypeError(f"{metric.__name__} has no update, compute and reset")
        return Running(clock, mode, metric, since, options)
    made = made if isinstance(metric, type) else copy.deepcopy(made)  # no two modes count in one object
    return Kept(KerasMetric(made) if isinstance(made, KerasCounting) else made, since)


def window_of(since: str | int, number: tf.Tensor) -> tf.Tensor:
    """Return the number of the stretch of steps that a step is in; a metric starts anew with each."""
    if since == "step":
        return number
    return (number - 1) // since if isinstance(since, int) else tf.zeros((), tf.int64)


def count_rows(*inputs: Any) -> tf.Tensor:
    """Return the rows of the first of some inputs; a single number is one."""
    first: Any = inputs[0] if inputs else None
    has_rows = tf.is_tensor(first) and first.shape.rank != 0
    return tf.shape(first, tf.int64)[0] if has_rows else tf.ones((), tf.int64)
