"""``stepgraph bench``: the variants, their figures, what loops by hand return, and what is wrong with them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from benchmarks.workloads import SPECS
from graphspec import SpecError
from runtime.backends.torch import capture
from runtime.backends.torch.backend import TorchBackend
from runtime.bench import comparison
from runtime.cli import execute
from runtime.engine.backend import Backend
from tests.resilience import processes

pytestmark = pytest.mark.needs("torch")
LOOPS = """
import torch
from torch.nn import functional as F

from benchmarks.workloads import AveragedMlp


def expert(models):
    made = AveragedMlp()
    made.net, made.average = models["classifier"], models["averaged"]
    return made.expert()


def fast(models, rate=0.1):
    net = models["classifier"]
    optimizer = torch.optim.Adam(net.parameters(), rate)

    def step(batch):
        loss = F.cross_entropy(net(batch["x"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.item(), "norm": 1.0}

    return step


def silent(models):
    step = expert(models)
    return lambda batch: step(batch) and None


def lost(models):
    return models["clasifier"]


def nothing(models):
    models["classifier"].zero_grad()


def failing(models):
    def step(batch):
        return batch["y"]

    return step


def late(models):
    step, taken = expert(models), []

    def late_step(batch):
        taken.append(1)
        if len(taken) > 5:
            raise RuntimeError("too late")
        return step(batch)

    return late_step


number = 3
"""
DATA = """graphspec: 1
name: digits
inputs: {image: {shape: [batch, 1, 8, 8]}, label: {shape: [batch], dtype: int64}}
models: {net: {layers: [flatten, {linear: 10}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  scores: {forward: net, inputs: image}
  loss: {loss: cross_entropy, inputs: [scores, label]}
  step: {update: net, loss: loss}
outputs: [loss]
data: {train: {source: digits, batch: 100}}
"""
SETS = """graphspec: 1
name: sets
inputs: {image: {shape: [batch, 1, 8, 8]}, label: {shape: [batch], dtype: int64}}
models: {net: {layers: [flatten, {linear: 10}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  scores: {forward: net, inputs: image}
  loss: {loss: cross_entropy, inputs: [scores, label]}
  step: {update: net, loss: loss, dataset: some}
  other: {call: mean, inputs: scores, dataset: rest}
outputs: [loss, other]
data: {train: {some: {source: digits, batch: 100}, rest: {source: digits, batch: 50}}}
"""
FREE = """graphspec: 1
name: free
inputs: {x: {shape: [batch, time]}}
ops: {m: {call: mean, inputs: x}}
outputs: [m]
"""
SIGNS = """
from pathlib import Path


def sign(models):
    taken = []

    def step(batch):
        taken.append(sum(range(200_000)))
        if len(taken) == 100:  # a slice has some ten steps
            Path("begun").touch()
        return {}

    return step
"""
"""A loop of some milliseconds that says when some rounds have been measured."""


@pytest.fixture
def folder(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a spec and loops into the working directory; a slice of time is a single step."""
    shutil.copy(SPECS / "averaged-mlp.yaml", "spec.yaml")
    Path("loops.py").write_text(LOOPS)
    monkeypatch.setattr(comparison, "SLICE", 1e-3)
    return workdir


def measure(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    """Return the report of a command as JSON."""
    assert execute(["bench", "spec.yaml", "--rounds", "3", "--device", "cpu", "--json", "-", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_variant_is_timed_against_the_first_loop(folder, capsys):
    given = ["--loop", "mine=loops.py:expert", "--loop", "other=loops.py:fast", "--rows", "16", "--seed", "7"]
    report = measure(capsys, *given, "--batches", "4")
    variants = report["variants"]
    assert [*variants] == ["mine", "other", "emitted", "step"]
    assert (report["baseline"], report["rounds"], report["seed"]) == ("mine", 3, 7)
    assert report["batches"] == {"count": 4, "source": "made up", "shapes": {"x": [16, 32], "label": [16]}}
    assert report["machine"]["framework"].startswith("torch ")
    for each in variants.values():
        timing = each["timing"]
        assert 0 < timing["low"] <= timing["ratio"] <= timing["high"]
        assert timing["steps_per_second"] == pytest.approx(1e3 / timing["ms"])
        assert each["build_seconds"] >= 0
        assert each["peak_bytes"] is None  # nothing is guessed on the processor
    own = variants["mine"]["timing"]
    assert own["ratio"] == own["low"] == own["high"] == own["cpu_ratio"] == 1.0


def test_a_loop_that_trains_otherwise_is_told_to_differ(folder, capsys):
    # The expert's loop by hand gives the step's losses to the last bit: see tests/conformance/test_benchmarks.py.
    given = [f"--loop={name}=loops.py:{name}" for name in ("expert", "fast", "silent")]
    found = {name: each["against_step"] for name, each in measure(capsys, *given)["variants"].items()}
    assert found["expert"] == found["emitted"] == {"agrees": True, "difference": 0.0, "output": "loss", "step": 1}
    assert found["step"] is None
    assert found["silent"] is None
    assert not found["fast"]["agrees"]
    assert found["fast"]["difference"] > 1e-3
    assert found["fast"]["step"] > 1  # before its first update nothing differs


def test_the_table_names_variants_and_differences(folder, capsys):
    given = [f"--loop={name}=loops.py:{name}" for name in ("fast", "silent")]
    command = ["bench", "spec.yaml", "--rounds", "2", "--baseline", "step", "--device", "cpu", "--threads", "1"]
    assert execute([*command, *given]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("averaged-mlp: one train step, torch ")
    assert lines[1].startswith("  1 thread of ")
    header = lines[lines.index("") + 1]
    assert header.split()[:6] == ["ms", "of", "step", "p10", "-", "p90"]
    rows = {line.split()[0]: line for line in lines[lines.index("") + 2 : lines.index("") + 6]}
    assert [*rows] == ["fast", "silent", "emitted", "step"]
    assert rows["step"].split()[2] == "1.000"
    assert "differs by" in rows["fast"]
    assert rows["silent"].endswith("not compared")
    assert rows["emitted"].endswith("equal")
    assert any(line.startswith("fast: loss differs from that of step by ") for line in lines)
    assert "\x1b" not in "".join(lines)


def test_batches_are_those_of_the_spec(folder, capsys):
    Path("spec.yaml").write_text(DATA)
    report = measure(capsys, "-s", "data.train.batch=700")
    # 1,408 samples: the third batch of an epoch has eight, and steps of another size are not compared with.
    assert report["batches"] == {
        "count": 16,
        "source": "data.train",
        "shapes": {"image": [700, 1, 8, 8], "label": [700]},
    }


def test_a_batch_says_of_which_set_it_is(folder, capsys):
    Path("spec.yaml").write_text(SETS)
    Path("sets.py").write_text(
        "def other(models):\n"
        "    def step(batch):\n"
        "        scores = models['net'](batch['image'])\n"
        "        return {'other': scores.mean()} if batch.dataset == 'rest' else {}\n"
        "    return step\n"
    )
    variants = measure(capsys, "--loop", "mine=sets.py:other", "--batches", "2")["variants"]
    assert variants["emitted"]["against_step"]["difference"] == 0.0
    # The second batch is the first of its set; the loop does not train, so its mean is that of the initial weights.
    assert variants["mine"]["against_step"]["output"] == "other"
    assert variants["mine"]["against_step"]["step"] == 2


def test_a_backend_without_a_meter_says_so():
    with pytest.raises(SpecError, match="GS279"):
        Backend.meter(TorchBackend(), "cpu", None)


def test_a_captured_step_is_timed_too(folder, capsys, monkeypatch):
    monkeypatch.setattr(capture, "COMPILER", lambda graph, inputs: graph.forward)
    found = measure(capsys, "--jit", "--loop", "mine=loops.py:expert")["variants"]["jit"]
    assert found["against_step"]["agrees"]
    assert found["notes"][0].startswith("compiled train (step, average) in ")


def test_a_step_that_cannot_be_captured_says_why_and_the_rest_goes_on(folder, capsys):
    text = Path("spec.yaml").read_text()
    Path("spec.yaml").write_text(text.replace("{name: adam,", "{name: nadam,"))
    report = measure(capsys, "--jit", "--baseline", "jit")
    assert [*report["variants"]] == ["emitted", "step"]
    assert report["baseline"] == "step"
    assert "its optimizer has torch.optim's interface" in report["left_out"]["jit"]


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("absent.py:expert", "there is no file 'absent.py'"),
        ("loops.py:expart", "'loops.py' has no function 'expart'; did you mean 'expert'?"),
        ("loops.py:number", "'loops.py' has no function 'number'"),
        ("broken.py:expert", "broken.py:2 is not valid Python"),
        ("raising.py:expert", "importing 'raising.py' raised ZeroDivisionError: division by zero"),
        ("loops.py:lost", "lost(models) raised KeyError: 'clasifier'"),
        ("loops.py:nothing", "nothing(models) returned NoneType"),
        ("loops.py:failing", "its step(batch) raised KeyError: 'y'"),
        ("loops.py:late", "its step(batch) raised RuntimeError: too late"),
    ],
)
def test_what_is_wrong_with_a_loop_names_its_option(folder, capsys, loop, expected):
    Path("broken.py").write_text("def expert(models):\nreturn 1\n")
    Path("raising.py").write_text("1 / 0\n")
    assert execute(["bench", "spec.yaml", "--device", "cpu", "--rounds", "2", "--loop", f"mine={loop}"]) == 1
    printed = capsys.readouterr().err
    assert f"error[GS278]: `--loop mine={loop}`: {expected}" in printed
    assert "help: " in printed


@pytest.mark.parametrize(
    "arguments",
    [
        ["--loop", "loops.py:expert"],
        ["--loop", "mine=loops.py"],
        ["--loop", "step=loops.py:expert"],
        ["--loop", "a=loops.py:expert", "--loop", "a=loops.py:fast"],
        ["--baseline", "jit"],
        ["--rounds", "0"],
    ],
)
def test_wrong_usage_is_2(folder, capsys, arguments):
    assert execute(["bench", "spec.yaml", *arguments]) == 2
    assert arguments[0] in capsys.readouterr().err


def test_batches_that_cannot_be_made_up_are_named(folder, capsys):
    Path("spec.yaml").write_text(FREE)
    assert execute(["bench", "spec.yaml", "--device", "cpu"]) == 1
    printed = capsys.readouterr().err
    assert "error[GS220]: the spec 'free' has no `data.train`, and no batches can be made up: " in printed
    assert "the sizes of x [batch, time] are not known" in printed


def test_ctrl_c_prints_what_was_measured(folder):
    Path("signs.py").write_text(SIGNS)
    arguments = ["bench", "spec.yaml", "--device", "cpu", "--rounds", "100000", "--json", "report.json"]
    arguments += ["--loop", "mine=signs.py:sign"]
    child = processes.start(arguments, Path.cwd(), Path("out.txt").resolve(), processes.split_errors)
    while child.is_alive() and not Path("begun").exists():
        child.join(0.05)
    os.kill(child.pid, signal.SIGINT)
    child.join(60)
    out, err = Path("out.txt").read_text(), Path("errors.txt").read_text()
    assert child.exitcode == 130, err
    rounds = re.search(r"interrupted \(SIGINT\) after (\d+) rounds? of 100000", err)
    assert rounds is not None, err
    assert int(rounds[1]) > 0
    assert f"{rounds[1]} of 100000 rounds in random order" in out
    assert [line.split()[0] for line in out.splitlines()[6:9]] == ["mine", "emitted", "step"]
    report = json.loads(Path("report.json").read_text())
    assert (report["interrupted"], report["rounds"]) == (True, int(rounds[1]))


def test_loops_are_not_left_on_the_path(folder, capsys):
    before = list(sys.path)
    measure(capsys, "--loop", "mine=loops.py:expert")
    assert sys.path == before
