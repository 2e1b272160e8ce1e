"""A step that raises before its first write has changed nothing; after it, the step goes on only from a state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime import Step, StepError
from runtime.state import State
from tests.features import breaking
from tests.features.breaking import Interrupt, failing
from tests.features.steps import build_step

USER = breaking.__name__
SPEC = """
graphspec: 1
name: breaking
inputs: {x: {shape: [batch, 3]}}
models:
  a: {layers: [{linear: 3}], optimizer: {name: adam, lr: 0.1}}
  b: {layers: [{linear: 3}, batch_norm, {linear: 1}], optimizer: {name: sgd, lr: 0.1, momentum: 0.9}, buffers: copy}
state: {center: {shape: [3]}}
ops:
  noise: {random: normal, like: x}
  x1: {call: "USER:first", inputs: noise}
  out_a: {forward: a, inputs: x}
  fit_a: {loss: mse, inputs: [out_a, x1]}
  step_a: {update: a, loss: fit_a, accumulate: 2, on_overflow: own}
  moved: {forward: a, inputs: x, after: step_a}
  out_b: {forward: b, inputs: moved}
  x2: {call: "USER:second", inputs: out_b}
  fit_b: {loss: mse, inputs: [x2, 0.0]}
  step_b: {update: b, loss: fit_b}
  average: {ema: b, decay: 0.5}
  mean: {call: mean, inputs: out_a, args: {axis: 0}}
  move: {assign: center, value: mean}
  late: {forward: b, inputs: moved, after: step_b}
  x3: {call: "USER:third", inputs: late}
  level: {metric: mean, inputs: x3, reset: never}
outputs: [fit_a, fit_b, level]
""".replace("USER", USER)
PLAIN = """
graphspec: 1
name: plain
inputs: {x: {shape: [batch, 3]}}
models:
  a: {layers: [{linear: 3}], optimizer: {name: adam, lr: 0.1}}
  b: {layers: [{linear: 3}], optimizer: {name: sgd, lr: 0.1}}
ops:
  out_a: {forward: a, inputs: x}
  fit_a: {loss: mse, inputs: [out_a, 0.0]}
  step_a: {update: a, loss: fit_a}
  moved: {forward: a, inputs: x, after: step_a}
  out_b: {forward: b, inputs: moved}
  x2: {call: "USER:second", inputs: out_b}
  fit_b: {loss: mse, inputs: [x2, 0.0]}
  step_b: {update: b, loss: fit_b}
outputs: [fit_a, fit_b]
""".replace("USER", USER)
SPECS = {
    "scaled": SPEC.replace("state:", "precision: {loss_scale: {initial: 4, growth_steps: 1}}\nstate:"),
    "gated": SPEC.replace("loss: fit_b}", "loss: fit_b, every: 2}"),
    "plain": PLAIN,
}


def batch(number: int) -> dict[str, np.ndarray]:
    """Return a batch."""
    return {"x": np.random.default_rng(number).normal(size=(4, 3))}


def are_same(one: State, other: State) -> bool:
    """Return whether two states are the same to the last bit."""
    arrays = {name: array.tobytes() for name, array in one.arrays.items()}
    return arrays == {name: array.tobytes() for name, array in other.arrays.items()} and one.counters == other.counters


def take(step: Step, start: int = 2) -> list[State]:
    """Return the states after some steps."""
    return [step.state() for number in range(start, start + 3) if step(batch(number))]


def check(step: Step, before: State, *, is_begun: bool | None = None) -> bool:
    """Check a step that raised: it is as it was, or refuses to go on before it is restored; return which."""
    now = find_state(step)
    assert is_begun in (None, now is None)
    if now is not None:
        assert are_same(now, before)
        return False
    for refused in (lambda: step(batch(9)), lambda: step(batch(9), mode="eval"), lambda: step.save("nowhere")):
        with pytest.raises(StepError, match=r"GS290\]: a step of mode train failed after it had begun to write"):
            refused()
    step.restore(before)
    return True


def find_state(step: Step) -> State | None:
    """Return the state of a step; None where it refuses to tell."""
    try:
        return step.state()
    except StepError:
        return None


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", SPECS)
def test_interrupts_at_any_line_leave_nothing_or_a_step_that_says_so(name: str, backend: str) -> None:
    step = build_step(SPECS[name], backend)
    step(batch(1))
    before = step.state()
    take(step)  # whatever is done once is done
    step.restore(before)
    with Interrupt() as counted:
        step(batch(2))
    step.restore(before)
    wanted = take(step)
    found = []
    for at in range(1, counted.count + 1, max(1, counted.count // 30)):
        step.restore(before)
        with pytest.raises(KeyboardInterrupt), Interrupt(at):
            step(batch(2))
        found.append(check(step, before))
    assert found[-1] is True
    if backend == "torch":  # at the line of the call nobody knows how far it came
        assert found[: len(found) - found[::-1].index(False)].count(True) <= 1
    assert all(are_same(one, other) for one, other in zip(take(step), wanted, strict=True))


@pytest.mark.sample(3)
@pytest.mark.parametrize("function", ["first", "second", "third"])
@pytest.mark.parametrize("name", ["scaled", "gated"])
def test_a_function_that_raises_leaves_nothing_or_a_step_that_says_so(name: str, function: str, backend: str) -> None:
    step = build_step(SPECS[name], backend)
    step(batch(1))
    before = step.state()
    wanted = take(step)
    step.restore(before)
    with failing(function), pytest.raises(StepError, match=function) as caught:
        step(batch(2))
    is_begun = function != "first" or backend == "tensorflow"  # a graph that runs is one write
    assert ("it runs again after restore" in str(caught.value)) == is_begun
    check(step, before, is_begun=is_begun)
    assert all(are_same(one, other) for one, other in zip(take(step), wanted, strict=True))


def test_a_checkpoint_mends_a_broken_step_and_a_refused_one_does_not(backend: str, tmp_path: Path) -> None:
    step = build_step(PLAIN, backend)
    step(batch(1))
    step.save(tmp_path / "kept")
    before = step.state()
    with failing("second"), pytest.raises(StepError, match="second"):
        step(batch(2))
    with pytest.raises(Exception, match="GS240"):
        step.load(tmp_path / "nothing")
    with pytest.raises(StepError, match="GS290"):
        step(batch(2))
    step.load(tmp_path / "kept")
    assert are_same(step.state(), before)
    step(batch(2))


def test_an_overflow_that_ends_the_run_leaves_a_step_that_says_so(backend: str) -> None:
    text = SPEC.replace("accumulate: 2, on_overflow: own", "on_overflow: error")
    step = build_step(text, backend)
    step(batch(1))
    before = step.state()
    with pytest.raises(StepError, match="GS280"):
        step({"x": np.full((4, 3), 1e300)})
    check(step, before, is_begun=True)
    step(batch(2))


def test_a_step_without_writes_is_never_broken(backend: str) -> None:
    step = build_step(SPECS["gated"], backend)
    step(batch(1))
    before = step.state()
    with failing("second"), pytest.raises(StepError, match="second"):
        step(batch(2), mode="eval")
    check(step, before, is_begun=False)
