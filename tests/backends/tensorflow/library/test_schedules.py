"""Schedules of a tensor beside those of Python's numbers: the same rates for every count."""

from __future__ import annotations

import pytest
import tensorflow as tf

from runtime.backends.tensorflow.library import schedules as mine
from runtime.backends.torch.library import schedules as torchs
from runtime.support.clocks import Clock

COUNTS = [*range(70), 1000, 10**6]
CURVES = {
    "constant": ("constant", (0.1,)),
    "linear": ("linear", (0.1, 0.3, 33.0)),
    "cosine": ("cosine", (0.1, 0.001, 33.3)),
    "polynomial": ("polynomial", (0.1, 0.01, 33.0, 2.5)),
    "exponential": ("exponential", (0.1, 0.9, 7.0)),
    "step": ("step_decay", (0.1, 0.3, 10.0)),
    "step-thirds": ("step_decay", (0.1, 0.5, 3.3)),
    "step-tenths": ("step_decay", (0.1, 0.5, 0.1 * 3)),
    "warmup": ("warmup", (0.0, 0.1, 10.0)),
    "piecewise": ("piecewise", ({0: 0.1, 5: 0.7, 40: 0.01},)),
}


def rates(schedule, n):
    """Return the rates for counts, computed in one graph."""
    compiled = tf.function(schedule, input_signature=[tf.TensorSpec([], tf.int64)], autograph=False)
    found = [compiled(each).numpy() for each in n]
    assert compiled.experimental_get_tracing_count() == 1
    assert found[0].dtype == "float64"
    return [float(rate) for rate in found]


@pytest.mark.parametrize("name", CURVES)
def test_the_rates_are_those_of_the_curve_in_python(name):
    maker, fields = CURVES[name]
    expected = list(map(vars(torchs)[maker](*fields), COUNTS))
    assert rates(vars(mine)[maker](*fields), COUNTS) == pytest.approx(expected, rel=1e-14, abs=1e-300)


def test_joined_parts_begin_at_their_own_zero():
    ours, theirs = (
        library.joined([library.warmup(0.0, 0.1, 9.0), library.cosine(0.1, 0.0, 20.0), library.constant(0.3)], [9, 35])
        for library in (mine, torchs)
    )
    assert rates(ours, COUNTS) == pytest.approx(list(map(theirs, COUNTS)), rel=1e-14, abs=1e-17)


@pytest.mark.parametrize("pace", [{}, {"times": 32}, {"every": 7}])
def test_a_paced_schedule_reads_the_finished_train_steps(pace):
    steps, clock = tf.Variable(0, dtype=tf.int64), Clock()
    ours, theirs = (
        library.paced(counter, library.linear(0.0, 1.0, 50.0), **pace)
        for library, counter in ((mine, steps), (torchs, clock))
    )
    for finished in (0, 5, 13, 100):
        steps.assign(finished)
        clock.steps["train"] = finished
        assert float(ours(99)) == pytest.approx(theirs(99), rel=1e-15)
