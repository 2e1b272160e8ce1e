"""Export under TensorFlow: a SavedModel with the numbers of the step, weights under the same names, and refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build, emit
from runtime.cli import execute
from tests.backends.tensorflow import exported, exporters, users

USERS = exporters.__name__
ALONE = Path(__file__).parents[2] / "conformance" / "parts-alone.yaml"
SIZES = (1, 2, 8, 33)
HEAD = """
graphspec: 1
name: small net
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 3]}SIGNAL}
models:
"""
LAYERS = "{layers: [{linear: 5}, batch_norm, tanh, {dropout: 0.5}, {linear: 3}], optimizer: {name: sgd, lr: 0.1}}"
LEARN = """
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y], mode: train}
  step: {update: net, loss: loss}
"""
AVERAGE = LEARN + "  average: {ema: net, decay: 0.8, buffers: copy, start: 2 steps, use: {eval: swap}}\n"
DRAWS = """
  net: {layers: [{linear: 3}], optimizer: {name: sgd, lr: 0.1}}
  bias: {parameter: {shape: [3]}, optimizer: {name: sgd, lr: 0.1}}
  train: {like: net}
ops:
  out: {forward: net, inputs: x}
  shift: {forward: bias}
  total: {call: add, inputs: [out, shift]}
  loss: {loss: mse, inputs: [total, y], mode: train}
  step: {update: [net, bias], loss: loss}
  follow: {copy: net, into: train}
  other: {forward: train, inputs: x, mode: eval}
  noise: {random: normal, like: total, args: {std: 0.2}, mode: eval}
  noisy: {call: add, inputs: [total, noise], mode: eval}
  mask: {random: bernoulli, shape: [batch, length], mode: eval}
  masked: {call: mul, inputs: [signal, mask], mode: eval}
outputs: [loss, noisy, other, masked, noise, mask]
"""
PARTS = f"""
  net: {{class: '{users.__name__}:Tapped', optimizer: {{name: sgd, lr: 0.1}}}}
  other: {{class: '{users.__name__}:Stateful', optimizer: {{name: sgd, lr: 0.1}}}}
ops:
  out: {{forward: net, inputs: x, outputs: [out, {{seen: {{tap: inner}}}}]}}
  two: {{forward: other, inputs: x}}
  loss: {{loss: mse, inputs: [out, two], mode: train}}
  step: {{update: [net, other], loss: loss}}
outputs: [loss, out, seen, two]
"""


def layers(ops=LEARN, outputs="[loss, out]"):
    return f"  net: {LAYERS}\nops:{ops}outputs: {outputs}\n"


def user(name):
    net = f"{{class: '{USERS}:{name}', optimizer: {{name: sgd, lr: 0.1}}}}"
    return f"  net: {net}\nops:{LEARN}outputs: [loss, out]\n"


LOW = layers(AVERAGE).replace("optimizer:", "precision: bfloat16, optimizer:")
TEXTS = {"average": layers(AVERAGE), "draws": DRAWS, "parts": PARTS, "low": LOW}


def make(text, backend="tensorflow", **more):
    """Return the step of a text, after three steps."""
    head = HEAD.replace("SIGNAL", ", signal: {shape: [batch, length]}" if "signal" in text else "")
    plan = compile_step(load(head + text, ["rng=portable"]), backend)
    step = build(plan, device="cpu", seed=2, allow=[USERS, users.__name__], **more)
    for number in range(3):
        step(batch_of(6, number))
    return step


def batch_of(size, number=0):
    drawn = np.random.default_rng(100 * size + number)
    shapes = {"x": (size, 4), "y": (size, 3), "signal": (size, size + 2)}
    return {name: drawn.normal(size=shape).astype("f") for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory, request):
    """Export, and run the programs with `python -I`, where nothing of ours can be imported; return what each gave."""
    folder, expected = tmp_path_factory.mktemp("programs"), {}
    cases = [each.callspec.params for each in request.session.items if hasattr(each, "callspec")]
    wanted = {params.get("name") for params in cases}  # of those that this run takes
    for name, text in ((name, text) for name, text in TEXTS.items() if name in wanted):
        step = make(text)
        inputs = step.export(folder / name).program.pure.program.inputs
        for size in SIZES:
            batch = batch_of(size)
            outputs = {key: step.numpy(value) for key, value in step(batch, mode="eval").items()}
            np.savez(folder / f"{name} {size}.npz", **{each.name: {**batch, **outputs}[each.name] for each in inputs})
            expected.update({f"{name} {size} {key}": value for key, value in outputs.items()})
    plan = compile_step(load(ALONE), "tensorflow")
    (folder / "emitted.py").write_text(emit(plan))
    step = build(plan, device="cpu", seed=2)
    for number in range(6):
        batch = {**batch_of(4, number), "id": np.random.default_rng(number).integers(0, 6, 4)}
        batch = {"x": batch["x"], "y": batch["y"][:, :2], "id": batch["id"]}
        np.savez(folder / f"batch {number}.npz", **batch)
        expected |= {f"emitted {number} {key}": step.numpy(value) for key, value in step(batch).items()}
    for name, model in step.models.items():
        expected |= {f"emitted {name} {at}": each.numpy() for at, each in enumerate(model.parameters())}
    done = subprocess.run(
        [sys.executable, "-I", exported.__file__], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "alone.npz") as found:
        return dict(found), expected


@pytest.mark.sample(6)
@pytest.mark.xdist_group("exported programs")
@pytest.mark.parametrize("name", TEXTS)
def test_without_stepgraph_the_program_gives_the_numbers_of_the_step_for_batches_of_any_size(alone, name):
    found, expected = alone
    compared = [key for key in found if key.startswith(f"{name} ")]
    assert {key.split()[1] for key in compared} == {str(size) for size in SIZES}
    near = 2**-6 if name == "low" else 1e-6  # other kernels round elsewhere
    for key in compared:
        for each in found[key]:  # called with a dictionary, and by name
            np.testing.assert_allclose(each, expected[key], rtol=near, atol=near, err_msg=key)


@pytest.mark.xdist_group("exported programs")
def test_without_stepgraph_an_emitted_file_of_parts_averages_and_sparse_rows_gives_the_bits_of_the_step(alone):
    found, expected = alone
    compared = [key for key in expected if key.startswith("emitted ")]
    assert len(compared) == 6 * 4 + 4 + 4 + 2 + 2 + 2 + 1 + 1
    assert [key for key in compared if not np.array_equal(found[key], expected[key])] == []


@pytest.mark.needs("torch")
def test_the_weights_of_layers_have_the_same_names_and_shapes_on_both_backends(tmp_path):
    for backend in ("torch", "tensorflow"):
        make(layers(AVERAGE), backend).export(tmp_path / backend, format="weights")
    for name in ("net", "average"):
        ours, theirs = (load_file(tmp_path / each / f"{name}.safetensors") for each in ("tensorflow", "torch"))
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert (ours[key].shape, ours[key].dtype) == (value.shape, value.dtype)
            np.testing.assert_allclose(ours[key], value, rtol=1e-4, atol=1e-5)


def test_a_step_of_float64_is_exported_as_such(tmp_path):
    step = make(layers(AVERAGE), dtype="float64")
    step.export(tmp_path / "out")
    listing = json.loads((tmp_path / "out" / "export.json").read_text())
    assert listing["program"]["inputs"] == {"x": {"shape": ["batch", 4], "dtype": "float64"}}
    program, batch = tf.saved_model.load(str(tmp_path / "out" / "small-net.savedmodel")), batch_of(7)
    found = program({"x": tf.constant(batch["x"], tf.float64)})["out"]
    np.testing.assert_allclose(found, step(batch, mode="eval")["out"], rtol=1e-14)


def test_exporting_leaves_the_step_alone(tmp_path):
    exported, other = make(PARTS), make(PARTS)
    exported.export(tmp_path / "out")
    for number in range(3, 5):
        for mode in ("train", "eval"):
            found, expected = exported(batch_of(6, number), mode), other(batch_of(6, number), mode)
            assert all(np.array_equal(found[name], expected[name]) for name in expected)


REFUSED = {
    "sizes": ("Sized", r"mode eval cannot be exported: 'out' has other numbers as a program"),
    "draw": ("Drawing", r"mode eval cannot be exported: it draws random numbers\n.*\n?.*drawn by RandomStandardNormal"),
    "count": ("Counting", r"mode eval cannot be exported: a forward writes into the variable net\.calls"),
    "table": (
        "Looking",
        r"mode eval cannot be exported: a model uses a resource that is not a variable, such as a table",
    ),
    "type": ("Odd", r"the weights of model 'net' cannot be exported: safetensors does not have .*complex128"),
}


@pytest.mark.parametrize(("name", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_exported_is_told_and_nothing_is_written(tmp_path, name, message):
    step = make(user(name))
    with pytest.raises(SpecError, match=rf"GS265\]: {message}"):
        step.export(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_older_export_is_replaced_with_all_files_in_it(tmp_path):
    step = make(layers())
    step.export(tmp_path / "out")
    step.export(tmp_path / "out", format="weights")
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["export.json", "net.safetensors"]


def test_a_program_with_a_file_of_somebody_else_in_it_is_left_alone(tmp_path):
    step = make(layers())
    step.export(tmp_path / "out")
    (tmp_path / "out" / "small-net.savedmodel" / "notes.txt").write_text("mine")
    with pytest.raises(SpecError, match=r"GS234.*no part of an export \(small-net\.savedmodel/notes\.txt\)"):
        step.export(tmp_path / "out")
    assert (tmp_path / "out" / "small-net.savedmodel" / "saved_model.pb").exists()


RUN = """graphspec: 1
name: classifier
inputs: {image: {shape: [batch, 1, 8, 8]}, label: {shape: [batch], dtype: int64}}
models: {net: {layers: [flatten, {linear: 16}, relu, {linear: 10}], optimizer: {name: adam, lr: 1e-2}}}
ops:
  scores: {forward: net, inputs: image}
  loss: {loss: cross_entropy, inputs: [scores, label], mode: train}
  step: {update: net, loss: loss}
outputs: [loss, scores]
data: {train: {source: digits, batch: 32}}
run: {steps: 2}
"""


def test_a_run_under_tensorflow_is_exported_by_the_command_line(workdir, capsys):
    Path("classifier.yaml").write_text(RUN)
    assert execute(["run", "classifier.yaml", "--backend", "tensorflow", "--out", "out", "--plain"]) == 0
    capsys.readouterr()
    assert execute(["export", "out"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "out/export from step-2",
        "  net.safetensors        4 tensors",
        "  classifier.savedmodel  mode eval: image (float32 [batch, 1, 8, 8]) -> scores",
    ]
    listing = json.loads(Path("out/export/export.json").read_text())
    assert listing["backend"] == "tensorflow"
    assert {"saved_model.pb", "variables/variables.index"} <= listing["program"]["files"].keys()
