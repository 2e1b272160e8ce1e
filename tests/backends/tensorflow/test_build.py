"""A build makes every graph once, leaves the process as it was, and takes what it is given at the door."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build
from runtime.registry import find_backend
from tests.backends.tensorflow import users
from tests.backends.tensorflow.specs import OPS, batch_of, build_of, plan_of, user

ROOT = Path(__file__).parents[3]
LAYERS = "{layers: [{linear: 5}, tanh, {dropout: 0.3}, {linear: 3}], optimizer: {name: adam, lr: 0.01}}"
GATED = OPS + "  slow: {ema: net, into: shadow, decay: 0.9, every: 3}\n  found: {metric: mean, inputs: loss}\n"
SHADOW = "\n  shadow: {like: net}"


def traces_of(step) -> dict[object, int]:
    """Return how often TensorFlow traced every graph of a step."""
    graphs = step._built.engine.loaded.names["FUNCTIONS"]
    return {key: graph.traced.experimental_get_tracing_count() for key, graph in graphs.items()}


def test_nine_sizes_of_a_batch_take_one_trace_per_active_set():
    step = build_of(LAYERS, GATED, SHADOW, "[loss, found]")
    before = traces_of(step)
    assert len(before) > 2
    assert set(before.values()) == {1}
    for size in range(1, 10):
        step(batch_of(size))
        step(batch_of(size), mode="eval")
    assert traces_of(step) == before


def test_users_python_runs_no_more_once_the_step_is_built():
    step = build_of(user("Traced"))
    built = users.Traced.calls
    for size in range(1, 10):
        step(batch_of(size))
    assert users.Traced.calls == built


def test_building_changes_no_weights_no_counts_and_no_random_state():
    given = users.Stateful()
    given(np.zeros((2, 4), "float32"))
    before = [each.numpy() for each in given.variables]
    states = random.getstate(), np.random.get_state()[1].copy(), tf.random.get_global_generator().state.numpy()
    step = build_of(user("Stateful"), models={"net": given})
    assert all(np.array_equal(old, new.numpy()) for old, new in zip(before, given.variables, strict=True))
    assert states[0] == random.getstate()
    assert np.array_equal(states[1], np.random.get_state()[1])
    assert np.array_equal(states[2], tf.random.get_global_generator().state.numpy())
    assert step.report.step == 0


def test_building_leaves_functions_of_others_as_they_are():
    @tf.function
    def draw():
        return tf.random.normal([3], seed=1)

    expected = [draw().numpy() for _ in range(2)]
    other = tf.function(draw.python_function)
    assert np.array_equal(other(), expected[0])  # numbers go on from call to call, and begin anew in another function
    build_of(LAYERS)
    assert np.array_equal(other(), expected[1])


@pytest.mark.parametrize("net", [LAYERS, user("Stateful"), user("Noisy")])
def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(net):
    def losses(seed):
        step = build_of(net, seed=seed)
        return [step.numpy(step(batch_of(5 + i % 3))["loss"]).tobytes() for i in range(5)]

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)


@pytest.mark.parametrize("wish", ["cpu", "CPU", "cpu:0"])
def test_the_host_has_several_names(wish):
    assert build(plan_of(LAYERS), device=wish).device == "cpu"
    assert build(plan_of(LAYERS)).device in ("cpu", "gpu:0")


def test_arrays_and_tensors_of_either_width_are_taken_in_the_type_of_the_step():
    step, batch = build_of(LAYERS), batch_of()
    turned = {"x": batch["x"][::-1], "t": tf.constant(batch["t"])}
    assert step(turned)["loss"].dtype == tf.float32
    assert build_of(LAYERS, dtype="float64")({**batch, "t": tf.Variable(batch["t"])})["loss"].dtype == tf.float64
    with pytest.raises(SpecError, match=r"GS209.*input 'x' has dtype int64, expected float32"):
        step({**batch, "x": np.ones((6, 4), "int64")})
    with pytest.raises(SpecError, match=r"GS209.*input 'x' is not an array or tensor"):
        step({**batch, "x": [[1.0] * 4] * 6})


def test_the_notes_tell_how_the_step_was_checked():
    assert "checked while the graphs were traced, for batches of any size" in build_of(LAYERS).notes


def test_inputs_of_open_sizes_and_of_unknown_rank_are_traced_once_as_well():
    text = "graphspec: 1\nname: t\ninputs: {x: {shape: [batch, time, 4]}, t: {}}\n"
    text += "models: {m: {layers: [{linear: 3}], optimizer: adam}}\nops:\n  y: {forward: m, inputs: x}\n"
    text += "  l: {loss: mse, inputs: [y, t]}\n  u: {update: m, loss: l}\noutputs: [l]\n"
    step = build(compile_step(load(text), "tensorflow"), device="cpu")
    for time in (5, 7):
        assert step({"x": np.ones((2, time, 4), "f"), "t": np.ones((2, time, 3), "f")})["l"].shape == ()
    assert set(traces_of(step).values()) == {1}


def test_xla_compiles_the_step_to_the_same_numbers_but_for_the_last_bits():
    plain, compiled = build_of(LAYERS, rng="portable"), build_of(LAYERS, rng="portable", jit_compile=True)
    for size in (4, 4, 5):
        one, other = (step.numpy(step(batch_of(size))["loss"]) for step in (plain, compiled))
        assert np.isclose(one, other, rtol=1e-5)
    graphs = compiled._built.engine.loaded.names["FUNCTIONS"].values()
    assert all(graph.traced.get_concrete_function().function_def.attr["_XlaMustCompile"].b for graph in graphs)


SCALED = """
graphspec: 1
name: scaled
precision: {loss_scale: {initial: 8, growth_interval: 2}}
inputs: {x: {shape: [batch, 4]}}
models: {net: {layers: [{linear: 3}, tanh, {linear: 2}], optimizer: {name: adam, lr: 0.1}}}
ops:
  seen: {forward: net, inputs: x}
  fit: {loss: mse, inputs: [seen, 0.5]}
  step: {update: net, loss: fit, accumulate: {steps: 2, on_nonfinite: POLICY}}
outputs: [fit]
"""


@pytest.mark.parametrize("policy", ["drop", "window"])
def test_xla_compiles_verdicts_and_windows(policy):
    plan = compile_step(load(SCALED.replace("POLICY", policy)), "tensorflow")
    plain, compiled = (build(plan, device="cpu", dtype="float64", jit_compile=jit) for jit in (False, True))
    rows = np.random.default_rng(0).normal(size=(6, 3, 4))
    rows[2, 0, 0], scales = np.inf, []
    for x in rows:
        for step in (plain, compiled):
            step({"x": x})
        assert compiled.report == plain.report
        assert compiled.report.updates["step"].nonfinite == plain.report.updates["step"].nonfinite
        assert (plain.report.updates["step"].nonfinite is None) == np.isfinite(x).all()
        scales.append(plain.report.scale_after)
    for name, value in plain.tensors().items():
        assert np.allclose(compiled.tensors()[name], value, rtol=1e-12)
    assert len(set(scales)) > 1


def test_pytorch_has_no_xla():
    text = next(iter(plan_of(LAYERS).spec.texts().values()))
    with pytest.raises(SpecError, match=r"GS268.*XLA compiles steps of TensorFlow only"):
        build(compile_step(load(text), "torch"), jit_compile=True)


def test_a_probe_tells_version_and_devices():
    found = find_backend("tensorflow").probe()
    assert found.version == tf.__version__
    assert (found.devices[0].name, found.devices[0].trouble) == ("cpu", "")


def test_without_tensorflow_emitting_works_and_building_says_what_to_install():
    code = (
        "import sys\nsys.modules['tensorflow'] = None\n"
        "from compiler import compile_step\nfrom graphspec import load, SpecError\nfrom runtime import build, emit\n"
        f"plan = compile_step(load({next(iter(plan_of(LAYERS).spec.texts().values()))!r}), 'tensorflow')\n"
        "assert 'def train_step' in emit(plan)\n"
        "try:\n    build(plan)\nexcept SpecError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "error[GS217]: TensorFlow is not installed" in run.stdout
    assert "pip install 'stepgraph[tensorflow]'" in run.stdout


def test_importing_and_building_write_nothing_to_the_terminal():
    text = next(iter(plan_of(LAYERS).spec.texts().values()))
    code = (
        "from compiler import compile_step\nfrom graphspec import load\nfrom runtime import build\n"
        f"build(compile_step(load({text!r}), 'tensorflow'), device='cpu')"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "")
