"""Commands with `--backend tensorflow`: a run trains, is evaluated with the figures it logged, and can be compiled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from runtime.cli import execute

pytestmark = pytest.mark.needs("tensorflow")
SPEC = """graphspec: 1
name: kinds
rng: portable
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch], dtype: int64}}
models:
  net: {layers: [{linear: 16}, relu, {dropout: 0.3}, {linear: 3}], optimizer: {name: adam, lr: 0.05}}
ops:
  scores: {forward: net, inputs: x}
  loss: {loss: cross_entropy, inputs: [scores, y]}
  learn: {update: net, loss: loss}
  accuracy: {metric: accuracy, inputs: [scores, y]}
outputs: [loss, accuracy]
data:
  train: {source: npz, path: train.npz, batch: 16, shuffle: true}
  test: {source: npz, path: test.npz, batch: 16}
run: {steps: 40, eval: {every: 40 steps}}
"""


@pytest.fixture
def spec(workdir):
    """Put a spec and its data into the working directory."""
    for path, seed, size in (("train.npz", 1, 160), ("test.npz", 2, 101)):
        x = np.random.default_rng(seed).normal(size=(size, 4)).astype("float32")
        np.savez(workdir / path, x=x, y=np.abs(x[:, :3]).argmax(axis=1))
    (workdir / "kinds.yaml").write_text(SPEC)
    return workdir


def train(out: str, *options: str) -> list[dict[str, float]]:
    """Return the lines that a run logs."""
    assert execute(["run", "kinds.yaml", "--device", "cpu", "--out", out, *options]) == 0
    return [json.loads(line) for line in (Path(out) / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.needs("torch")
def test_a_run_learns_as_it_does_on_pytorch_and_is_evaluated(spec, capsys):
    ours, theirs = train("ours", "--backend", "tensorflow"), train("theirs")
    for one, other in zip(ours, theirs, strict=True):
        assert {key: value for key, value in one.items() if key != "time"} == pytest.approx(
            {key: value for key, value in other.items() if key != "time"}, rel=1e-3
        )
    assert json.loads(Path("ours/run.json").read_text())["backend"] == "tensorflow"
    capsys.readouterr()
    assert execute(["eval", "ours", "--format", "json", "--device", "cpu"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert figures["loss"] == ours[-1]["eval/loss"]


def test_a_run_can_be_compiled_by_xla_and_only_with_tensorflow(spec, capsys):
    compiled, plain = (train(name, "--backend", "tensorflow", *more) for name, more in (("a", ["--xla"]), ("b", [])))
    assert compiled[-1]["eval/loss"] == pytest.approx(plain[-1]["eval/loss"], rel=1e-3)
    capsys.readouterr()
    assert execute(["run", "kinds.yaml", "--xla", "--out", "c"]) == 1
    assert "error[GS268]: XLA compiles steps of TensorFlow only" in capsys.readouterr().err


def test_bench_times_the_emitted_and_the_built_step(spec, capsys):
    command = ["bench", "kinds.yaml", "--backend", "tensorflow", "--rounds", "1", "--device", "cpu", "--jit"]
    Path("still.py").write_text("def still(models):\n    return lambda batch: {'loss': models['net'](batch['x'])}\n")
    assert execute([*command, "--loop", "still=still.py:still", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [*report["variants"]] == ["still", "emitted", "step"]
    assert report["variants"]["emitted"]["against_step"] == {
        "agrees": True,
        "difference": 0.0,
        "output": "loss",
        "step": 1,
    }
    assert not report["variants"]["still"]["against_step"]["agrees"]  # it returns scores in place of a number
    assert "a graph already" in report["left_out"]["jit"]
