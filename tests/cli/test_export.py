"""export: runs of the command line, their weights in plain modules, and their programs in a process of their own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from runtime import reopen
from runtime.cli import execute
from tests.cli import exported

pytestmark = pytest.mark.xdist_group("exported runs")  # one worker, so that they are trained once
CLASSIFIER = """graphspec: 1
name: classifier
inputs: {image: {shape: [batch, 1, 8, 8]}, label: {shape: [batch], dtype: int64}}
models:
  net:
    layers: [flatten, {linear: 16}, batch_norm, relu, {dropout: 0.3}, {linear: 10}]
    optimizer: {name: adam, lr: 1e-2}
ops:
  scores: {forward: net, inputs: image}
  loss: {loss: cross_entropy, inputs: [scores, label], mode: train}
  step: {update: net, loss: loss}
  average: {ema: net, decay: 0.8, buffers: copy, use: {eval: swap}}
  accuracy: {metric: accuracy, inputs: [scores, label], mode: eval}
outputs: [loss, scores, accuracy]
data: {train: {source: digits, batch: 32, shuffle: true}, test: {source: digits, split: test, batch: 90}}
run: {steps: 6, eval: {every: 2 steps}, best: {metric: accuracy}, checkpoint: {every: 1 steps, keep: 6}}
"""
GAN = """graphspec: 1
name: gan
inputs: {image: {shape: [batch, 1, 8, 8]}}
models:
  generator: {layers: [{linear: 64}, tanh, {reshape: [1, 8, 8]}], optimizer: {name: adam, lr: 1e-3}}
  judge: {layers: [flatten, {linear: 1}], optimizer: {name: adam, lr: 1e-3}}
  sampler: {like: generator}
ops:
  z: {random: normal, shape: [batch, 5]}
  fake: {forward: generator, inputs: z}
  on_real: {forward: judge, inputs: image}
  on_fake: {forward: judge, inputs: fake}
  d_real: {loss: bce_with_logits, inputs: [on_real, 1.0]}
  d_fake: {loss: bce_with_logits, inputs: [on_fake, 0.0]}
  judging: {call: add, inputs: [d_real, d_fake], mode: train}
  step_d: {update: judge, loss: judging}
  judged: {forward: judge, inputs: fake, after: step_d}
  fooling: {loss: bce_with_logits, inputs: [judged, 1.0], mode: train}
  step_g: {update: generator, loss: fooling}
  average: {ema: generator, into: sampler, decay: 0.9}
  samples: {forward: sampler, inputs: z, mode: eval}
outputs: [judging, samples, z]
data: {train: {source: digits, batch: 32}}
run: {steps: 4}
"""
CUSTOM = """graphspec: 1
name: custom
inputs: {image: {shape: [batch, 1, 8, 8]}}
models: {net: {class: "pieces:Net", optimizer: {name: sgd, lr: 0.1}}}
ops:
  code: {forward: net, inputs: image}
  loss: {call: mean, inputs: code, mode: train}
  step: {update: net, loss: loss}
outputs: [loss, code]
data: {train: {source: digits, batch: 32}}
run: {steps: 2}
"""
PIECES = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Conv2d(1, 3, 3)
        self.norm = torch.nn.BatchNorm2d(3)

    def forward(self, image):
        return self.norm(self.inner(image)).mean((2, 3))
"""
SIZES = (1, 2, 32, 77)


@dataclass(frozen=True)
class Runs:
    """Three finished runs in a folder, and what their exported programs gave in a process without stepgraph."""

    folder: Path
    alone: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Train, export, and run the programs with `python -I`, where nothing of ours can be imported."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "pieces.py").write_text(PIECES)
    with contextlib.chdir(folder):
        for text in (CLASSIFIER, GAN, CUSTOM):
            name = text.split()[3]
            Path(f"{name}.yaml").write_text(text)
            assert execute(["run", f"{name}.yaml", "--plain", "--allow", "pieces"]) == 0
            assert execute(["export", f"runs/{name}", "--allow", "pieces", *exported.OPTIONS.get(name, ())]) == 0
            np.savez(f"{name}.npz", **find_inputs(name))
        script = Path(exported.__file__)
        done = subprocess.run([sys.executable, "-I", str(script)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        with np.load("alone.npz") as found:
            return Runs(folder=folder, alone=dict(found))


def find_inputs(name):
    """Return what a program is given, by input and size; random numbers are those that the step drew."""
    step = reopen(f"runs/{name}", allow=["pieces"], device="cpu")
    inputs = {}
    for size in SIZES:
        image = np.random.default_rng(size).normal(size=(size, 1, 8, 8)).astype("float32")
        outputs = step({"image": image, "label": np.zeros(size, "int64")}, mode="eval")
        given = {"z": outputs["z"].numpy()} if name == "gan" else {"image": image}
        inputs.update({f"{key} {size}": value for key, value in given.items()})
        inputs[f"expected {size}"] = outputs[exported.VALUES[name]].numpy()
    return inputs


@pytest.mark.parametrize("name", exported.VALUES)
def test_without_stepgraph_the_program_gives_the_numbers_of_the_step_bit_for_bit(runs, name):
    with np.load(runs.folder / f"{name}.npz") as inputs:
        for size in SIZES:
            expected = inputs[f"expected {size}"]
            assert np.array_equal(runs.alone[f"{name} {size}"], expected)
            assert len(expected) == size


def make_net():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 10)
    ).eval()


def test_the_weights_answer_in_a_plain_module_as_evaluation_did(runs):
    with np.load(runs.folder / "classifier.npz") as inputs, torch.no_grad():
        net = make_net()
        net.load_state_dict(load_file(runs.folder / "runs/classifier/export/net.safetensors"))
        assert np.array_equal(net(torch.from_numpy(inputs["image 32"])), inputs["expected 32"])


def test_the_weights_of_a_class_load_into_it(runs):
    names = {}
    exec(PIECES, names)
    net = names["Net"]().eval()
    net.load_state_dict(load_file(runs.folder / "runs/custom/export/net.safetensors"))
    with np.load(runs.folder / "custom.npz") as inputs, torch.no_grad():
        assert np.array_equal(net(torch.from_numpy(inputs["image 32"])), inputs["expected 32"])


@pytest.fixture
def inside(runs, monkeypatch):
    """Run the test in the folder of the runs, which it does not change but for exports in folders of their own."""
    monkeypatch.chdir(runs.folder)
    return runs.folder


def test_the_best_checkpoint_is_taken_unless_another_is_named(inside, capsys):
    steps = {}
    for choice in ("best", "newest", "1"):
        assert execute(["export", "runs/classifier", "--checkpoint", choice, "-o", choice, "--format", "weights"]) == 0
        steps[choice] = json.loads(Path(choice, "export.json").read_text())["step"]
    rows = [json.loads(line) for line in Path("runs/classifier/metrics.jsonl").read_text().splitlines()]
    figures = {row["step"]: row["eval/accuracy"] for row in rows if "eval/accuracy" in row}
    assert steps == {"best": max(figures, key=figures.__getitem__), "newest": 6, "1": 1}
    assert "net.safetensors" in capsys.readouterr().out


def test_what_was_written_is_told(inside, capsys):
    assert execute(["export", "runs/classifier", "-o", "told", "--checkpoint", "newest"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "told from step-6",
        "  net.safetensors      9 tensors of average, which stands in for net",
        "  average.safetensors  9 tensors",
        "  classifier.pt2       mode eval: image (float32 [batch, 1, 8, 8]) -> scores (without accuracy)",
    ]
    assert execute(["export", "runs/gan", "-o", "drawn", "--format", "program"]) == 0
    assert "mode eval: z (a draw, float32 [batch, 5]) -> samples, z" in capsys.readouterr().out


def test_a_class_is_imported_only_where_it_is_allowed(inside, capsys, monkeypatch):
    monkeypatch.setenv("STEPGRAPH_STATE", "elsewhere")  # by another user than the one who allowed it for the run
    assert execute(["export", "runs/custom", "-o", "refused"]) == 1
    assert "error[GS201]" in capsys.readouterr().err
    assert not Path("refused").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "train"], "error[GS266]: mode train changes models, so it cannot be exported: it runs step_d"),
        (["--mode", "infer"], "error[GS266]: the step has no mode 'infer' to export: it has train, eval"),
        (["--value", "sample"], "error[GS266]: mode eval computes no value 'sample'"),
        (["--checkpoint", "3"], "error[GS240]: there is no checkpoint"),
        (["-o", "."], "error[GS234]: cannot write '.': a folder stands there with what is no part of an export"),
        (["-o", "gan.yaml"], "error[GS234]: cannot write 'gan.yaml': file exists"),
    ],
)
def test_what_cannot_be_done_is_told(inside, capsys, options, message):
    before = sorted(inside.iterdir())
    assert execute(["export", "runs/gan", "-o", "out", *options]) == 1
    assert message in capsys.readouterr().err
    assert sorted(inside.iterdir()) == before


def test_a_folder_that_is_no_run_is_told(workdir, capsys):
    assert execute(["export", "."]) == 1
    assert "error[GS243]" in capsys.readouterr().err
