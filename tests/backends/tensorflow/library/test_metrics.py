"""Running metrics in a graph: weighted means, when they start anew, failed steps, and what state they have."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from runtime.backends.tensorflow.library.metrics import Kept, Running, accuracy, running


class Steps:
    """The finished steps, by mode."""

    def __init__(self):
        self.steps = {}


class Largest:
    """A metric that counts by itself: the largest number seen."""

    def __init__(self, floor=0.0):
        self.floor, self.best = floor, tf.Variable(floor)

    def update(self, x):
        self.best.assign(tf.maximum(self.best, tf.reduce_max(x)))

    def compute(self):
        return self.best.read_value()

    def reset(self):
        self.best.assign(self.floor)


def mean_rows(x, scale=1.0):
    """Return the mean of rows: one number for each column."""
    return tf.reduce_mean(x, 0) * scale


def compiled(metric, rank=1):
    """Return a metric as a graph of its own."""
    specs = [tf.TensorSpec([], tf.int64), tf.TensorSpec([None] * rank)]
    return tf.function(lambda number, x: metric(number, x), input_signature=specs, autograph=False)


def take(metric, clock, *batches, rank=1):
    """Run finished steps of the mode eval; return the values."""
    run, values = compiled(metric, rank), []
    for batch in batches:
        number = clock.steps.get("eval", 0) + 1
        values.append(run(number, tf.constant(batch, tf.float32)).numpy().tolist())
        clock.steps["eval"] = number
    assert run.experimental_get_tracing_count() == 1
    return values


def test_accuracy_is_the_share_of_hits_in_any_whole_type():
    scores = tf.constant([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    assert [float(accuracy(scores, tf.constant([1, 1, 1, 0], dtype))) for dtype in (tf.int32, tf.int64)] == [0.75] * 2


def test_a_running_value_is_the_mean_over_all_rows():
    clock = Steps()
    metric = Running(clock, "eval", tf.reduce_mean)
    assert take(metric, clock, [1.0], [4.0, 4.0, 4.0], [0.0]) == pytest.approx([1, 13 / 4, 13 / 5])


@pytest.mark.parametrize(("since", "expected"), [("step", [1, 3, 5, 7]), (2, [1, 2, 5, 6]), ("never", [1, 2, 3, 4])])
def test_it_starts_anew_when_the_spec_says(since, expected):
    clock = Steps()
    assert take(Running(clock, "eval", tf.reduce_mean, since), clock, [1.0], [3.0], [5.0], [7.0]) == expected


def test_a_value_may_have_any_shape():
    clock = Steps()
    metric = Running(clock, "eval", mean_rows, options={"scale": 2.0})
    assert take(metric, clock, [[1.0, 2.0]], [[3.0, 0.0], [5.0, 1.0]], rank=2) == [[2, 4], [6, 2]]


def test_a_batch_without_rows_counts_nothing():
    clock = Steps()
    assert take(Running(clock, "eval", tf.reduce_mean), clock, [2.0], [], [4.0]) == [2, 2, 3]


def test_what_a_failed_step_counted_is_forgotten():
    clock = Steps()
    metric = Running(clock, "eval", tf.reduce_mean)
    take(metric, clock, [1.0])
    compiled(metric)(2, tf.constant([100.0]))  # counted, but the step is never finished
    assert metric.state() == {"total": 1.0, "rows": 1, "window": 0}
    assert take(metric, clock, [3.0], [5.0]) == [2, 3]


def test_settling_keeps_the_count_when_the_steps_start_at_one_again():
    clock = Steps()
    metric = Running(clock, "eval", tf.reduce_mean, "never")
    take(metric, clock, [1.0])
    metric.settle()
    clock.steps.clear()
    assert take(metric, clock, [3.0]) == [2]


def test_a_state_is_read_and_goes_on():
    clock, other = Steps(), Steps()
    metric, resumed = Running(clock, "eval", mean_rows), Running(other, "eval", mean_rows)
    assert metric.state() == {"total": None, "rows": 0, "window": 0}
    take(metric, clock, [[1.0, 2.0]], rank=2)
    resumed.load(metric.state())
    other.steps.update(clock.steps)
    assert take(resumed, other, [[3.0, 0.0]], rank=2) == [[2, 1]]
    metric.reset()
    assert metric.state()["rows"] == 0


def test_a_value_of_another_shape_is_refused():
    clock = Steps()
    metric = Running(clock, "eval", tf.reduce_sum, options={"axis": 0})
    take(metric, clock, [[1.0, 2.0]], rank=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="another shape"):
        take(metric, clock, [[1.0, 2.0, 3.0]], rank=2)


@pytest.mark.parametrize(("since", "expected"), [("epoch", [3, 3, 3]), ("step", [3, 2, 1]), (2, [3, 3, 1])])
def test_a_class_that_counts_by_itself_is_reset_in_the_graph(since, expected):
    clock = Steps()
    metric = running(clock, "eval", Largest, since, {"floor": -1.0})
    assert isinstance(metric, Kept)
    assert take(metric, clock, [3.0], [2.0], [1.0]) == expected
    metric.reset()
    assert take(metric, clock, [0.5]) == [0.5]


def test_a_metric_of_keras_runs_and_keeps_its_state():
    clock = Steps()
    metric, other = (running(clock, "eval", keras.metrics.Mean) for _ in range(2))
    assert take(metric, clock, [1.0, 2.0], [6.0]) == [1.5, 3]
    other.load(metric.state())
    assert take(other, clock, [7.0]) == [4]


def test_a_function_runs_and_a_class_that_does_not_count_is_refused():
    assert isinstance(running(Steps(), "eval", mean_rows), Running)
    with pytest.raises(TypeError, match="ndarray has no update, compute and reset"):
        running(Steps(), "eval", np.ndarray, options={"shape": 1})
