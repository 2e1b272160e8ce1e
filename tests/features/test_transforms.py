"""Gradients are clipped, scaled, projected and disturbed between their loss and the step, as the formulas say."""

from __future__ import annotations

import numpy as np

from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: transforms
inputs: {x: {shape: [2]}, y: {shape: [2]}}
models:
  v: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 1.0}}
  w: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 1.0}}
ops:
  a: {forward: v}
  b: {forward: w}
  ax: {call: mul, inputs: [a, x]}
  by: {call: mul, inputs: [b, y]}
  both: {call: add, inputs: [ax, by]}
  cost: {call: sum, inputs: both}
  step: {update: [v, w], loss: cost}
outputs: [cost]
"""


def clipped(backend, clip, x, y=(0, 0)):
    """Return the two gradients that one step applies, given those of the loss."""
    step = build_step(SPEC.replace("loss: cost}", f"loss: cost, clip: {clip}}}"), backend)
    before = weights(step)
    step({"x": np.array(x, float), "y": np.array(y, float)})
    after = weights(step)
    return tuple(before[name] - after[name] for name in ("v.value", "w.value"))


def test_tf1s_clip_by_global_norm(backend):
    spec = SPEC.replace("[2]}", "[]}").replace("loss: cost}", "loss: cost, clip: {norm: 2.0}}")
    step = build_step(spec.replace("call: sum, inputs: both", "call: mul, inputs: [both, 1.0]"), backend)
    set_weights(step, {"v.value": 1.0, "w.value": 2.0})
    step({"x": np.array(3.0), "y": np.array(4.0)})
    assert np.allclose([weights(step)["v.value"], weights(step)["w.value"]], [-0.2, 0.4], atol=1e-12)


def test_a_true_gradient_of_3_and_4_clipped_to_length_1(backend):
    assert np.allclose(clipped(backend, "{norm: 1.0}", [3, 4])[0], [0.6, 0.8], atol=1e-12)


def test_kerass_clipnorm_is_per_parameter(backend):
    for value in clipped(backend, "{norm: 1.0, per: parameter}", [100, 100], [3, 4]):
        assert np.isclose(np.linalg.norm(value), 1.0, atol=1e-12)
    first, second = clipped(backend, "{norm: 1.0, per: parameter}", [100, 100], [0.3, 0.4])
    assert np.allclose(first, 0.70710678, atol=1e-8)
    assert np.allclose(second, [0.3, 0.4], atol=1e-12)


def test_weight_decay_comes_after_the_clip(backend):
    spec = SPEC.replace("lr: 1.0}", "lr: 0.1, weight_decay: 0.5}")
    step = build_step(spec.replace("loss: cost}", "loss: cost, clip: {value: 1.0}}"), backend)
    set_weights(step, {"v.value": [10, 10]})
    step({"x": np.array([100.0, 100.0]), "y": np.zeros(2)})
    assert np.allclose(weights(step)["v.value"], 9.4, atol=1e-12)


def test_mxnets_order_is_rescale_clip_step(backend):
    rescaled = SPEC.replace("inputs: both}", "inputs: both}\n  half: {call: mul, inputs: [cost, 0.5]}")
    rescaled = rescaled.replace("loss: cost}", "loss: half, clip: {value: 0.3}}")
    step = build_step(rescaled, backend)
    set_weights(step, {"v.value": [0, 0]})
    step({"x": np.array([4.0, 4.0]), "y": np.zeros(2)})
    assert np.allclose(weights(step)["v.value"], -0.3, atol=1e-12)


UNITS = """
graphspec: 1
name: units
inputs: {x: {shape: [3, 2]}}
models:
  v: {parameter: {shape: [3, 2]}, optimizer: {name: sgd, lr: 1.0}}
ops:
  a: {forward: v}
  ax: {call: mul, inputs: [a, x]}
  cost: {call: sum, inputs: ax}
  slopes: {gradient: cost, wrt: v}
  changed: {transform: TRANSFORM}
  step: {update: v, gradients: changed}
outputs: [cost]
"""
SLOPES = np.array([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]])
HEAVY = np.array([[6.0, 8.0], [30.0, 40.0], [0.0, 0.0]])


def changed(backend, transform, times=1):
    """Return what a transform makes of slopes of a matrix."""
    step = build_step(UNITS.replace("TRANSFORM", transform), backend)
    found = []
    for _ in range(times):
        set_weights(step, {"v.value": HEAVY})
        step({"x": SLOPES})
        found.append(HEAVY - weights(step)["v.value"])
    return found[0] if times == 1 else found


def test_adaptive_clipping_goes_by_the_weights_of_each_unit(backend):
    found = changed(backend, "clip_agc, inputs: slopes, args: {clipping: 0.1, eps: 20.0}")
    assert np.allclose(found, [[1.2, 1.6], [0.3, 0.4], [1.2, 1.6]], atol=1e-12)  # 2, as is, and 0.1 * 20
    lengths = np.linalg.norm(changed(backend, "clip_agc, inputs: slopes, args: {clipping: 0.1, axis: -1}"), axis=0)
    assert np.allclose(lengths, 0.1 * np.hypot([6, 8], [30, 40]), atol=1e-12)


def test_the_clip_of_an_update_by_weights_is_that_transform(backend):
    whole = UNITS.replace("gradients: changed", "gradients: slopes, clip: {agc: 0.1, eps: 20.0}")
    step = build_step(whole.replace("  changed: {transform: TRANSFORM}\n", ""), backend)
    set_weights(step, {"v.value": HEAVY})
    step({"x": SLOPES})
    assert np.allclose(HEAVY - weights(step)["v.value"], [[1.2, 1.6], [0.3, 0.4], [1.2, 1.6]], atol=1e-12)


def test_scaled_centred_and_normalized_gradients(backend):
    assert np.allclose(changed(backend, "scale, inputs: slopes, args: {factor: -0.5}"), -0.5 * SLOPES)
    halves = [[-0.5, 0.5], [-0.05, 0.05], [-1.0, 1.0]]
    assert np.allclose(changed(backend, "centralize, inputs: slopes"), halves, atol=1e-12)
    length = np.sqrt(25 + 0.25 + 100)
    assert np.allclose(changed(backend, "normalize, inputs: slopes"), SLOPES / length, atol=1e-12)


def test_noise_is_drawn_anew_in_each_step_and_again_after_a_restart(backend):
    first, second = (each - SLOPES for each in changed(backend, "noise, inputs: slopes, args: {std: 0.5}", times=2))
    assert np.abs(first - second).min() > 0
    assert np.array_equal(changed(backend, "noise, inputs: slopes, args: {std: 0.5}") - SLOPES, first)
    assert np.allclose(changed(backend, "noise, inputs: slopes, args: {std: 0.0}"), SLOPES)


def test_noise_has_the_spread_that_it_says(backend):
    found = changed(backend, "noise, inputs: slopes, args: {std: 0.5}", times=60)
    spread = np.std([each - SLOPES for each in found])
    assert abs(spread - 0.5) < 0.1  # 360 numbers: five times its own standard deviation


TASKS = """
graphspec: 1
name: tasks
seed: 3
inputs: {x: {shape: [3]}, y: {shape: [3]}, z: {shape: [3]}}
models:
  v: {parameter: {shape: [3]}, optimizer: {name: sgd, lr: 1.0}}
ops:
  a: {forward: v}
  ax: {call: mul, inputs: [a, x]}
  ay: {call: mul, inputs: [a, y]}
  az: {call: mul, inputs: [a, z]}
  of_x: {call: sum, inputs: ax}
  of_y: {call: sum, inputs: ay}
  of_z: {call: sum, inputs: az}
  gx: {gradient: of_x, wrt: v}
  gy: {gradient: of_y, wrt: v}
  gz: {gradient: of_z, wrt: v}
  joined: {TRANSFORM}
  step: {update: v, gradients: joined}
outputs: [of_x]
"""


def joined(backend, transform, x, y, z=(0, 0, 0), times=1):
    """Return what a transform makes of several gradients of one parameter."""
    step = build_step(TASKS.replace("TRANSFORM", transform), backend)
    found = []
    for _ in range(times):
        before = weights(step)["v.value"]
        step({"x": np.array(x, float), "y": np.array(y, float), "z": np.array(z, float)})
        found.append(before - weights(step)["v.value"])
    return found[0] if times == 1 else found


def test_a_projection_takes_away_what_is_against_another_gradient(backend):
    project = "transform: project, inputs: [gx, gy]"
    assert np.allclose(joined(backend, project, [1, 0, 0], [-1, 1, 0]), [0.5, 0.5, 0])
    assert np.allclose(joined(backend, project, [1, 0, 0], [1, 1, 0]), [1, 0, 0])
    assert np.allclose(joined(backend, project, [1, 2, 3], [0, 0, 0]), [1, 2, 3])
    assert np.allclose(joined(backend, "call: sub, inputs: [gx, gy]", [1, 2, 3], [3, 2, 2]), [-2, 0, 1])


def without(one, other):
    """Return a vector without what is against another (Yu et al. 2020)."""
    return one - one @ other / (other @ other) * other if one @ other < 0 else one


X, Y, Z = np.array([1.0, 0.0, 0.5]), np.array([-1.0, 1.0, 0.0]), np.array([-0.2, -1.0, -1.0])


def test_pcgrad_of_listed_sets_is_algorithm_1(backend):
    found = joined(backend, "transform: pcgrad, inputs: [gx, gy, gz], args: {order: listed}", X, Y, Z)
    meant = without(without(X, Y), Z) + without(without(Y, X), Z) + without(without(Z, X), Y)
    assert np.allclose(found, meant, atol=1e-12)


def test_pcgrad_draws_an_order_for_each_set_in_each_step(backend):
    orders = [
        {0: without(without(a, b), c), 1: without(without(a, c), b)} for a, b, c in ((X, Y, Z), (Y, X, Z), (Z, X, Y))
    ]
    sums = [sum(order[i] for order, i in zip(orders, bits, strict=True)) for bits in np.ndindex(2, 2, 2)]
    found = joined(backend, "transform: pcgrad, inputs: [gx, gy, gz]", X, Y, Z, times=40)
    which = [int(np.argmin([np.abs(each - one).max() for one in sums])) for each in found]
    assert max(np.abs(each - sums[i]).max() for each, i in zip(found, which, strict=True)) < 1e-12
    assert len(set(which)) > 4
