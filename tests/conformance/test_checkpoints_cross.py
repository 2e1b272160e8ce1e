"""A checkpoint that was written under one backend is gone on with under the other: ten steps later all agree."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphspec import load
from runtime import Step, build
from runtime.checkpoints import read_checkpoint
from runtime.cli import execute
from runtime.state import State
from runtime.train.resume import compare_backends
from tests.conformance.scenario import BACKENDS, Scenario

pytestmark = pytest.mark.needs("torch", "tensorflow")
CLOSE = 1e-10
HEAD = """graphspec: 1
name: crossing
inputs: {x: {shape: [batch, 4]}, t: {shape: [batch, 3]}}
models:
  net: {layers: [{linear: {out: 5, bias: false}}, batch_norm, tanh, {dropout: DROPOUT}, {linear: 3}], optimizer: {RULE}}
  far: {like: net}
ops:
  y: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [y, t]}
  learn: {update: net, loss: loss}
"""
OPTIMIZERS = {
    "sgd": "name: sgd, lr: 0.1",
    "momentum": "name: sgd, lr: 0.1, momentum: 0.9, dampening: 0.1",
    "momentum inside": "name: sgd, lr: 0.1, momentum: 0.9, momentum_form: lr_inside",
    "adam": "name: adam, lr: 0.01, betas: [0.5, 0.99]",
    "adamw": "name: adamw, lr: 0.01, weight_decay: 0.1",
    "adagrad": "name: adagrad, lr: 0.1, lr_decay: 0.1",
    "lion": "name: lion, lr: 0.01",
    "rmsprop": "name: rmsprop, lr: 0.01, momentum: 0.5, centered: true",
    "nadam": "name: nadam, lr: 0.01",
    "adamax": "name: adamax, lr: 0.01",
    "adadelta": "name: adadelta, lr: 0.5",
    "lamb": "name: lamb, lr: 0.01, weight_decay: 0.1",
    "lars": "name: lars, lr: 0.5, trust_coefficient: 0.1",
    "adafactor": "name: adafactor, lr: 0.1",
    "ftrl": "name: ftrl, lr: 0.1, l1: 0.001",
    "rprop": "name: rprop, lr: 0.01",
    "schedule_free_sgd": "name: schedule_free_sgd, lr: {schedule: warmup, from: 0.02, to: 0.1, over: 7}",
    "schedule_free_adamw": "name: schedule_free_adamw, lr: 0.01, weight_decay: 0.1",
    "schedule": "name: adam, lr: {schedule: cosine, from: 0.1, to: 0.0, over: 19}",
    "clock": "name: nadam, lr: {schedule: linear, from: 0.1, to: 0.0, over: 25, clock: steps}",
}
FEATURES = {
    "averages": "  shadow: {ema: net, decay: 0.5, buffers: average, every: 2}\n",
    "swap": "  shadow: {ema: net, decay: 0.5, buffers: copy, use: {eval: swap}}\n  seen: {metric: mean, inputs: y}\n",
    "clocks": ", every: 2, start: 2 steps, until: 17 steps}\n"
    "  follow: {ema: net, into: far, decay: 0.5, buffers: copy, every: 2}\n",
    "metrics": "  level: {metric: mean, inputs: y, reset: 4 steps}\n  whole: {metric: mean, inputs: y, reset: never}\n",
    "draws": "  noise: {random: normal, like: t}\n  other: {loss: mse, inputs: [y, noise], mode: train}\n",
}
EXAMPLES = Path(__file__).parents[2] / "examples"


def spec(rule: str = OPTIMIZERS["adam"], more: str = "", dropout: float = 0.0) -> str:
    """Return a spec with a rule, with more ops and with dropout."""
    text = HEAD.replace("RULE", rule).replace("DROPOUT", str(dropout))
    return (text.removesuffix("}\n") if more.startswith(",") else text) + more


SEQUENCES = """
graphspec: 1
name: sequences
inputs: {x: {shape: [batch, 6]}, y: {shape: [batch, 2]}}
models:
  net:
    layers:
      - {spectral_norm: [{linear: 6}]}
      - {reshape: [2, 3]}
      - positional
      - {multi_head_attention: {heads: 1, causal: true, dropout: 0.2}}
      - {lstm: 2}
      - {gru: {size: 2, last: true}}
    optimizer: {name: adam, lr: 0.01}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: loss}
outputs: [loss]
"""
SCENARIOS = (
    *(Scenario(name=name, source=spec(rule)) for name, rule in OPTIMIZERS.items()),
    *(Scenario(name=name, source=spec(more=more, dropout=0.5 * (name == "draws"))) for name, more in FEATURES.items()),
    Scenario(name="sequences", source=SEQUENCES),
    Scenario(name="td3", source=EXAMPLES / "td3" / "td3.yaml", settings=("vars.width=8",)),
    Scenario(name="ema-classifier", source=EXAMPLES / "ema-classifier" / "ema-classifier.yaml", classes={"label": 10}),
)
EACH = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


def make(scenario: Scenario, backend: str, **more: object) -> Step:
    """Return a new build of a scenario."""
    return build(scenario.plan(backend), device="cpu", dtype="float64", seed=3, **more)


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Return the greatest difference of two arrays, relative to the greatest number where that is above 1."""
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    a, b = one.astype("float64"), other.astype("float64")
    return float(np.abs(a - b).max(initial=0.0) / max(1.0, float(np.abs(a).max(initial=0.0))))


def difference(one: State, other: State) -> float:
    """Return how far two states are apart: their arrays at most; what is counted must be the same."""
    assert (one.counters, one.arrays.keys()) == (other.counters, other.arrays.keys())
    return max(apart(array, other.arrays[name]) for name, array in one.arrays.items())


def follow(steps: list[Step], scenario: Scenario, start: int, stop: int) -> float:
    """Take the same steps with all, each evaluated as well; return how far the outputs are apart at most."""
    worst = 0.0
    batches = [batch for batch, _ in zip(scenario.batches(steps[0].spec), range(stop), strict=False)]
    for batch in batches[start:]:
        for mode in (mode.mode for mode in steps[0].plan.program.modes):
            found = [{name: step.numpy(value) for name, value in step(batch, mode).items()} for step in steps]
            assert all(each.keys() == found[0].keys() for each in found)
            worst = max([worst, *(apart(value, each[name]) for each in found for name, value in found[0].items())])
    return worst


@pytest.mark.sample(3)
@EACH
def test_ten_steps_after_a_checkpoint_of_the_other_backend_all_is_the_same(scenario: Scenario, tmp_path: Path) -> None:
    one, other = (make(scenario, backend) for backend in BACKENDS)
    for start, (saved, loaded) in ((0, (one, other)), (20, (other, one))):
        follow([saved], scenario, start, start + 10)
        saved.save(tmp_path / f"{start}")
        loaded.load(tmp_path / f"{start}")
        assert difference(saved.state(), loaded.state()) == 0.0
        assert follow([saved, loaded], scenario, start + 10, start + 20) <= CLOSE
        assert difference(saved.state(), loaded.state()) <= CLOSE


@pytest.mark.sample(3)
@pytest.mark.parametrize("saved", BACKENDS)
@pytest.mark.parametrize("rule", ["momentum", "nadam", "lion", "adafactor", "rprop", "ftrl"])
def test_a_checkpoint_from_before_the_first_update_crosses_as_well(saved: str, rule: str) -> None:
    (scenario,) = (each for each in SCENARIOS if each.name == rule)
    steps = {backend: make(scenario, backend) for backend in BACKENDS}
    fresh = steps[saved].state()
    (loaded,) = (step for backend, step in steps.items() if backend != saved)
    follow([loaded], scenario, 0, 3)
    loaded.restore(fresh)
    assert follow(list(steps.values()), scenario, 0, 5) <= CLOSE


RUN = """graphspec: 1
name: line
rng: portable
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 4}, tanh, {dropout: 0.2}, {linear: 1}], optimizer: {name: adam, lr: 0.05}}
ops:
  guess: {forward: net, inputs: x}
  error: {loss: mse, inputs: [guess, y]}
  learn: {update: net, loss: error}
  shadow: {ema: net, decay: 0.8}
outputs: [error]
data: {train: {source: npz, path: line.npz, batch: 8, shuffle: true}}
run: {steps: 16, log_every: 4}
"""


trained_once = pytest.mark.xdist_group("line")


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Train 16 steps under torch; the same with 8, and 8 under tensorflow, each in a process of its own."""
    folder = tmp_path_factory.mktemp("line")
    x = np.random.default_rng(0).normal(size=(40, 2))
    np.savez(folder / "line.npz", x=x, y=np.sin(x[:, :1]) + x[:, 1:])
    (folder / "line.yaml").write_text(RUN)
    with contextlib.chdir(folder):
        assert execute(["run", "line.yaml", "--device", "cpu", "--out", "whole"]) == 0
    run_alone(folder, "--out", "crossed", "--steps", "8")
    told = run_alone(folder, "--out", "crossed", "--resume", "--steps", "16", "--backend", "tensorflow")
    return folder, told


def run_alone(folder: Path, *options: str) -> str:
    """Return what a `stepgraph run` in a process of its own printed."""
    root = str(Path(__file__).parents[2])
    program = f"import sys; sys.path.insert(0, {root!r}); from runtime.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, "run", "line.yaml", "--device", "cpu", "--plain", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.long
@trained_once
def test_a_run_goes_on_under_the_other_backend_and_says_so(line: tuple[Path, str]) -> None:
    folder, told = line
    assert "  changed: backend: torch -> tensorflow\n" in told
    assert "resuming after step 8" in told
    records = [json.loads((folder / "crossed" / name).read_text()) for name in ("run-until-8.json", "run.json")]
    assert [each["backend"] for each in records] == ["torch", "tensorflow"]


@pytest.mark.long
@trained_once
def test_a_run_that_crossed_ends_where_one_of_a_single_backend_does(line: tuple[Path, str]) -> None:
    whole, crossed = (
        read_checkpoint(line[0] / name / "checkpoints" / "step-16").arrays for name in ("whole", "crossed")
    )
    assert whole.keys() == crossed.keys()
    for name, array in whole.items():
        np.testing.assert_allclose(crossed[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.long
@trained_once
def test_a_run_stays_with_its_backend_unless_another_is_asked_for(
    line: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(line[0])
    for options, backend in (((), "tensorflow"), (("--backend", "torch"), "torch")):
        steps = {"tensorflow": "17", "torch": "18"}[backend]
        assert execute(["run", "line.yaml", "--out", "crossed", "--resume", "--steps", steps, *options]) == 0
        assert json.loads(Path("crossed/run.json").read_text())["backend"] == backend
    assert capsys.readouterr().out.count("changed: backend: tensorflow -> torch") == 1


@pytest.mark.parametrize(
    ("rng", "more", "dropout", "after"),
    [
        ("native", "", 0.5, "tensorflow (its own random numbers from here on: `rng: native`)"),
        ("native", FEATURES["draws"], 0.0, "tensorflow (its own random numbers from here on: `rng: native`)"),
        ("portable", FEATURES["draws"], 0.5, "tensorflow"),
    ],
)
def test_other_random_numbers_are_told_where_there_are_any(rng: str, more: str, dropout: float, after: str) -> None:
    document = load(spec(more=more, dropout=dropout), [f"rng={rng}"])
    (change,) = compare_backends("torch", "tensorflow", document)
    assert (str(change), change.kind) == (f"backend: torch -> {after}", "hyper")
    assert not [*compare_backends("torch", "torch", document), *compare_backends("torch", None, document)]
