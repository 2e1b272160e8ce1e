"""When a run logs, evaluates, saves and ends: durations counted by hand."""

from __future__ import annotations

import pytest

from compiler.timing.units import Pace
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.train.loop import Interval, find_length, find_run_schedule

SPEC = """
graphspec: 1
name: times
inputs: {{x: {{shape: [batch, 2]}}}}
models: {{net: {{layers: [{{linear: 2}}], optimizer: sgd}}}}
ops:
  out: {{forward: net, inputs: x}}
  loss: {{loss: mse, inputs: [out, x]}}
  step: {{update: net, loss: loss}}
data: {{train: {{source: npz, path: x.npz, batch: 10}}}}
run: {{checkpoint: {every}, {length}}}
"""


def spec(every="5 steps", length="log_every: 3"):
    return load(SPEC.format(every=every, length=length))


@pytest.mark.parametrize(
    ("every", "interval"),
    [
        ("500 steps", Interval(steps=500)),
        ("2 epochs", Interval(epochs=2)),
        ("0.5 epochs", Interval(steps=4)),  # half of 8 batches
        ("25 samples", Interval(steps=3)),  # in the third batch of 10
        ("0.1 run", Interval(steps=6)),  # a tenth of 60 steps
    ],
)
def test_durations_become_steps_by_the_pace_of_the_run(every, interval):
    assert find_run_schedule(spec(every), Pace(epoch=8, batch=10, run=60)).save == interval


@pytest.mark.parametrize(
    ("every", "unknown"), [("0.5 epochs", "how many batches an epoch has"), ("0.1 run", "how long the run is")]
)
def test_what_cannot_be_counted_is_refused_at_its_place(every, unknown):
    with pytest.raises(SpecError, match=unknown) as caught:
        find_run_schedule(spec(every), Pace(batch=10))
    (found,) = caught.value.diagnostics
    assert (found.code, found.span.line) == ("GS249", 11)


@pytest.mark.parametrize(
    ("length", "wanted", "steps"),
    [("steps: 50", None, 50), ("steps: 50", 7, 7), ("epochs: 3", None, 24), ("log_every: 2", None, 1000)],
)
def test_the_length_is_what_was_asked_for_or_what_the_spec_says(length, wanted, steps):
    assert find_length(spec(length=length), 8, wanted) == steps


def test_epochs_of_unknown_length_are_counted_as_they_end():
    declared = spec(length="epochs: 3")
    assert find_length(declared, None, None) is None
    assert find_run_schedule(declared, Pace(batch=10)).epochs == 3
