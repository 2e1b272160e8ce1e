"""run.images with its own data: inputs that only infer reads make pictures, and training data needs none of them."""

from __future__ import annotations

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from safetensors.numpy import load_file

from runtime.cli import execute
from runtime.train.plots import grid

SPEC = """graphspec: 1
name: shown
inputs:
  image: {shape: [batch, 1, 8, 8]}
  z: {shape: [batch, 4]}
models:
  gen: {layers: [{linear: 64}, {reshape: [1, 8, 8]}], optimizer: {name: sgd, lr: 0.5}}
ops:
  noise: {random: normal, shape: [batch, 4], mode: train}
  made: {forward: gen, inputs: noise, mode: train}
  far: {loss: mse, inputs: [made, image], mode: train}
  step: {update: gen, loss: far}
  wanted: {forward: gen, inputs: z, mode: infer}
outputs: [far, wanted]
data:
  train: {source: digits, batch: 32}
  pictures: {source: npz, path: z.npz, batch: 5}
run: {steps: 6, images: {value: wanted, data: pictures, every: 3 steps}}
"""


@pytest.fixture
def spec(workdir: Path) -> Path:
    np.savez("z.npz", z=np.linspace(-1, 1, 36).reshape(9, 4).astype(np.float32))
    path = Path("shown.yaml")
    path.write_text(SPEC)
    return path


def expected(step: int) -> np.ndarray:
    """Return what the picture shows after a step: a matrix product by hand."""
    held = load_file(f"runs/shown/checkpoints/step-{step}/state.safetensors")
    weight, bias = (held[f"models.gen.0.{name}"] for name in ("weight", "bias"))
    z = np.load("z.npz")["z"][:5]
    return grid((z @ weight.T + bias).reshape(5, 1, 8, 8))


def shown(name: str) -> np.ndarray:
    return np.rint(matplotlib.image.imread(f"runs/shown/{name}.png")[..., :3] * 255)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.needs("torch", "tensorflow")
def test_the_pictures_are_made_of_their_own_set(spec, backend):
    assert execute(["check", "shown.yaml"]) == 0
    assert execute(["run", "shown.yaml", "--backend", backend, "-s", "run.checkpoint=3 steps"]) == 0
    for name, step in (("wanted_3", 3), ("wanted", 6)):
        assert np.abs(shown(name) - expected(step)).max() <= 1  # a rounding
    before = shown("wanted_3")
    assert execute(["run", "shown.yaml", "--backend", backend, "--resume", "--steps", "9"]) == 0
    assert np.abs(shown("wanted") - expected(9)).max() <= 1
    assert np.array_equal(shown("wanted_3"), before)


def test_without_it_the_training_data_must_have_the_input(spec, capsys):
    spec.write_text(SPEC.replace(", data: pictures", ""))
    assert execute(["run", "shown.yaml"]) == 1
    assert "data.train: the source has no 'z' for the input 'z'" in capsys.readouterr().err


def test_without_pictures_nobody_asks_for_it(spec):
    spec.write_text(SPEC.replace("images: {value: wanted, data: pictures, every: 3 steps}", "log_every: 1"))
    assert execute(["run", "shown.yaml", "--steps", "1"]) == 0


def test_a_set_that_is_not_declared_is_told(spec, capsys):
    spec.write_text(SPEC.replace("data: pictures,", "data: picture,"))
    assert execute(["check", "shown.yaml"]) == 1
    told = capsys.readouterr().err
    assert "error[GS124]: `run.images` takes a batch of 'picture', a set that `data` does not have" in told
    assert "did you mean 'pictures'?" in told


def test_a_value_of_training_has_no_other_data(spec, capsys):
    spec.write_text(SPEC.replace("value: wanted", "value: made").replace("[far, wanted]", "[far, made]"))
    assert execute(["check", "shown.yaml"]) == 1
    assert "error[GS124]: 'made' is made by the steps of training" in capsys.readouterr().err
