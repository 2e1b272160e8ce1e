"""A step that raises leaves no trace: the next ones are as if it had not been tried."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from runtime import Step, StepError, build
from tests.backends.torch import keepers

USERS = keepers.__name__
SPEC = """
graphspec: 1
name: test
rng: %s
inputs: {x: {shape: [batch, 4]}, t: {shape: [batch, 3]}}
models:
  other: {layers: [{linear: 3}], optimizer: sgd}
  net: {class: '%s:Failing', optimizer: {name: adam, lr: {schedule: linear, from: 0.1, to: 0, over: 5, clock: steps}}}
ops:
  z: {forward: other, inputs: x}
  level: {metric: mean, inputs: z}
  noise: {random: normal, like: t}
  target: {call: add, inputs: [t, noise]}
  y: {forward: net, inputs: x, after: level}
  loss: {loss: mse, inputs: [y, target]}
  learn: {update: net, loss: loss, every: 2}
  shadow: {ema: net, decay: 0.5, every: 2, buffers: copy, use: {eval: swap}}
outputs: [loss, level, y]
"""


def make(rng: str) -> Step:
    """Return a built step."""
    return build(compile_step(load(SPEC % (rng, USERS))), device="cpu", seed=1, allow=[USERS])


def batch(number: int) -> dict[str, object]:
    """Return a batch; that of number 13 makes the model raise."""
    random = np.random.default_rng(number)
    x = random.normal(size=(5, 4)).astype("f")
    x[0, 0] = 13 if number == 13 else x[0, 0]
    return {"x": x, "t": random.normal(size=(5, 3)).astype("f")}


def take(step: Step, numbers: list[int], mode: str = "train") -> list[dict[str, bytes]]:
    """Return the outputs of the steps that do not raise, to the last bit."""
    found = []
    for number in numbers:
        if number == 13:
            with pytest.raises(StepError, match="an unlucky batch"):
                step(batch(13), mode=mode)
        else:
            found.append({name: step.numpy(each).tobytes() for name, each in step(batch(number), mode=mode).items()})
    return found


@pytest.mark.parametrize("rng", ["native", "portable"])
def test_steps_after_one_that_raised_are_those_that_would_have_come(rng):
    failed, smooth = make(rng), make(rng)
    assert take(failed, [13, 1, 13, 13, 2, 3, 13, 4, 5, 13]) == take(smooth, [1, 2, 3, 4, 5])
    assert take(failed, [13, 1, 13, 2], "eval") == take(smooth, [1, 2], "eval")
    one, other = failed.state(), smooth.state()
    assert one.counters == other.counters
    assert all(np.array_equal(array, other.arrays[name]) for name, array in one.arrays.items())


def test_the_report_is_that_of_the_last_step_that_came_to_its_end():
    step = make("native")
    take(step, [1, 2])
    before = step.report
    take(step, [13])
    assert step.report == before
    assert before.fired == ("learn",)


def test_what_a_metric_counted_in_a_failed_train_step_does_not_reach_it_through_an_eval_step():
    step = make("native")
    take(step, [1, 13])
    take(step, [1], "eval")
    assert step.state().counters["metrics"]["train"]["level"]["rows"] == 5
    assert step.state().counters["steps"] == {"train": 1, "eval": 1}


def test_the_error_names_the_step_that_would_have_been():
    step = make("native")
    take(step, [1, 2, 13])
    with pytest.raises(StepError, match="in step 3 of mode train"):
        step(batch(13))
