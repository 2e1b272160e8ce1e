"""The emitted file alone, where this project cannot be imported, gives the numbers of the step bit for bit."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from compiler import compile_step
from graphspec import load
from runtime import build, emit
from tests.conformance import replay
from tests.conformance.programs.actor_critic import TD3, TD3_SHAPES

ROOT = Path(__file__).parents[2]

GAN = """
graphspec: 1
name: noisy-gan
rng: KIND
inputs: {image: {shape: [batch, 6]}}
models:
  generator: {layers: [{linear: 8}, relu, {dropout: 0.2}, {linear: 6}], optimizer: {name: adam, lr: 1e-2}}
  discriminator: {layers: [{linear: 8}, relu, {dropout: 0.4}, {linear: 1}], optimizer: {name: sgd, lr: 0.1}}
  sampler: {like: generator}
outputs: [d_loss, g_loss, fake]
ops:
  z: {random: normal, shape: [batch, 3]}
  noise: {random: uniform, like: image, args: {low: -0.1, high: 0.1}}
  noisy: {call: add, inputs: [image, noise]}
  fake: {forward: generator, inputs: z}
  on_real: {forward: discriminator, inputs: noisy}
  on_fake: {forward: discriminator, inputs: fake}
  d_real: {loss: bce_with_logits, inputs: [on_real, 0.9]}
  d_fake: {loss: bce_with_logits, inputs: [on_fake, 0.0]}
  d_loss: {call: add, inputs: [d_real, d_fake]}
  step_d: {update: discriminator, loss: d_loss}
  judged: {forward: discriminator, inputs: fake, after: step_d}
  g_loss: {loss: bce_with_logits, inputs: [judged, 1.0]}
  step_g: {update: generator, loss: g_loss}
  average: {ema: generator, into: sampler, decay: 0.9}
"""

CLASSIFIER = """
graphspec: 1
name: averaged-classifier
inputs: {image: {shape: [batch, 1, 6, 6]}, label: {shape: [batch], dtype: int64}}
models:
  classifier:
    layers: [{conv2d: {out: 3, kernel: 3}}, batch_norm, relu, global_avg_pool, {linear: 4}]
    optimizer: {name: adamw, lr: {schedule: cosine, from: 1e-2, to: 0.0, over: 10}, weight_decay: 0.1}
  averaged: {like: classifier}
outputs: [loss, soft]
ops:
  scores: {forward: classifier, inputs: image}
  loss: {loss: cross_entropy, inputs: [scores, label]}
  step: {update: classifier, loss: loss, clip: {norm: 0.5}}
  average: {ema: classifier, into: averaged, half_life: 3 updates, buffers: average}
  soft: {forward: averaged, inputs: image, after: average}
"""

OWN = """
graphspec: 1
name: own-class
inputs: {x: {shape: [batch, 4]}}
models:
  net: {class: "own_nets:Net", args: {width: 5}, optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}
outputs: [loss]
ops:
  y: {forward: net, inputs: x}
  loss: {loss: "own_nets:size", inputs: y}
  step: {update: net, loss: loss}
"""

OWN_NETS = """
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Dropout(0.3), nn.Linear(width, 2))

    def forward(self, x):
        return self.body(x)

def size(y):
    return (y - 1).square().mean()
"""

TD3_INPUTS = {name: (shape, 0) for name, shape in TD3_SHAPES.items()}
SPECS = {
    "native draws": (GAN.replace("KIND", "native"), {"image": ((5, 6), 0)}),
    "portable draws": (GAN.replace("KIND", "portable"), {"image": ((5, 6), 0)}),
    "batch norm and average": (CLASSIFIER, {"image": ((4, 1, 6, 6), 0), "label": ((4,), 4)}),
    "gates": (TD3.replace("OPTIMIZER", "{name: adam, lr: 1e-2}"), TD3_INPUTS),
    "parts": (
        Path(__file__).with_name("parts-alone.yaml").read_text(),
        {"x": ((4, 4), 0), "y": ((4, 2), 0), "id": ((4,), 6)},
    ),
    "a class of the user's": (OWN, {"x": ((6, 4), 0)}),
}


@pytest.fixture(params=SPECS)
def written(request, tmp_path):
    """Write a spec, the module beside it and the file that is emitted for it; return the folder and the inputs."""
    text, inputs = SPECS[request.param]
    (tmp_path / "spec.yaml").write_text(text)
    (tmp_path / "own_nets.py").write_text(OWN_NETS)
    (tmp_path / "emitted.py").write_text(emit(compile_step(load(tmp_path / "spec.yaml"))))
    return tmp_path, inputs


def natives(step):
    """Return the optimizers as the emitted file makes them."""
    return {name: optimizer.native for name, optimizer in step.optimizers.items()}


@pytest.mark.sample(3)
def test_the_file_alone_gives_the_same_bits(written):
    folder, inputs = written
    step = build(compile_step(load(folder / "spec.yaml")), device="cpu", seed=replay.SEED, allow=["own_nets"])
    expected = replay.run(step, step.models, natives(step), inputs)
    command = [sys.executable, "-I", replay.__file__, str(folder), str(ROOT), json.dumps(inputs)]
    away = folder / "away"
    away.mkdir()
    done = subprocess.run(command, cwd=away, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr, done.returncode) == (expected, "", 0)


def test_the_file_imports_torch_the_standard_library_and_the_users_module_alone(written):
    folder, _ = written
    tree = ast.parse((folder / "emitted.py").read_text())
    plain = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    named = {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert (plain | named) - sys.stdlib_module_names <= {"torch", "own_nets"}


@pytest.mark.parametrize("name", ["native draws", "gates"])
def test_the_digest_sees_a_difference_of_one_bit(name):
    text, inputs = SPECS[name]
    steps = [build(compile_step(load(text)), device="cpu", seed=replay.SEED) for _ in range(2)]
    weight = next(iter(next(iter(steps[1].models.values())).parameters()))
    weight.data.view(-1).view(dtype=replay.torch.int32)[0] ^= 1
    one, other = (replay.run(step, step.models, natives(step), inputs) for step in steps)
    assert one != other
