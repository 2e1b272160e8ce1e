"""The oracle against loops written by hand for it, in NumPy, on models of one weight."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec.loading import load
from tests.oracle.clocks import Pace
from tests.oracle.oracle import Oracle

SCALARS = {"g": {"value": ()}, "d": {"value": ()}}
HEAD = """
graphspec: 1
name: players
inputs: {x: {shape: [batch]}}
models:
  g: {parameter: {shape: [], init: 2.0}, optimizer: {name: sgd, lr: 0.1}}
  d: {parameter: {shape: [], init: 3.0}, optimizer: {name: sgd, lr: 0.1}}
ops:
  g0: {forward: g}
  d0: {forward: d}
  both: {call: mul, inputs: [g0, d0]}
  d_loss: {call: sum, inputs: both}
  step_d: {update: d, loss: d_loss}
"""
BATCH = {"x": np.ones(2)}


def weights(text: str, steps: int = 1, shapes: dict | None = None) -> dict[str, float]:
    oracle = Oracle(load(text), shapes or SCALARS)
    for _ in range(steps):
        oracle.step(BATCH)
    return {model: float(state["value"]) for model, state in oracle.state.items()}


def test_players_of_one_value_move_at_the_same_time():
    # d - 0.1 g and g - 0.1 d, both from the start: 3 - 0.2, 2 - 0.3.
    found = weights(HEAD + "  step_g: {update: g, loss: d_loss}\n")
    assert found == pytest.approx({"d": 2.8, "g": 1.7})


def test_after_lets_a_forward_see_the_other_player_moved():
    text = (
        HEAD
        + """
  d1: {forward: d, after: step_d}
  judged: {call: mul, inputs: [g0, d1]}
  g_loss: {call: sum, inputs: judged}
  step_g: {update: g, loss: g_loss}
"""
    )
    assert weights(text) == pytest.approx({"d": 2.8, "g": 2 - 0.1 * 2.8})


def test_a_gradient_sums_the_uses_of_all_versions():
    # l = d@0 * g + d@1: by d it is g + 1 at whichever versions, applied to d@1.
    text = (
        HEAD
        + """
  d1: {forward: d, after: step_d}
  l: {call: add, inputs: [both, d1]}
  again: {update: d, loss: l, after: step_d}
"""
    )
    assert weights(text) == pytest.approx({"d": 2.8 - 0.1 * 3, "g": 2.0})


def test_an_average_takes_the_new_weights_and_rests_with_its_source():
    shapes = {**SCALARS, "mean": {"value": ()}}
    text = HEAD.replace("loss: d_loss}", "loss: d_loss, every: 2}") + "  mean: {ema: d, decay: 0.5}\n"
    assert weights(text, 1, shapes) == pytest.approx({"d": 3.0, "g": 2.0, "mean": 3.0})
    assert weights(text, 2, shapes) == pytest.approx({"d": 2.8, "g": 2.0, "mean": 2.9})


def test_two_updates_of_a_model_share_its_momentum_and_its_clock():
    text = HEAD.replace("lr: 0.1}}\nops", "lr: {schedule: piecewise, at: {0: 0.1, 1: 0.2}}, momentum: 0.5}}\nops")
    text += "  again: {update: d, loss: d_loss, after: step_d}\n"
    # v = 2, d = 3 - 0.1 * 2; then v = 0.5 * 2 + 2, d = 2.8 - 0.2 * 3.
    assert weights(text)["d"] == pytest.approx(2.2)


@pytest.mark.needs("torch")
def test_a_slope_is_differentiated_again():
    # slope of sum(g0 * d0) by g0 is d; (d - 1)^2 by d is 2 (d - 1).
    text = (
        HEAD
        + """
  slope: {gradient: d_loss, wrt: g0}
  penalty: {loss: mse, inputs: [slope, 1.0]}
  more: {update: d, loss: penalty, after: step_d}
"""
    )
    assert weights(text)["d"] == pytest.approx(2.8 - 0.1 * 2 * (3 - 1))


def test_a_schedule_counts_the_updates_of_its_optimizer():
    text = HEAD.replace("lr: 0.1}}\nops", "lr: {schedule: linear, from: 0.1, over: 2}}}\nops")
    text = text.replace("loss: d_loss}", "loss: d_loss, every: 2}")
    # Rates 0.1 at the first update, in step 2, and 0.05 at the second, in step 4.
    assert weights(text, 4)["d"] == pytest.approx(3 - 0.2 - 0.1)


# ---------------------------------------------------------------- shared weights


TIED = """
graphspec: 1
name: tied
rng: portable
inputs: {x: {shape: [batch, 1]}}
models:
  c: {class: "tests.properties.users:Coder", args: {size: 1}, optimizer: {name: sgd, lr: 0.1}}
  r:
    class: "tests.properties.users:Reader"
    args: {size: 1}
    optimizer: {name: sgd, lr: 0.1}
    traits: {ties: [c.weight]}
ops:
  code: {forward: c, inputs: x}
  text: {forward: r, inputs: code}
  l: {call: sum, inputs: text}
"""
TIED_SHAPES = {"c": {"weight": (1, 1), "bias": (1,)}, "r": {"weight": (1, 1), "scale": (1,)}}


def tied_step(update: str) -> tuple[dict, dict]:
    """Return the numbers of both models before a step at x = 1, and after it."""
    oracle = Oracle(load(TIED + update), TIED_SHAPES)
    old, _ = oracle.state, oracle.step({"x": np.ones((1, 1))})
    return flat(old), flat(oracle.state)


def flat(state: dict) -> dict:
    return {f"{model}.{name}": value.item() for model, one in state.items() for name, value in one.items()}


def tied_slope(old: dict) -> float:
    """Return the derivative of w tanh(w + b) s by w, which has two terms."""
    code = np.tanh(old["c.weight"] + old["c.bias"])
    return old["r.scale"] * (code + old["c.weight"] * (1 - code**2))


@pytest.mark.parametrize("update", ["c", "r", "[c, r], optimizer: {name: sgd, lr: 0.1}"])
def test_a_shared_weight_has_one_gradient_and_is_stepped_once(update):
    old, new = tied_step(f"  step: {{update: {update}, loss: l}}\n")
    assert old["c.weight"] == old["r.weight"] != 0
    assert new["c.weight"] == new["r.weight"] == pytest.approx(old["c.weight"] - 0.1 * tied_slope(old))


def test_a_clip_counts_a_shared_weight_once():
    clipped = "optimizer: {name: sgd, lr: 1}, clip: {norm: 0.1}"
    old, new = tied_step(f"  step: {{update: [c, r], loss: l, {clipped}}}\n")
    moved = [new[name] - old[name] for name in ("c.weight", "c.bias", "r.scale")]
    assert np.linalg.norm(moved) == pytest.approx(0.1)


def test_a_forward_sees_a_weight_that_was_stepped_as_another_model_s():
    late = "  step: {update: c, loss: l}\n  late: {forward: r, inputs: x, after: step}\noutputs: [late]\n"
    oracle = Oracle(load(TIED + late), TIED_SHAPES)
    seen = oracle.step({"x": np.ones((1, 1))})["late"].item()
    assert seen == pytest.approx((oracle.state["c"]["weight"] * oracle.state["r"]["scale"]).item())


# ---------------------------------------------------------------- clocks


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        ("start: 3 epochs", [5, 6]),
        ("start: 2.5 epochs", [4, 5, 6]),
        ("start: 7 samples", [3, 4, 5, 6]),
        ("until: 1 epochs", [1, 2]),
        ("until: 9 samples", [1, 2, 3]),
    ],
)
def test_epochs_and_samples_are_counted_in_steps(words, steps):
    text = HEAD + f"  step_g: {{update: g, loss: d_loss, {words}}}\n"
    oracle, moved, before = Oracle(load(text), SCALARS, pace=Pace(epoch=2, rows=3)), [], 2.0
    for step in range(1, 7):
        oracle.step(BATCH)
        moved += [step] if oracle.state["g"]["value"] != before else []
        before = oracle.state["g"]["value"]
    assert moved == steps
