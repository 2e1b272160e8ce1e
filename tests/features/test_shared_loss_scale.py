"""Several optimizers share one scale, updated once per step; groups of updates commit together, or each alone."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec import SpecError
from tests.features.overflows import INF
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("B10")

TWO = """
graphspec: 1
name: two
inputs: {p: {shape: []}, q: {shape: []}}
models:
  a: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 1.0}}
  b: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 1.0}}
  slow: {like: b}
ops:
  va: {forward: a}
  vb: {forward: b}
  la: {call: mul, inputs: [va, p]}
  lb: {call: mul, inputs: [vb, q]}
  step_a: {update: a, loss: la}
  step_b: {update: b, loss: lb}
  follow: {ema: b, into: slow, decay: 0.5}
precision: {loss_scale: {initial: 4, growth_steps: 1}}
"""


def run(backend: str, pairs: list[tuple[float, float]], settings: tuple[str, ...] = (), text: str = TWO):
    step = build_step(text, backend, settings, dtype="float32")
    for p, q in pairs:
        step({"p": np.array(p, np.float32), "q": np.array(q, np.float32)})
    return step, {name.partition(".")[0]: float(value) for name, value in weights(step).items()}


def test_one_snapshot_serves_all_and_one_update_comes_last(backend: str) -> None:
    step, found = run(backend, [(2.0, 3.0)])
    assert (found["a"], found["b"]) == (-1.0, -2.0)  # with the scale doubled in between b would be -.5
    assert (step.report.scale_before, step.report.scale_after) == (4, 8)


POLICIES = {
    "group": ({"a": 1.0, "b": 1.0, "slow": 1.0}, ("step_a", "step_b", "follow")),
    "all": ({"a": 1.0, "b": 1.0, "slow": 1.0}, ("step_a", "step_b", "follow")),
    "own": ({"a": 1.0, "b": -2.0, "slow": -0.5}, ("step_a",)),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_what_an_overflow_of_one_stops(policy: str, backend: str) -> None:
    settings = (f"ops.step_a.on_overflow={policy}", f"ops.step_b.on_overflow={policy}")
    step, found = run(backend, [(INF, 3.0)], settings)
    expected, held = POLICIES[policy]
    assert (found, step.report.held, step.report.scale_after) == (expected, held, 2)
    assert step.report.updates["step_a"].reason == "gradients of 'step_a' are not finite"
    assert step.report.updates["step_b"].skipped == (policy != "own")


ORDERED = TWO.replace("{forward: b}", "{forward: b, after: step_a}")


def test_what_happens_before_different_updates_is_no_group(backend: str) -> None:
    step, found = run(backend, [(2.0, INF), (INF, 3.0)], text=ORDERED)
    assert (found["a"], found["b"]) == (-1.0, -2.0)
    assert step.report.held == ("step_a",)


def test_all_cannot_undo_what_happens_first(backend: str) -> None:
    with pytest.raises(SpecError, match="E-SKIP-SCOPE"):
        build_step(ORDERED, backend, ("ops.step_a.on_overflow=all",))


@pytest.mark.needs("torch")
def test_the_compiler_says_why_a_member_waits() -> None:
    from compiler import compile_step
    from graphspec import load

    plan = compile_step(load(TWO), "torch", "listed")
    reasons = [each for graph in plan.graphs.values() for each in graph.decisions if each.code == "DEFER"]
    assert [each.subject for each in reasons] == ["step_a"]
    assert [(each.edge, each.op) for each in reasons[0].because] == [("verdict", "step_b")]


def test_a_group_of_six_is_applied_or_skipped_as_a_whole(backend: str) -> None:
    names = "abcdef"
    text = "graphspec: 1\nname: six\nprecision: {loss_scale: {initial: 4, growth_steps: 1}}\ninputs:\n"
    text += "".join(f"  p{name}: {{shape: []}}\n" for name in names) + "models:\n"
    one = "{parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 1.0}}"
    text += "".join(f"  {name}: {one}\n" for name in names) + "ops:\n"
    for name in names:
        text += f"  v{name}: {{forward: {name}}}\n  l{name}: {{call: mul, inputs: [v{name}, p{name}]}}\n"
        text += f"  step_{name}: {{update: {name}, loss: l{name}}}\n"
    step = build_step(text, backend, dtype="float32")
    slopes = {f"p{name}": np.array(at, np.float32) for at, name in enumerate(names)}
    for guilty in ("pa", "pf"):
        step({**slopes, guilty: np.array(INF, np.float32)})
        assert {float(value) for value in weights(step).values()} == {1.0}
        assert step.report.held == tuple(f"step_{name}" for name in names)
        assert step.report.updates["step_c"].reason == f"gradients of 'step_{guilty[1]}' are not finite"
    step(slopes)
    assert [float(value) for value in weights(step).values()] == [1.0, 0.0, -1.0, -2.0, -3.0, -4.0]
    assert (step.report.scale_before, step.report.scale_after) == (1, 2)
