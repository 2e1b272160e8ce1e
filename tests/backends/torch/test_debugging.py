"""A debug build stops at the first number that is not finite, names where it began, and changes no number itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from compiler import compile_step
from graphspec import load
from runtime import StepError, build
from tests.backends.torch.specs import OPS, USERS, batch_of, build_of, user

EXAMPLES = Path(__file__).parents[3] / "examples"
NET = "{layers: [{linear: 8}, relu, {linear: 3}], optimizer: {name: adam, lr: 0.01}}"
END = """  loss: {loss: mse, inputs: [%s, t]}
  step: {update: net, loss: loss}
"""
MASKED = """  none: {call: mul, inputs: [t, 0.0]}
  low: {call: log, inputs: none}
  logits: {call: concat, inputs: [y, low]}
  open: {call: softmax, inputs: logits}
  shares: {call: slice, inputs: open, args: {stop: 3}}
"""
GAN = """
graphspec: 1
name: gan
inputs: {x: {shape: [batch, 4]}}
models:
  g: {layers: [{linear: 4}, {linear: 4}], optimizer: {name: sgd, lr: 0.1}}
  d: {layers: [{linear: 4}, {linear: 1}], optimizer: {name: sgd, lr: 0.1}}
ops:
  fake: {forward: g, inputs: x}
  on_fake: {forward: d, inputs: fake}
  d_loss: {call: mean, inputs: on_fake}
  step_d: {update: d, loss: d_loss}
  judged: {forward: d, inputs: fake, after: [step_d]}
  nothing: {call: mul, inputs: [judged, 0.0]}
  root: {call: sqrt, inputs: nothing}
  g_loss: {call: mean, inputs: root}
  step_g: {update: g, loss: g_loss, every: EVERY}
outputs: [d_loss, g_loss]
"""


def fail(step, batch=None, mode="train"):
    """Take a step that must not succeed; return the one diagnostic."""
    with pytest.raises(StepError) as raised:
        step(batch or batch_of(), mode)
    (found,) = raised.value.diagnostics
    return found


def ops(calls, last="y"):
    """Return the ops of a regression with some calls between its model and its loss."""
    return f"\n  y: {{forward: net, inputs: x}}\n{calls}{END % last}"


def gan(every=1):
    """Return the debug build of a GAN whose generator's gradient is not finite."""
    return build(compile_step(load(GAN.replace("EVERY", str(every)))), device="cpu", seed=1, debug=True)


def test_nan_in_the_data_is_named_by_input_and_row():
    batch = batch_of()
    batch["x"][3, 1] = np.nan
    found = fail(build_of(NET, debug=True), batch)
    assert (found.code, found.message) == ("GS261", "input 'x' has nan, first in row 3")
    assert found.span.line == 3
    assert "1 of 24 nan (4.17 %)" in found.notes[1]
    assert found.notes[2] == "it came to light at op 'y' (forward net): its result 'y' has nan"


def test_nan_in_the_data_that_a_model_takes_care_of_is_none_of_our_business():
    batch = batch_of()
    batch["x"][3, 1] = np.nan
    step = build_of(user("Careful"), debug=True)
    assert np.isfinite(step.numpy(step(batch)["loss"]))


def test_the_logarithm_of_a_negative_number_is_named_with_the_range_of_what_it_was_given():
    calls = "  ln: {call: log, inputs: y}\n  twice: {call: add, inputs: [ln, ln]}\n"
    found = fail(build_of(NET, ops(calls, "twice"), debug=True))
    assert found.message == "op 'ln' (call log): its result 'ln' has nan"
    assert found.span.line == 8
    plain = build_of(NET, outputs="[y]")
    y = plain.numpy(plain(batch_of())["y"])
    assert f"y: float32 [6, 3], min {y.min():.4g}, max {y.max():.4g}, mean {y.mean():.4g}" in found.notes[2]


def test_the_weights_that_were_read_are_told_with_their_version():
    step = build_of(NET, debug=True)
    with torch.no_grad():
        step.models["net"][2].bias[1] = torch.nan
    found = fail(step)
    assert found.message == "net.2.bias had nan before the step began"
    assert found.span.line == 5
    assert "net@0: float32 in 4 tensors" in found.notes[-1]


def test_zero_by_zero_in_a_loss_of_the_users_is_named():
    name = f"{USERS}:nothing_by_nothing"
    found = fail(build_of(NET, OPS.replace("loss: mse", f"loss: '{name}'"), debug=True))
    assert found.message == f"op 'loss' (loss {name}): its result 'loss' is nan"


def test_an_infinite_loss_is_followed_back_to_the_first_infinite_value():
    calls = (
        "far: {call: mul, inputs: [y, 1.0e+30]}",
        "wide: {call: exp, inputs: far}",
        "half: {call: mul, inputs: [wide, 0.5]}",
    )
    found = fail(build_of(NET, ops("".join(f"  {call}\n" for call in calls), "half"), debug=True))
    assert found.message == "op 'wide' (call exp): its result 'wide' has inf"
    assert "it came to light at op 'loss' (loss mse): its result 'loss' is inf" in found.notes


def test_infinities_that_end_in_a_finite_loss_are_meant():
    step = build_of(NET, ops(MASKED, "shares"), outputs="[loss, low]", debug=True)
    outputs = {name: step.numpy(value) for name, value in step(batch_of()).items()}
    assert np.isfinite(outputs["loss"])
    assert np.isneginf(outputs["low"]).all()


def test_a_gradient_that_is_not_finite_names_parameter_and_derivative():
    calls = "  zero: {call: mul, inputs: [y, 0.0]}\n  root: {call: sqrt, inputs: zero}\n"
    found = fail(build_of(NET, ops(calls, "root"), debug=True))
    assert found.message == "op 'step' (gradient): the gradient of 'loss' by 'net.0.weight' has nan"
    assert found.notes[1] == "the loss is finite, the derivative of op 'root' (call sqrt) is not"
    assert found.notes[2].startswith("'root' was given:\n  zero: float32 [6, 3]")
    assert found.span.line == 11


def test_a_derivative_inside_a_model_is_named_by_its_forward():
    found = fail(build_of(user("Rooted"), debug=True))
    assert found.message == "op 'step' (gradient): the gradient of 'loss' by 'net.layer.weight' has nan"
    assert found.notes[1] == "the loss is finite, the derivative of op 'y' (forward net) is not"


@pytest.mark.parametrize(
    ("optimizer", "weight", "place"),
    [
        ("{name: sgd, lr: 1.0e+38}", 1e3, "'net.0.weight'"),
        ("{name: adam, lr: 0.1}", 1e24, "slot 'exp_avg_sq of net.0.weight' of optimizer 'net'"),
    ],
)
def test_a_write_that_overflows_names_what_was_written(optimizer, weight, place):
    net = NET.replace("{name: adam, lr: 0.01}", optimizer)
    found = fail(build_of(net, OPS.replace("mse, ", f"l1, weight: {weight:.1e}, "), debug=True))
    assert found.message == f"op 'step' (update): what it wrote into {place} has inf"
    assert found.span.line == 9
    assert any(note.startswith("optimizer 'net': lr ") for note in found.notes)


def test_statistics_that_overflow_are_a_write_of_their_forward():
    net = NET.replace("relu", "{batch_norm: {}}")
    batch = batch_of()
    batch["x"] *= 1e20
    found = fail(build_of(net, debug=True), batch)
    assert found.message == "op 'y' (forward net): what it wrote into 'net.1.running_var' has inf"


def test_a_later_update_is_named_though_an_earlier_one_was_made():
    found = fail(gan())
    assert found.message == "op 'step_g' (gradient): the gradient of 'g_loss' by 'g.0.weight' has nan"
    assert "the derivative of op 'root' (call sqrt) is not" in found.notes[1]
    assert any("d@1: float32 in 4 tensors" in note for note in found.notes)
    assert found.span.line == 17


def test_a_gated_update_is_found_in_the_step_in_which_it_fires():
    step = gan(every=2)
    step(batch_of())
    found = fail(step)
    assert found.message.startswith("op 'step_g' (gradient)")
    assert found.notes[0] == "in step 2 of mode train"


def test_a_single_number_that_is_returned_may_not_be_infinite():
    more = f"{OPS}  size: {{call: sum, inputs: y}}\n  huge: {{call: mul, inputs: [size, 1.0e+38, 1.0e+38]}}\n"
    found = fail(build_of(NET, more, outputs="[loss, huge]", debug=True))
    assert found.message == "op 'huge' (call mul): its result 'huge' is inf"


@pytest.mark.parametrize("name", ["gan-digits", "ema-classifier"])
def test_numbers_are_the_same_bit_for_bit(name):
    plan = compile_step(load(EXAMPLES / name / f"{name}.yaml"))
    plain, debug = (build(plan, device="cpu", seed=3, debug=each) for each in (False, True))
    random = np.random.default_rng(0)
    for _ in range(5):
        batch = {"image": random.random((16, 1, 8, 8), np.float32), "label": random.integers(0, 10, 16)}
        outputs = plain(batch), debug(batch)
        assert all(torch.equal(value, outputs[1][key]) for key, value in outputs[0].items())
    assert all(torch.equal(tensor, debug.tensors()[key]) for key, tensor in plain.tensors().items())


def test_the_source_is_that_of_a_normal_build_with_lines_of_checks():
    plan = compile_step(load(GAN.replace("EVERY", "2")))
    plain, debug = (build(plan, device="cpu", debug=each).source for each in (False, True))
    body = re.compile(r"^def train_step.*?(?=^FUNCTIONS)", re.DOTALL | re.MULTILINE)
    checks = re.compile(r"^( +)checks\.\w+\((?:.*\)|\n(?:\1 .*\n)*\1\))\n", re.MULTILINE)
    assert checks.sub("", body.search(debug)[0]) == body.search(plain)[0]
    assert "checks" not in plain
