"""An optimizer that a step applies twice, of which either update may not stay: both backends give the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from runtime import Step
from tests.features.overflows import INF
from tests.features.steps import build_step
from tests.features.waiting import counted

SPEC = """
graphspec: 1
name: twice
inputs: {p: {shape: []}, q: {shape: []}}
models:
  a: {parameter: {shape: [], init: 1.0}, optimizer: OPTIMIZER}
  b: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 1.0}}
ops:
  seen: {forward: a}
  later: {forward: a, after: first}
  last: {forward: b, after: second}
  cost: {call: mul, inputs: [seen, p]}
  again: {call: mul, inputs: [later, q]}
  other: {call: mul, inputs: [last, q]}
  first: {update: a, loss: cost}
  second: {update: a, loss: again}
  third: {update: b, loss: other}
precision: {loss_scale: {initial: 4, growth_steps: 1}}
"""
RULES = (
    "adam",
    "adamw",
    "adagrad",
    "lion",
    "sgd",
    "sgd, momentum: 0.5, momentum_form: lr_inside",
    "sgd, momentum: 0.5, dampening: 0.25",
    "sgd, momentum: 0.5, nesterov: true",
    "sgd, momentum: 0.5, nesterov: true, fused: false",
    "rmsprop",
    "adadelta",
    "adamax",
    "nadam",
    "sgd, weight_decay: {schedule: linear, from: 1, over: 5}",
)
READING = ("adamax", "nadam")
"""Rules of which torch.optim reads the count of updates in every step, which is a tensor of the host."""
BURSTS = ((1.0, 2.0), (INF, 1.0), (1.0, INF), (INF, INF), (3.0, 1.0))


def make(rule: str, backend: str) -> Step:
    """Return a step in float32."""
    return build_step(SPEC.replace("OPTIMIZER", f"{{name: {rule}, lr: 0.1}}"), backend, dtype="float32")


def take(step: Step, p: float, q: float) -> dict[str, np.ndarray]:
    """Take a step with two slopes; return weights and slots."""
    step({"p": np.array(p, np.float32), "q": np.array(q, np.float32)})
    return dict(step.state().arrays)


@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_whichever_update_stays_all_is_as_if_the_other_had_not_been(rule: str, first: int) -> None:
    ours, theirs = (make(rule, backend) for backend in ("torch", "tensorflow"))
    for burst in (*BURSTS[first:], *BURSTS[:first]):
        found, expected = take(ours, *burst), take(theirs, *burst)
        shared = [name for name in expected if name in found and name.startswith(("models", "optimizers"))]
        assert len(shared) >= 2
        for name in shared:
            assert np.allclose(found[name], expected[name], rtol=2e-6, atol=2e-7), (burst, name)
    assert ours.optimizers["a"].iterations == theirs.optimizers["a"].iterations == 6


@pytest.mark.needs("torch")
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in READING])
@pytest.mark.parametrize("burst", BURSTS)
def test_a_step_waits_once(rule: str, burst: tuple[float, float]) -> None:
    step = make(rule, "torch")
    take(step, 1.0, 1.0)
    with counted("torch") as seen:
        step({"p": np.array(burst[0], np.float32), "q": np.array(burst[1], np.float32)})
    assert len(seen) == 1
