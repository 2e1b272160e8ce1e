"""export --value: what does not lead to the value is neither asked for nor a reason to refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from runtime.cli import execute

pytestmark = pytest.mark.needs("torch")

SPEC = """graphspec: 1
name: several
inputs:
  image: {shape: [batch, 1, 8, 8]}
  label: {shape: [batch], dtype: int64}
  z: {shape: [batch, 4]}
models:
  net: {layers: [flatten, {linear: 10}], optimizer: sgd}
  probe: {layers: [flatten, {linear: 8}, batch_norm, {linear: 2}], optimizer: sgd}
ops:
  scores: {forward: net, inputs: image, mode: [train, eval]}
  loss: {loss: cross_entropy, inputs: [scores, label], mode: [train, eval]}
  step: {update: net, loss: loss}
  probed: {forward: probe, inputs: image, mode: train}
  error: {call: mean, inputs: probed, mode: train}
  step_probe: {update: probe, loss: error}
  writing: {forward: probe, inputs: image, mode: eval, train: true}
  written: {forward: probe, inputs: image, mode: eval, after: writing}
  mean: {call: mean, inputs: writing, mode: eval}
  lazy: {loss: mse, inputs: [scores, 0.0], every: 3, mode: [train, eval]}
  double: {call: mul, inputs: [z, 2.0], mode: infer}
outputs: [loss, lazy, mean, written, double]
data: {train: {source: digits, batch: 32}}
run: {steps: 2}
"""


@pytest.fixture
def run(workdir: Path) -> Path:
    Path("several.yaml").write_text(SPEC)
    assert execute(["run", "several.yaml"]) == 0
    return Path("runs/several")


def test_an_op_of_the_mode_that_writes_does_not_matter_to_another_value(run, capsys):
    assert execute(["export", "runs/several", "-o", "out", "--mode", "eval"]) == 1
    assert "error[GS266]: mode eval changes models" in capsys.readouterr().err
    assert execute(["export", "runs/several", "-o", "out", "--mode", "eval", "--value", "scores"]) == 0
    assert "mode eval: image (float32 [batch, 1, 8, 8]) -> scores\n" in capsys.readouterr().out
    program = torch.export.load("out/several.pt2").module()
    image = torch.rand(3, 1, 8, 8)
    held = load_file("out/net.safetensors")
    by_hand = image.flatten(1) @ held["1.weight"].T + held["1.bias"]
    torch.testing.assert_close(program({"image": image})["scores"], by_hand)


@pytest.mark.parametrize("value", ["writing", "mean", "written"])
def test_what_writes_or_reads_what_is_written_is_refused(run, capsys, value):
    assert execute(["export", "runs/several", "-o", "out", "--mode", "eval", "--value", value]) == 1
    told = capsys.readouterr().err
    assert "error[GS266]: mode eval changes models, so it cannot be exported: it runs writing\n" in told
    assert not Path("out").exists()


def test_the_mode_is_the_first_that_computes_the_values(run, capsys):
    for value, expected in (("scores", "mode eval: image"), ("double", "mode infer: z")):
        assert execute(["export", "runs/several", "-o", "out", "--value", value, "--format", "program"]) == 0
        assert expected in capsys.readouterr().out


def test_a_clock_matters_only_to_what_needs_it(run, capsys):
    assert execute(["export", "runs/several", "-o", "out", "--value", "loss"]) == 0
    capsys.readouterr()
    assert execute(["export", "runs/several", "-o", "out", "--value", "lazy"]) == 1
    assert "error[GS265]: op 'lazy' does not fire in every step of mode eval" in capsys.readouterr().err


def test_a_mode_that_trains_is_refused_as_before(run, capsys):
    assert execute(["export", "runs/several", "--mode", "train", "--value", "scores"]) == 1
    assert "error[GS266]: mode train changes models" in capsys.readouterr().err
