"""A model is layers, a class or a function that returns one, and may load initial weights from a file."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build, emit
from tests.conformance.scenario import BACKENDS
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("A17")

SPEC = """
graphspec: 1
name: started
inputs: {x: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: 5}, batch_norm, relu, {linear: 3}], optimizer: {name: sgd, lr: 0.1}, weights: net.safetensors}
  twin: {like: net}
  fresh: {like: net, init: fresh}
ops:
  out: {forward: net, inputs: x}
  cost: {call: mean, inputs: out}
  step: {update: net, loss: cost}
  other: {forward: twin, inputs: x, mode: eval}
  another: {forward: fresh, inputs: x, mode: eval}
  average: {ema: net, decay: 0.5, buffers: copy}
  slow: {forward: average, inputs: x, mode: eval}
outputs: [cost, other, another, slow]
"""
BRAIN = """
graphspec: 1
name: brain
models: {w: {parameter: {shape: [3]}, optimizer: sgd}}
ops: {v: {forward: w}, cost: {call: sum, inputs: v}, step: {update: w, loss: cost}}
outputs: [cost]
"""
SHAPES = {"0.weight": [5, 4], "0.bias": [5], "1.weight": [5], "1.bias": [5], "3.weight": [3, 5], "3.bias": [3]}
SHAPES |= {"1.running_mean": [5], "1.running_var": [5]}
MADE = """
graphspec: 1
name: made
inputs: {{x: {{shape: [batch, 4]}}}}
models:
  net:
    class: {{torch: "tests.features.factories:make_{0}torch", tensorflow: "tests.features.factories:make_{0}keras"}}
    args: {{width: 3}}
    optimizer: {{name: sgd, lr: 0.5}}
    weights: {1}
  twin: {{like: net}}
ops:
  out: {{forward: net, inputs: x}}
  cost: {{call: mean, inputs: out}}
  step: {{update: net, loss: cost}}
  other: {{forward: twin, inputs: x, mode: eval}}
outputs: [cost, other]
"""


def write(path: Path, dtype: type = np.float64, **changes: np.ndarray | None) -> dict[str, np.ndarray]:
    """Write a file of made-up weights, and return them; None leaves one out."""
    rng = np.random.default_rng(7)
    made = {name: rng.uniform(0.5, 1.5, shape).astype(dtype) for name, shape in SHAPES.items()}
    made["1.num_batches_tracked"] = np.array(6)
    arrays = {name: value for name, value in (made | changes).items() if value is not None}
    save_file(arrays, path)
    return arrays


def start(folder: Path, backend: str, *settings: str, **keywords: str):
    """Build the step with the file in a folder."""
    return build_step(SPEC, backend, [f"models.net.weights={folder / 'net.safetensors'}", *settings], **keywords)


def test_a_model_and_its_copies_start_from_the_file_and_a_fresh_one_does_not(backend: str, tmp_path: Path) -> None:
    arrays = write(tmp_path / "net.safetensors")
    found = weights(start(tmp_path, backend))
    for name, value in arrays.items():
        for model in ("net", "twin", "average"):
            assert np.array_equal(found[f"{model}.{name}"], value), (model, name)
    assert not np.array_equal(found["fresh.0.weight"], arrays["0.weight"])


@pytest.mark.parametrize("source", BACKENDS)
def test_what_either_backend_exports_fits_either(source: str, backend: str, tmp_path: Path) -> None:
    write(tmp_path / "net.safetensors")
    first = start(tmp_path, source)
    first({"x": np.ones((3, 4))})
    first.export(tmp_path / "out", format="weights")
    second = start(tmp_path / "out", backend)
    exported = load_file(tmp_path / "out" / "net.safetensors")
    found = weights(second)
    assert exported.keys() == {name.removeprefix("net.") for name in found if name.startswith("net.")}
    assert all(np.array_equal(found[f"net.{name}"], value) for name, value in exported.items())


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_floating_types_are_converted_and_that_is_told(dtype: type, backend: str, tmp_path: Path) -> None:
    arrays = write(tmp_path / "net.safetensors", dtype)
    step = start(tmp_path, backend)
    assert weights(step)["net.0.weight"].dtype == np.float64
    assert np.array_equal(weights(step)["net.0.weight"], arrays["0.weight"].astype(np.float64))
    assert any(f"'net' are {np.dtype(dtype).name} in" in note and "become float64" in note for note in step.notes)


def test_brain_floats_are_read(backend: str, tmp_path: Path) -> None:
    numbers = np.array([1.5, -2.0, 0.15625], np.float32)
    data = (numbers.view(np.uint32) >> 16).astype("<u2").tobytes()  # the upper half of a float32
    entry = {"value": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}
    header = json.dumps(entry).encode()
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    step = build_step(BRAIN, backend, [f"models.w.weights={tmp_path / 'w.safetensors'}"])
    assert weights(step)["w.value"].tolist() == [1.5, -2.0, 0.15625]


def test_all_that_does_not_fit_is_told_at_once_with_what_is_near(backend: str, tmp_path: Path) -> None:
    renamed = {"0.weight": None, "O.weight": np.ones((5, 4)), "3.bias": np.ones(4), "1.running_mean": np.arange(5)}
    write(tmp_path / "net.safetensors", **renamed)
    with pytest.raises(SpecError, match=r"GS272.*model 'net': the weights in .* are not its own") as raised:
        start(tmp_path, backend)
    (found,) = raised.value.diagnostics
    assert found.notes == (
        "missing: 0.weight (the file has O.weight)",
        "not expected: O.weight (the model has 0.weight)",
        "1.running_mean is I64, expected F64",
        "3.bias is [4], expected [3]",
    )
    assert found.span is not None


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "no such file"), (b"", "no whole"), (b"\x09" * 99, "no whole"), (-1, "no whole")]
)
def test_a_file_that_is_missing_or_damaged_is_told_at_its_place(
    content: bytes | int | None, reason: str, backend: str, tmp_path: Path
) -> None:
    path = tmp_path / "net.safetensors"
    if content is not None:
        write(path)
        path.write_bytes(content if isinstance(content, bytes) else path.read_bytes()[:content])
    with pytest.raises(SpecError, match=f"GS271.*model 'net'.*{reason}") as raised:
        start(tmp_path, backend)
    assert raised.value.diagnostics[0].span is not None


@pytest.mark.parametrize("kind", ["", "lazy_"])
def test_a_function_that_returns_a_model_is_a_class(kind: str, backend: str, tmp_path: Path) -> None:
    rows = {"torch": ("0.weight", [3, 4], "0.bias"), "tensorflow": ("0.kernel", [4, 3], "0.bias")}
    weight, shape, bias = rows[backend]
    path = tmp_path / "made.safetensors"
    save_file({weight: np.ones(shape), bias: np.zeros(3)}, path)
    step = build_step(MADE.format(kind, path), backend)
    found = weights(step)
    assert np.array_equal(found[f"net.{weight}"], np.ones(shape))
    assert np.array_equal(found[f"twin.{weight}"], np.ones(shape))
    step({"x": np.ones((2, 4))})
    assert np.allclose(weights(step)[f"net.{weight}"], 1 - 0.5 / 3)  # the mean of three sums: a slope of 1/3


def test_a_file_is_named_relative_to_the_spec(backend: str, tmp_path: Path) -> None:
    arrays = write(tmp_path / "net.safetensors", np.float32)
    (tmp_path / "net.yaml").write_text(SPEC)
    step = build(compile_step(load(tmp_path / "net.yaml"), backend), device="cpu")
    assert np.array_equal(weights(step)["net.0.weight"], arrays["0.weight"])


READS = """
import emitted
emitted.build()
weight = dict(emitted.net.named_parameters())["0.weight"]
print((weight.detach() if hasattr(weight, "detach") else weight).numpy().tolist())
"""


@pytest.mark.sample(2)
def test_an_emitted_file_reads_the_weights_with_its_framework_alone(backend: str, tmp_path: Path) -> None:
    arrays = write(tmp_path / "net.safetensors", np.float32)
    (tmp_path / "emitted.py").write_text(emit(compile_step(load(SPEC), backend)))
    blocked = "import sys; sys.modules.update(dict.fromkeys(['safetensors', 'runtime', 'compiler', 'graphspec']))"
    command = [sys.executable, "-c", f"{blocked}{READS}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == arrays["0.weight"].tolist()


def test_no_file_is_read_where_a_state_is_restored_at_once(backend: str, tmp_path: Path) -> None:
    arrays = write(tmp_path / "net.safetensors", np.float32)
    plan = compile_step(load(SPEC, [f"models.net.weights={tmp_path / 'net.safetensors'}"]), backend)
    build(plan, device="cpu").save(tmp_path / "saved")
    (tmp_path / "net.safetensors").unlink()
    again = build(plan, device="cpu", weights=False)
    again.load(tmp_path / "saved")
    assert np.array_equal(weights(again)["net.0.weight"], arrays["0.weight"])
