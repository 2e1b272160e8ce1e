"""`accumulate: n` makes one update from n steps' gradients, weighted by samples; until then nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec import SpecError
from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("A5")

LAYER = """
graphspec: 1
name: merged
inputs: {x: {shape: [batch, 3]}}
models:
  net: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}
  slow: {like: net}
ops:
  y: {forward: net, inputs: x}
  cost: {call: mean, inputs: y}
  step: {update: net, loss: cost, accumulate: 3}
  follow: {ema: net, into: slow, decay: 0.5}
outputs: [cost]
"""
START = np.array([[1.0, 2.0, 3.0]])
BATCHES = [np.full((rows, 3), value) for rows, value in ((2, 1.0), (4, 2.0), (2, 4.0), (3, 1.0), (3, 1.0), (3, 4.0))]


def train(text: str, backend: str, settings: tuple[str, ...] = (), batches=BATCHES):
    step = build_step(text, backend, settings)
    set_weights(step, {"net.0.weight": START, "slow.0.weight": START})
    seen = []
    for batch in batches:
        step({"x": batch})
        seen.append((weights(step)["net.0.weight"].copy(), weights(step)["slow.0.weight"].copy()))
    return step, seen


def test_weights_and_averages_move_with_every_third_step_by_the_mean_of_all_samples(backend: str) -> None:
    _, seen = train(LAYER, backend)
    first = (2 * 1.0 + 4 * 2.0 + 2 * 4.0) / 8  # the mean over samples; that of the three means would be 7/3
    second = 0.9 * first + (1.0 + 1.0 + 4.0) / 3
    one = START - 0.1 * first
    two = one - 0.1 * second
    slow = [0.5 * START + 0.5 * one, 0.25 * START + 0.25 * one + 0.5 * two]
    expected = [(START, START)] * 2 + [(one, slow[0])] * 3 + [(two, slow[1])]
    assert np.allclose([np.stack(pair) for pair in seen], [np.stack(pair) for pair in expected], atol=1e-12)


@pytest.mark.parametrize(("reduce", "gradient"), [("sum", 7.0), ("steps", 7 / 3)])
def test_what_else_may_be_asked_for(reduce: str, gradient: float, backend: str) -> None:
    _, seen = train(LAYER, backend, (f"ops.step.accumulate={{steps: 3, reduce: {reduce}}}",), BATCHES[:3])
    assert np.allclose(seen[-1][0], START - 0.1 * gradient, atol=1e-12)


def test_losses_that_are_sums_are_added_up(backend: str) -> None:
    text = LAYER.replace("{call: mean, inputs: y}", "{loss: wasserstein, inputs: y, reduction: sum}")
    _, seen = train(text, backend, (), BATCHES[:3])
    assert np.allclose(seen[-1][0], START - 0.1 * (2 * 1.0 + 4 * 2.0 + 2 * 4.0), atol=1e-12)


def test_means_and_sums_in_one_loss_have_no_common_count() -> None:
    text = LAYER.replace("{call: mean, inputs: y}", "{call: add, inputs: [one, two]}").replace(
        "  step:",
        "  one: {loss: wasserstein, inputs: y, reduction: sum}\n  two: {loss: wasserstein, inputs: y}\n  step:",
    )
    with pytest.raises(SpecError, match="E-COUNTS"):
        build_step(text, "torch")


def test_a_clip_and_transforms_see_the_whole_window(backend: str) -> None:
    settings = ("ops.step.accumulate=2", "ops.step.clip={norm: 1.0}")
    _, seen = train(LAYER, backend, settings, BATCHES[:2])
    assert np.allclose(seen[-1][0], START - 0.1 / np.sqrt(3), atol=1e-12)
    given = LAYER.replace("{update: net, loss: cost, accumulate: 3}", "{update: net, gradients: short, accumulate: 2}")
    slopes = "  slope: {gradient: cost, wrt: net}\n  short: {transform: clip_norm, inputs: slope, args: {norm: 1.0}}\n"
    given = given.replace("  follow:", f"{slopes}  follow:")
    assert np.allclose(train(given, backend, (), BATCHES[:2])[1][-1][0], seen[-1][0], atol=1e-12)


def test_a_checkpoint_amid_a_window_goes_on_bit_for_bit(backend: str) -> None:
    whole, seen = train(LAYER, backend)
    half, _ = train(LAYER, backend, (), BATCHES[:4])
    other = build_step(LAYER, backend)
    other.restore(half.state())
    for batch in BATCHES[4:]:
        other({"x": batch})
    assert np.array_equal(weights(other)["net.0.weight"], seen[-1][0])
    assert other.state().counters == whole.state().counters


@pytest.mark.parametrize(("before", "after"), [("3", "2"), ("3", "null"), ("null", "3")])
def test_another_window_fits_a_checkpoint(before: str, after: str, backend: str) -> None:
    step, seen = train(LAYER, backend, (f"ops.step.accumulate={before}",), BATCHES[:4])
    other = build_step(LAYER, backend, (f"ops.step.accumulate={after}",))
    other.restore(step.state())
    assert np.array_equal(weights(other)["net.0.weight"], seen[-1][0])


def test_a_report_says_when_the_update_was_applied_and_why_not(backend: str) -> None:
    step, _ = train(LAYER, backend, (), BATCHES[:3])
    assert step.report.fired == ("step", "follow")
    step({"x": BATCHES[0]})
    assert step.report.fired == ()
    assert step.report.updates["step"].reason == "it takes the gradients of 3 steps"
    rare, _ = train(LAYER, backend, ("ops.step.every=2",), BATCHES[:3])
    assert rare.report.updates["step"].reason == "every 2 steps"
