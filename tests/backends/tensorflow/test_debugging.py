"""A debug build runs eagerly, stops at the first number that is not finite and names where it began."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from compiler import compile_step
from graphspec import load
from runtime import StepError, build
from runtime.cli import execute
from tests.backends.tensorflow.specs import OPS, batch_of, build_of, user

EXAMPLES = Path(__file__).parents[3] / "examples"
NET = "{layers: [{linear: 8}, relu, {linear: 3}], optimizer: {name: adam, lr: 0.01}}"
END = """  loss: {loss: mse, inputs: [%s, t]}
  step: {update: net, loss: loss}
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


def fail(step, batch=None):
    """Take a step that must not succeed; return the one diagnostic."""
    with pytest.raises(StepError) as raised:
        step(batch or batch_of())
    (found,) = raised.value.diagnostics
    assert found.code == "GS261"
    return found


def ops(calls, last="y"):
    """Return the ops of a regression with some calls between its model and its loss."""
    return f"\n  y: {{forward: net, inputs: x}}\n{calls}{END % last}"


def test_nan_in_the_data_is_named_by_input_and_row():
    batch = batch_of()
    batch["x"][3, 1] = np.nan
    found = fail(build_of(NET, debug=True), batch)
    assert found.message == "input 'x' has nan, first in row 3"
    assert found.notes[0] == "in step 1 of mode train"
    assert "1 of 24 nan (4.17 %)" in found.notes[1]
    assert found.notes[2] == "it came to light at op 'y' (forward net): its result 'y' has nan"


def test_the_logarithm_of_a_negative_number_is_named_with_the_range_of_what_it_was_given():
    calls = "  ln: {call: log, inputs: y}\n  twice: {call: add, inputs: [ln, ln]}\n"
    found = fail(build_of(NET, ops(calls, "twice"), debug=True))
    assert found.message == "op 'ln' (call log): its result 'ln' has nan"
    plain = build_of(NET, outputs="[y]")
    y = plain.numpy(plain(batch_of())["y"])
    assert f"y: float32 [6, 3], min {y.min():.4g}, max {y.max():.4g}, mean {y.mean():.4g}" in found.notes[2]


def test_an_infinite_loss_is_followed_back_to_the_first_infinite_value():
    calls = "  far: {call: mul, inputs: [y, 1.0e+30]}\n  wide: {call: exp, inputs: far}\n"
    found = fail(build_of(NET, ops(calls, "wide"), debug=True))
    assert found.message == "op 'wide' (call exp): its result 'wide' has inf"
    assert "it came to light at op 'loss' (loss mse): its result 'loss' is inf" in found.notes


def test_weights_that_are_nan_before_the_step_are_told_with_their_version():
    step = build_of(NET, debug=True)
    variable = step.models["net"].named_parameters()["2.bias"]
    variable.assign([0.0, float("nan"), 0.0])
    found = fail(step)
    assert found.message == "net.2.bias had nan before the step began"
    assert "net@0: float32 in 4 tensors" in found.notes[-1]


def test_a_gradient_that_is_not_finite_names_parameter_and_derivative():
    calls = "  zero: {call: mul, inputs: [y, 0.0]}\n  root: {call: sqrt, inputs: zero}\n"
    found = fail(build_of(NET, ops(calls, "root"), debug=True))
    assert found.message == "op 'step' (gradient): the gradient of 'loss' by 'net.0.weight' has nan"
    assert found.notes[1] == "the loss is finite, the derivative of op 'root' (call sqrt) is not"
    assert found.notes[2].startswith("'root' was given:\n  zero: float32 [6, 3]")


def test_a_derivative_inside_a_model_of_keras_is_named_by_its_forward():
    found = fail(build_of(user("Rooted"), debug=True))
    assert found.message == "op 'step' (gradient): the gradient of 'loss' by 'net.layer.bias' has nan"
    assert found.notes[1] == "the loss is finite, the derivative of op 'y' (forward net) is not"


@pytest.mark.parametrize(
    ("optimizer", "weight", "place", "rate"),
    [
        ("{name: sgd, lr: 1.0e+38}", 1e3, "'net.0.weight'", "lr 1e+38"),
        ("{name: adam, lr: {schedule: linear, from: 0.5, to: 0.1, over: 8}}", 1e24, "slot 'exp_avg_sq of", "lr 0.5"),
    ],
)
def test_a_write_that_overflows_names_what_was_written(optimizer, weight, place, rate):
    net = NET.replace("{name: adam, lr: 0.01}", optimizer)
    found = fail(build_of(net, OPS.replace("mse, ", f"l1, weight: {weight:.1e}, "), debug=True))
    assert found.message.startswith(f"op 'step' (update): what it wrote into {place}")
    assert found.message.endswith(" has inf")
    assert f"optimizer 'net': {rate}, update 1" in found.notes


def test_a_gated_update_is_found_in_the_step_in_which_it_fires():
    step = build(compile_step(load(GAN.replace("EVERY", "2")), "tensorflow"), device="cpu", seed=1, debug=True)
    step(batch_of())
    found = fail(step)
    assert found.message == "op 'step_g' (gradient): the gradient of 'g_loss' by 'g.0.weight' has nan"
    assert found.notes[0] == "in step 2 of mode train"
    assert any("d@1: float32 in 4 tensors" in note for note in found.notes)


def test_after_a_step_that_failed_nothing_is_recorded_any_more_and_the_next_can_be_taken():
    step, x = build_of(NET, debug=True), tf.constant([2.0])
    bad = {name: array * np.nan for name, array in batch_of().items()}
    fail(step, bad)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    assert float(tape.gradient(y, x)[0]) == 4.0
    assert np.isfinite(step.numpy(step(batch_of())["loss"]))


def steps_apart(dtype):
    """Return how far the variables of a debug build and of a plain one are apart after two steps of a GAN."""
    plan = compile_step(load(EXAMPLES / "gan-digits" / "gan-digits.yaml", ["vars.width=32"]), "tensorflow")
    plain, debug = (build(plan, device="cpu", seed=3, debug=each, dtype=dtype) for each in (False, True))
    for number in range(2):
        batch = {"image": np.random.default_rng(number).random((16, 1, 8, 8), np.float32)}
        plain(batch), debug(batch)
    tensors = debug.tensors()
    found = {name: (np.asarray(each), np.asarray(tensors[name])) for name, each in plain.tensors().items()}
    return max(float(np.abs(one - other).max()) for one, other in found.values())


@pytest.fixture
def as_written():
    """Let TensorFlow run graphs as they are written: its optimizer fuses operations and orders sums anew."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


def test_numbers_are_those_of_the_graph_as_it_is_written_bit_for_bit(as_written):
    assert steps_apart("float32") == 0.0


def test_where_tensorflow_rewrites_the_graph_numbers_differ_by_rounding():
    assert steps_apart("float64") <= 1e-12


RUN = """graphspec: 1
name: line
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models: {net: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  guess: {forward: net, inputs: x}
  square: {call: mul, inputs: [guess, guess]}
  negative: {call: neg, inputs: square}
  root: {call: log, inputs: negative}
  error: {loss: mse, inputs: [root, y]}
  learn: {update: net, loss: error}
outputs: [error]
data: {train: {source: npz, path: line.npz, batch: 8}}
run: {steps: 4}
"""


def test_a_run_keeps_the_step_and_replay_takes_it_again(workdir, capsys):
    np.savez("line.npz", x=-np.ones((16, 2)), y=np.ones((16, 1)))
    Path("line.yaml").write_text(RUN)
    common = ["run", "line.yaml", "--device", "cpu"]
    assert execute([*common, "--out", "out", "--backend", "tensorflow", "--debug", "nan"]) == 1
    told = capsys.readouterr().err
    assert "error[GS261]: op 'root' (call log): its result 'root' has nan" in told
    assert "--backend tensorflow" in told
    kept = json.loads(Path("out/nan-step-1/manifest.json").read_text())
    assert kept["sections"]["origin"]["backend"] == "tensorflow"
    assert execute([*common, "--replay", "out/nan-step-1"]) == 1
    assert "error[GS261]: op 'root' (call log): its result 'root' has nan" in capsys.readouterr().err
