"""run --resume: which run goes on, from where, with what it was made with; and when there is nothing to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from runtime.checkpoints import read_checkpoint
from runtime.cli import execute

pytestmark = pytest.mark.needs("torch")

SPEC = """graphspec: 1
name: line
inputs: {x: {shape: [batch, 1]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}
ops:
  guess: {forward: net, inputs: x}
  error: {loss: mse, inputs: [guess, y]}
  learn: {update: net, loss: error}
outputs: [error]
data: {train: {source: npz, path: line.npz, batch: 10, shuffle: true}}
run: {steps: 12, log_every: 5, checkpoint: {every: 4 steps, keep: 2}}
"""


@pytest.fixture
def line(workdir: Path) -> Path:
    """Points near y = 3 x - 1, and a spec that learns them."""
    x = np.linspace(-1, 1, 40)[:, None]
    np.savez("line.npz", x=x, y=3 * x - 1 + 0.1 * np.sin(20 * x))
    Path("line.yaml").write_text(SPEC)
    return workdir


def run(*more: str, out: str = "out") -> None:
    assert execute(["run", "line.yaml", "--out", out, *more]) == 0


def state(step: int, out: str = "out") -> bytes:
    return Path(out, "checkpoints", f"step-{step}", "state.safetensors").read_bytes()


def rows(out: str = "out") -> list[dict[str, float]]:
    return [{**json.loads(text), "time": 0} for text in Path(out, "metrics.jsonl").read_text().splitlines()]


def files(folder: str = "out") -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file() and path.name != "lock"}


def test_the_same_seed_twice_is_the_same_to_the_last_byte(line):
    run(out="a")
    run(out="b")
    assert state(12, "a") == state(12, "b")
    assert rows("a") == rows("b")


@pytest.mark.parametrize(
    ("out", "told"),
    [
        ([], "error[GS246]: there is no run of 'line' under 'runs' to resume"),
        (["--out", "nothing"], "error[GS246]: there is no run in 'nothing' to resume"),
        (["--out", "notes"], "error[GS243]: 'notes' is not the folder of a run: it has no run.json"),
        (["--out", "line.yaml"], "error[GS246]: there is no run in 'line.yaml' to resume"),
    ],
)
def test_where_there_is_no_run_that_is_told_and_nothing_is_made(line, capsys, out, told):
    Path("notes").mkdir()
    assert execute(["run", "line.yaml", "--resume", *out]) == 1
    assert told in capsys.readouterr().err
    assert sorted(path.name for path in line.rglob("*")) == ["line.npz", "line.yaml", "notes"]


def test_a_complete_run_is_left_as_it_is(line, capsys):
    run()
    before = files()
    run("--resume")
    assert "0 steps in" in capsys.readouterr().out
    assert files() == before


def test_more_steps_end_where_a_run_of_so_many_steps_ends(line):
    run("--steps", "21", out="whole")
    run()
    run("--resume", "--steps", "21")
    assert state(21) == state(21, "whole")
    assert [row for row in rows() if row["step"] != 12] == rows("whole")  # the end of the first part was logged, too


def test_the_steps_that_were_asked_for_last_are_those_of_the_run(line, capsys):
    run("--steps", "8")
    run("--resume", "--steps", "16")
    shutil.rmtree("out/checkpoints/step-16")
    run("--resume")
    assert Path("out/checkpoints/step-16").exists()
    assert json.loads(Path("out/run.json").read_text())["steps"] == 16
    assert not list(Path("out").glob("run-until-*"))


def test_a_smaller_number_of_steps_than_were_made_is_a_complete_run(line, capsys):
    run()
    before = rows()
    run("--resume", "--steps", "5")
    assert (rows(), "0 steps in" in capsys.readouterr().out) == (before, True)


def test_a_changed_number_is_printed_and_what_was_until_then_is_kept(line, capsys):
    run()
    first = json.loads(Path("out/run.json").read_text())
    run("--resume", "--steps", "16", "-s", "models.net.optimizer.lr=0.05")
    assert "  changed: models.net.optimizer.lr: 0.1 -> 0.05\n" in capsys.readouterr().out
    assert json.loads(Path("out/run-until-12.json").read_text()) == first
    assert "lr: 0.05" in json.loads(Path("out/run.json").read_text())["spec"]
    run("--resume", "--steps", "20", "-s", "models.net.optimizer.lr=0.05")
    assert [path.name for path in Path("out").glob("run-until-*")] == ["run-until-12.json"]


def test_the_changed_number_is_what_the_following_steps_are_made_with(line):
    run()
    kept = read_checkpoint(Path("out/checkpoints/step-12")).arrays
    run("--resume", "--steps", "13", "-s", "models.net.optimizer.lr=0.0")
    after = read_checkpoint(Path("out/checkpoints/step-13")).arrays
    assert after["models.net.0.weight"] == kept["models.net.0.weight"]
    assert after["optimizers.net.momentum_buffer.0.weight"] != kept["optimizers.net.momentum_buffer.0.weight"]


def test_the_seed_stays_that_of_the_run_unless_another_is_asked_for(line):
    def seed() -> int:
        return json.loads(Path("out/run.json").read_text())["seed"]

    run("--seed", "5")
    run("--resume", "--steps", "14")
    assert seed() == 5
    run("--resume", "--steps", "16", "--seed", "6")
    assert (seed(), Path("out/run-until-14.json").exists()) == (6, True)


def test_without_out_the_last_run_of_that_name_goes_on(line, capsys):
    for _ in range(3):
        assert execute(["run", "line.yaml"]) == 0
    shutil.rmtree("runs/line")  # its number is not given again
    shutil.copytree("runs/line-3", "runs/line-4")
    Path("runs/line-4/run.json").unlink()
    assert execute(["run", "line.yaml", "--resume", "--steps", "14"]) == 0
    assert "resuming in runs/line-3/" in capsys.readouterr().out
    assert execute(["run", "line.yaml"]) == 0
    assert Path("runs/line-5").exists()


def test_a_run_of_a_spec_whose_name_looks_like_a_number_is_not_taken(line, capsys):
    run(out="runs/line")
    Path("other.yaml").write_text(SPEC.replace("name: line", "name: line-2"))
    assert execute(["run", "other.yaml", "--out", "runs/line-2"]) == 0
    assert execute(["run", "line.yaml", "--resume", "--steps", "14"]) == 0
    assert "resuming in runs/line/" in capsys.readouterr().out


PATIENT = """  test: {source: npz, path: line.npz, batch: 20}
run:
  steps: 60
  log_every: 7
  eval: {every: 3 steps}
  best: {metric: error}
  stop: {metric: error, patience: 4}
  checkpoint: {every: 2 steps, keep: 2}
"""


@pytest.fixture
def patient(line):
    """Set a rate so large that the error soon grows: the best is early, and the run is stopped."""
    text = SPEC[: SPEC.index("data:")].replace("lr: 0.1", "lr: 0.9")
    train = "data:\n  train: {source: npz, path: line.npz, batch: 10, shuffle: true}\n"
    Path("line.yaml").write_text(text + train + PATIENT)
    return line


def test_a_run_that_was_stopped_stays_stopped_and_keeps_its_best(patient, capsys):
    run()
    errors = {row["step"]: row["eval/error"] for row in rows() if "eval/error" in row}
    best, last = min(errors, key=lambda step: errors[step]), max(errors)
    assert list(errors) == list(range(3, best + 13, 3))  # four evaluations without a better one
    kept = [best, last - 1, last] if last % 2 else [best, last - 2, last]
    assert sorted(int(path.name[5:]) for path in Path("out/checkpoints").iterdir()) == kept
    before = files()
    run("--resume")
    assert f"stopped at step {last}: error has not become better since step {best}" in capsys.readouterr().out
    assert files() == before


def test_with_more_patience_a_stopped_run_goes_on(patient):
    run("-s", "run.stop.patience=6", out="whole")
    run()
    run("--resume", "-s", "run.stop.patience=6")
    assert rows("whole")[-1]["step"] > 27
    assert [row for row in rows() if row["step"] != 27 or "eval/error" in row] == rows("whole")  # where it had stopped


EPOCHS = """class Waves:
    def __iter__(self):
        import numpy
        for start in range(5):
            x = numpy.linspace(start, start + 1, 10, dtype="float32")[:, None]
            yield {"x": x, "y": numpy.sin(x)}
"""


def test_a_run_of_epochs_whose_length_nobody_knows_ends_after_them_and_stays_ended(line):
    Path("waves.py").write_text(EPOCHS)
    text = SPEC.replace("{source: npz, path: line.npz, batch: 10, shuffle: true}", '{class: "waves:Waves", batch: 10}')
    Path("line.yaml").write_text(text.replace("steps: 12, log_every: 5,", "epochs: 3, log_every: 4,"))
    run("--allow", "waves")
    assert [row["step"] for row in rows()] == [1, 4, 8, 12, 15]
    before = files()
    run("--allow", "waves", "--resume")
    assert files() == before


def test_a_run_of_epochs_goes_on_within_one(line):
    text = SPEC.replace("steps: 12, log_every: 5,", "epochs: 5, log_every: 3,").replace(
        "every: 4 steps", "every: 3 steps"
    )
    Path("line.yaml").write_text(text)
    run(out="whole")
    run()
    shutil.rmtree("out/checkpoints/step-20")
    run("--resume")  # after step 18, in the fifth epoch of 4 batches
    assert (state(20), rows()) == (state(20, "whole"), rows("whole"))


def test_a_figure_that_is_no_number_ends_the_run_with_what_was_trained_saved(patient, capsys):
    watched = ["-s", "run.best={metric: guess, mode: min}", "-s", "outputs=[error, guess]"]
    assert execute(["run", "line.yaml", "--out", "out", *watched]) == 1
    assert "error[GS248]: the evaluation gives no scalar 'guess'" in capsys.readouterr().err
    assert Path("out/checkpoints/step-3").exists()
    run(out="whole")
    run("--resume")
    assert [row for row in rows() if row["step"] > 1] == [row for row in rows("whole") if row["step"] > 1]


def test_pictures_and_metrics_of_evaluation_end_alike_where_the_run_goes_on_after_the_last_picture(workdir):
    Path("line.yaml").write_text(PICTURES)
    run(out="whole")
    run()
    shutil.rmtree("out/checkpoints/step-12")
    run("--resume")
    assert state(12) == state(12, "whole")
    assert Path("out/shown.png").read_bytes() == Path("whole/shown.png").read_bytes()


PICTURES = """graphspec: 1
name: pictures
inputs: {image: {shape: [batch, 1, 8, 8]}, label: {shape: [batch], dtype: int64}}
models:
  net: {layers: [flatten, {linear: 10}], optimizer: adam}
ops:
  scores: {forward: net, inputs: image}
  loss: {loss: cross_entropy, inputs: [scores, label]}
  learn: {update: net, loss: loss}
  accuracy: {metric: accuracy, inputs: [scores, label]}
  noise: {random: normal, like: image, mode: eval}
  shown: {call: add, inputs: [image, noise], mode: eval}
outputs: [loss, accuracy, shown]
data: {train: {source: digits, batch: 32, shuffle: true}}
run: {steps: 12, checkpoint: {every: 4 steps, keep: 3}, images: {value: shown, every: 7 steps}}
"""


@pytest.mark.parametrize(
    "rule", ["{name: sgd, lr: 0.1, momentum: 0.9}", "{name: adamw, lr: 0.1}"], ids=["sgd", "adamw"]
)
@pytest.mark.parametrize(
    "forms",
    [("--jit", ""), ("", "--jit"), ("--jit-dynamic", "--jit")],
    ids=["captured first", "eager first", "all sizes first"],
)
def test_a_run_goes_on_captured_or_eagerly_from_the_checkpoint_of_the_other(line, monkeypatch, forms, rule):
    from runtime.backends.torch import capture

    graphs = []
    monkeypatch.setattr(capture, "COMPILER", lambda graph, inputs: graphs.append(graph) or graph.forward)
    Path("line.yaml").write_text(SPEC.replace("{name: sgd, lr: 0.1, momentum: 0.9}", rule))
    run(out="eager")
    first, second = ([form] * bool(form) for form in forms)
    run("--steps", "5", *first)
    run("--resume", "--steps", "12", *second)
    assert graphs
    found, meant = (read_checkpoint(Path(out, "checkpoints", "step-12")) for out in ("out", "eager"))
    assert found.sections["counters"] == meant.sections["counters"]
    assert found.arrays.keys() == meant.arrays.keys()
    for name, array in meant.arrays.items():
        # Rounding of float32 numbers up to 10, the first gradients, over 12 steps.
        np.testing.assert_allclose(found.arrays[name], array, rtol=1e-5, atol=1e-5, err_msg=name)
    assert [row["error"] for row in rows()] == pytest.approx(
        [row["error"] for row in rows("eager")], rel=1e-5, abs=1e-5
    )
