"""eval: the figures of a run's checkpoints, which are those that the run itself logged."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from runtime.cli import execute

pytestmark = pytest.mark.needs("torch")

SPEC = """graphspec: 1
name: kinds
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch], dtype: int64}}
models:
  net: {layers: [{linear: 16}, batch_norm, relu, {dropout: 0.3}, {linear: 3}], optimizer: {name: adam, lr: 0.3}}
ops:
  scores: {forward: net, inputs: x}
  loss: {loss: cross_entropy, inputs: [scores, y]}
  learn: {update: net, loss: loss}
  average: {ema: net, decay: 0.9, buffers: average, use: {eval: swap}}
  accuracy: {metric: accuracy, inputs: [scores, y]}
outputs: [loss, accuracy]
data:
  train: {source: npz, path: data/train.npz, batch: 16, shuffle: true}
  test: {source: npz, path: data/test.npz, batch: 16}
run: {steps: 40, eval: {every: 8 steps}, best: {metric: accuracy}, checkpoint: {every: 8 steps, keep: 1}}
"""


def draw(path: str, seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(size, 4)).astype("float32")
    y = np.abs(x[:, :3]).argmax(axis=1)
    np.savez(path, x=x, y=y)
    return x, y


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a folder with a spec and its run; the last batch of the test set has 5 samples of 16."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "data").mkdir()
    draw(folder / "data" / "train.npz", 1, 160)
    draw(folder / "data" / "test.npz", 2, 101)
    (folder / "kinds.yaml").write_text(SPEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert execute(["run", "kinds.yaml", "--out", "out"]) == 0
    return folder


@pytest.fixture
def inside(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return trained


def ask(capsys, *more: str, out: str = "out") -> dict:
    capsys.readouterr()
    assert execute(["eval", out, "--format", "json", *more]) == 0
    return json.loads(capsys.readouterr().out)


def logged() -> dict[int, dict[str, float]]:
    """Return the figures of the run's evaluations by step."""
    rows = [json.loads(line) for line in Path("out/metrics.jsonl").read_text().splitlines()]
    own = [{name[5:]: value for name, value in row.items() if name.startswith("eval/")} for row in rows]
    return {row["step"]: figures for row, figures in zip(rows, own, strict=True) if figures}


def test_the_figures_of_best_and_newest_are_exactly_those_that_were_logged(inside, capsys):
    rows = logged()
    best = max(rows, key=lambda step: (rows[step]["accuracy"], -step))
    assert best != 40
    assert ask(capsys) == {"checkpoint": f"out/checkpoints/step-{best}", "data": "test", "figures": rows[best]}
    newest = {"checkpoint": "out/checkpoints/step-40", "data": "test", "figures": rows[40]}
    assert ask(capsys, "--checkpoint", "newest") == newest == ask(capsys, "--checkpoint", "40")


def test_the_loss_is_the_mean_over_samples_of_what_the_averaged_weights_give(inside, capsys):
    arrays, file = load_file("out/checkpoints/step-40/state.safetensors"), np.load("data/test.npz")
    scores = forward(arrays, file["x"])
    shifted = scores - scores.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(101), file["y"]]
    figures = ask(capsys, "--checkpoint", "newest")["figures"]
    assert figures["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert figures["accuracy"] == pytest.approx((scores.argmax(axis=1) == file["y"]).mean())


def forward(arrays, x):
    """Return the scores of the averaged net, as written in numpy."""
    mark = "models.average."
    net = {name.removeprefix(mark): array for name, array in arrays.items() if name.startswith(mark)}
    hidden = x @ net["0.weight"].T + net["0.bias"]
    normal = (hidden - net["1.running_mean"]) / np.sqrt(net["1.running_var"] + 1e-5)
    return np.maximum(normal * net["1.weight"] + net["1.bias"], 0) @ net["4.weight"].T + net["4.bias"]


def test_a_file_takes_the_place_of_the_test_set(inside, capsys):
    shutil.copy("data/test.npz", "same.npz")
    draw("other.npz", 3, 48)
    known = ask(capsys)["figures"]
    assert ask(capsys, "--data", "same.npz")["figures"] == known
    other = ask(capsys, "--data", "other.npz")
    assert (other["data"], other["figures"] != known) == ("other.npz", True)


def test_another_set_of_the_spec_is_named_by_its_role(inside, capsys):
    found = ask(capsys, "--data", "train")
    assert found["data"] == "train"
    assert found["figures"]["accuracy"] > ask(capsys)["figures"]["accuracy"] - 0.5


def test_the_text_form_names_checkpoint_and_data(inside, capsys):
    figures = ask(capsys, "--checkpoint", "newest")["figures"]
    assert execute(["eval", "out", "--checkpoint", "newest"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "out/checkpoints/step-40 on test"
    printed = {line.split()[0]: float(line.split()[1]) for line in lines}
    assert printed == pytest.approx(figures, rel=1e-9)


def test_it_does_not_matter_from_where_it_is_asked(trained, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(trained)
    known = ask(capsys)["figures"]
    shutil.copytree(trained, tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    assert ask(capsys, out="moved/out")["figures"] == known
    assert ask(capsys, out=str(trained / "out"))["figures"] == known


def test_evaluating_changes_nothing_in_the_folder(inside, capsys):
    def content() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}

    before = content()
    ask(capsys)
    assert content() == before


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--checkpoint", "7"], r"error\[GS240\]: there is no checkpoint 'out/checkpoints/step-7'.*holds .*step-40"),
        (["--data", "tset"], r"error\[GS221\]: 'tset' is neither a set .*; did you mean the set 'test'\?"),
        (["--data", "gone.npz"], r"error\[GS221\]: .*gone.npz"),
        (["--device", "cuda:7"], r"error\[GS207\]: device 'cuda:7' is not available"),
    ],
)
def test_what_is_not_there_is_told(inside, capsys, more, told):
    assert execute(["eval", "out", *more]) == 1
    printed = capsys.readouterr().err
    assert re.search(told, printed, re.DOTALL), printed
    assert "Traceback" not in printed


def test_a_checkpoint_is_named_by_a_word_or_a_number(inside, capsys):
    assert execute(["eval", "out", "--checkpoint", "last"]) == 2
    assert "'last' is neither best nor newest" in capsys.readouterr().err


def test_a_folder_that_is_no_run_and_a_run_without_checkpoints_are_told(inside, capsys, tmp_path):
    assert execute(["eval", str(tmp_path)]) == 1
    assert "error[GS243]" in capsys.readouterr().err
    shutil.copy("out/run.json", tmp_path)
    assert execute(["eval", str(tmp_path)]) == 1
    assert "has no checkpoint yet" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_told(inside, capsys, tmp_path):
    shutil.copytree("out", tmp_path / "out")
    with (tmp_path / "out/checkpoints/step-40/state.safetensors").open("r+b") as file:
        file.truncate(100)
    assert execute(["eval", str(tmp_path / "out")]) == 1
    assert "error[GS241]" in capsys.readouterr().err


def test_a_step_whose_evaluation_gives_no_number_is_told(inside, capsys):
    Path("mute.yaml").write_text(SPEC.split("run:")[0].replace("[loss, accuracy]", "[scores]") + "run: {steps: 2}\n")
    assert execute(["run", "mute.yaml", "--out", "mute"]) == 0
    assert execute(["eval", "mute"]) == 1
    assert "error[GS248]: mode eval of the spec gives no figures" in capsys.readouterr().err


def test_a_figure_that_is_not_finite_is_null(inside, capsys):
    x, y = np.full((16, 4), np.inf, "float32"), np.zeros(16, "int64")
    np.savez("wild.npz", x=x, y=y)
    assert ask(capsys, "--data", "wild.npz")["figures"]["loss"] is None
    assert math.isfinite(ask(capsys)["figures"]["loss"])


ROWS = """
import numpy as np

class Rows:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return {"x": np.full(2, index, np.float32), "y": np.int64(index % 2)}
"""
EPOCHS = """graphspec: 1
name: epochs
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch], dtype: int64}}
models: {net: {layers: [{linear: 2}], optimizer: {name: sgd, lr: {schedule: linear, from: 0.1, over: 2 epochs}}}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: cross_entropy, inputs: [out, y]}
  step: {update: net, loss: loss}
  share: {metric: accuracy, inputs: [out, y], reset: never}
data: {train: {class: "rows:Rows", batch: 8}, test: {class: "rows:Rows", batch: 16}}
run: {epochs: 3, eval: 1 epochs}
"""


def test_a_run_counted_in_epochs_of_a_class_is_evaluated_to_its_own_figures(workdir, capsys):
    Path("rows.py").write_text(ROWS)
    Path("epochs.yaml").write_text(EPOCHS)
    assert execute(["run", "epochs.yaml", "--allow", "rows"]) == 0
    capsys.readouterr()
    assert execute(["eval", "runs/epochs", "--allow", "rows", "--format", "json"]) == 0
    rows = [json.loads(line) for line in Path("runs/epochs/metrics.jsonl").read_text().splitlines()]
    assert json.loads(capsys.readouterr().out)["figures"]["share"] == rows[-1]["eval/share"]
