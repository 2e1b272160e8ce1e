"""run: from a spec to trained weights and the files that tell about them, on the real backend."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from safetensors.numpy import load_file

from runtime.cli import execute

pytestmark = pytest.mark.needs("torch")

SPEC = """graphspec: 1
name: line
inputs: {x: {shape: [batch, 1]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}
ops:
  guess: {forward: net, inputs: x}
  error: {loss: mse, inputs: [guess, y]}
  learn: {update: net, loss: error}
outputs: [error]
data: {train: {source: npz, path: line.npz, batch: 10, shuffle: true}}
run: {steps: 150, log_every: 50}
"""


@pytest.fixture
def line(workdir: Path) -> Path:
    """Points of y = 3 x - 1, and a spec that learns them."""
    x = np.linspace(-1, 1, 40)[:, None]
    np.savez("line.npz", x=x, y=3 * x - 1)
    Path("line.yaml").write_text(SPEC)
    return workdir


def test_training_finds_the_line(line):
    assert execute(["run", "line.yaml"]) == 0
    weights = load_file("runs/line/checkpoints/step-150/state.safetensors")
    assert weights["models.net.0.weight"].item() == pytest.approx(3, abs=0.05)
    assert weights["models.net.0.bias"].item() == pytest.approx(-1, abs=0.05)


def test_all_files_are_written_and_named(line, capsys):
    assert execute(["run", "line.yaml", "--out", "here"]) == 0
    names = sorted(str(path.relative_to("here")) for path in Path("here").rglob("*") if path.is_file())
    files = [
        "checkpoints/step-150/manifest.json",
        "checkpoints/step-150/state.safetensors",
        "curves.png",
        "lock",
        "metrics.csv",
        "metrics.jsonl",
        "run.json",
    ]
    assert names == files
    printed = capsys.readouterr().out
    assert "wrote here/" in printed
    assert all(name in printed for name in ("checkpoints/ (step-150; ", "metrics.csv", "metrics.jsonl", "run.json"))


def test_the_metrics_are_those_of_the_steps(line):
    execute(["run", "line.yaml"])
    rows = [json.loads(text) for text in Path("runs/line/metrics.jsonl").read_text().splitlines()]
    table = list(csv.DictReader(Path("runs/line/metrics.csv").read_text().splitlines()))
    assert [row["step"] for row in rows] == [1, 50, 100, 150]
    assert [float(row["error"]) for row in table] == [row["error"] for row in rows]
    assert rows[-1]["error"] < 1e-2 < rows[0]["error"]


def test_lines_are_printed_where_there_is_no_terminal(line, capsys):
    execute(["run", "line.yaml", "--steps", "100"])
    printed = capsys.readouterr().out
    assert re.search(r"^line: torch on cpu, seed 0, 100 steps of 10$", printed, re.MULTILINE)
    assert re.search(r"^  net +2 parameters, trained with sgd$", printed, re.MULTILINE)
    assert re.search(r"^step 100/100  error \S+  [\d.e+]+ steps/s$", printed, re.MULTILINE)
    assert "\x1b[" not in printed


def weights(*arguments: str, out: str) -> dict[str, np.ndarray]:
    assert execute(["run", "line.yaml", "--steps", "20", "--out", out, *arguments]) == 0
    return load_file(f"{out}/checkpoints/step-20/state.safetensors")


def test_the_same_seed_gives_the_same_weights_and_another_others(line):
    first, again, other = weights(out="a"), weights(out="b"), weights("--seed", "1", out="c")
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["models.net.0.weight"], other["models.net.0.weight"])
    assert json.loads(Path("c/run.json").read_text())["seed"] == 1


def test_overrides_reach_the_run(line):
    frozen = weights("-s", "models.net.optimizer.lr=0.0", out="a")
    moved = weights(out="b")
    assert not np.array_equal(frozen["models.net.0.weight"], moved["models.net.0.weight"])


def test_a_spec_without_data_is_told(line, capsys):
    Path("line.yaml").write_text("".join(text for text in SPEC.splitlines(keepends=True) if "data:" not in text))
    assert execute(["run", "line.yaml"]) == 1
    assert "error[GS220]" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_wrong_data_file_is_told_before_anything_is_written(line, capsys):
    Path("line.npz").write_bytes(b"")
    assert execute(["run", "line.yaml"]) == 1
    assert "error[GS221]" in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.fixture
def gan(workdir: Path) -> Path:
    execute(["init", "gan"])
    return workdir


def test_the_gan_of_init_trains_and_shows_digits(gan, capsys):
    assert execute(["run", "gan.yaml", "--allow", "models", "--steps", "20"]) == 0
    pixels = matplotlib.image.imread("runs/gan/samples.png")
    assert pixels.shape == (402, 402, 3)
    assert pixels.std() > 0.05
    assert "samples.png" in capsys.readouterr().out


def test_the_classifier_of_init_learns(workdir):
    execute(["init", "classifier"])
    assert execute(["run", "classifier.yaml", "--allow", "models", "--steps", "200"]) == 0
    rows = [json.loads(text) for text in Path("runs/classifier/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["accuracy"] > 0.8 > rows[0]["accuracy"]


def test_without_permission_the_flag_to_add_is_told(gan, capsys):
    assert execute(["run", "gan.yaml"]) == 1
    captured = capsys.readouterr().err
    assert "error[GS201]" in captured
    assert "--allow models" in captured
    assert "Traceback" not in captured


def test_an_error_in_the_users_model_shows_op_place_and_their_line(gan, capsys):
    source = Path("models.py").read_text()
    Path("models.py").write_text(source.replace("return self.net(noise)", "return self.nets(noise)"))
    assert execute(["run", "gan.yaml", "--allow", "models"]) == 1
    captured = capsys.readouterr().err
    assert "'Generator' object has no attribute 'nets'" in captured
    assert "gan.yaml:" in captured
    assert "models.py:" in captured
    assert "Traceback" not in captured


def test_a_model_that_no_op_uses_is_left_out(line, capsys):
    Path("line.yaml").write_text(SPEC.replace("models:\n", "models:\n  spare: {layers: [{linear: 3}]}\n"))
    assert execute(["plan", "line.yaml"]) == 0
    assert "no op uses model 'spare': it is not built" in capsys.readouterr().out
    assert execute(["run", "line.yaml", "--steps", "5"]) == 0
    assert not any("spare" in name for name in load_file("runs/line/checkpoints/step-5/state.safetensors"))
