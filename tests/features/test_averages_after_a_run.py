"""Averages of any width from the checkpoints of a run (Karras et al. 2024), and uniform ones, on either backend."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from runtime.cli import execute
from runtime.export.posthoc import Profile, fit_profile
from runtime.train.average_run import find_gamma
from tests.conformance.scenario import BACKENDS

# One worker, so that the runs are trained once.
pytestmark = pytest.mark.xdist_group("averages after a run")
STEPS, EVERY = 800, 40
SPEC = f"""
graphspec: 1
name: walk
inputs: {{x: {{shape: [batch, 3]}}}}
models:
  w: {{parameter: {{shape: [3], init: 0.0}}, optimizer: {{name: sgd, lr: 1.0}}}}
ops:
  value: {{forward: w}}
  product: {{call: mul, inputs: [value, x]}}
  loss: {{call: sum, inputs: product}}
  step: {{update: w, loss: loss}}
  wide: {{ema: w, decay: {{kind: power, sigma_rel: 0.10}}}}
  narrow: {{ema: w, decay: {{kind: power, sigma_rel: 0.05}}, every: 2}}
  usual: {{ema: w, decay: 0.99}}
outputs: [loss]
data: {{train: {{source: npz, path: way.npz, batch: 1}}}}
run: {{steps: {STEPS}, log_every: {STEPS}, checkpoint: {{every: {EVERY} steps, keep: 1000}}}}
"""
TIMES = np.arange(1, STEPS + 1)
NOISE = np.cumsum(np.random.default_rng(4).normal(size=STEPS))
WAY = np.stack([1 + 0.02 * NOISE, 1 / (1 + TIMES / 50), 2 + np.sin(TIMES / 150)], axis=1)
"""The weights after every step: a random walk, a decay, a wave. Their differences are the batches."""


def find_ideal(sigma_rel: float, last: int = STEPS) -> np.ndarray:
    """Return the average of a width over the first steps of the way, from its definition."""
    gamma = np.roots([1, 7, 16 - sigma_rel**-2, 12 - sigma_rel**-2]).real.max()
    t = np.arange(last + 1) / last
    return np.diff(t ** (gamma + 1)) @ WAY[:last]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Train the weight along the way, once per backend."""
    folder = tmp_path_factory.mktemp("averages")
    np.savez(folder / "way.npz", x=-np.diff(WAY, axis=0, prepend=0).astype("float32"))
    (folder / "walk.yaml").write_text(SPEC)
    with contextlib.chdir(folder):
        for backend in BACKENDS:
            assert execute(["run", "walk.yaml", "--plain", "--backend", backend, "--out", backend]) == 0
    return folder


@pytest.fixture
def inside(folder, monkeypatch):
    """Run the test in the folder of the runs."""
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sigma_rel", [0.06, 0.07, 0.1, 0.13])
def test_an_average_of_any_width_is_that_of_the_whole_way(inside, backend, sigma_rel, capsys):
    assert execute(["average", backend, "--sigma-rel", str(sigma_rel), "--out", "made.safetensors"]) == 0
    found = load_file("made.safetensors")
    assert found.keys() == {"value"}
    assert np.allclose(found["value"], find_ideal(sigma_rel), rtol=1e-3, atol=0)
    assert "from 40 snapshots: wide at step-40, narrow at step-40, ..., narrow at step-800" in capsys.readouterr().out


def test_an_average_at_an_earlier_step_ends_there(inside):
    backend = BACKENDS[0]
    assert (
        execute(["average", backend, "--sigma-rel", "0.07", "--checkpoint", "400", "--out", "early.safetensors"]) == 0
    )
    assert np.allclose(load_file("early.safetensors")["value"], find_ideal(0.07, 400), rtol=2e-3, atol=0)


def test_one_average_at_many_steps_gives_others(inside):
    given = ["--sigma-rel", "0.08", "--average", "wide", "--out", "one.safetensors"]
    assert execute(["average", BACKENDS[0], *given]) == 0
    assert np.allclose(load_file("one.safetensors")["value"], find_ideal(0.08), rtol=2e-3, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_uniform_average_is_the_mean_of_the_checkpoints(inside, backend):
    assert execute(["average", backend, "--uniform", "step-7*", "--out", "mean.safetensors"]) == 0
    steps = [step for step in range(EVERY, STEPS + 1, EVERY) if str(step).startswith("7")]
    assert np.allclose(load_file("mean.safetensors")["value"], WAY[np.array(steps) - 1].mean(axis=0), rtol=1e-5, atol=0)


@pytest.mark.parametrize(("sigma_rel", "gamma"), [(0.05, 16.97), (0.10, 6.94)])
def test_the_widths_of_the_paper_have_its_exponents(sigma_rel, gamma):
    assert round(find_gamma(sigma_rel), 2) == gamma


def test_the_weights_and_the_error_are_those_of_sums_over_steps():
    """Inner products as integrals over time, against sums over a fine grid of it."""
    stored = [Profile(length, gamma) for length in (300, 700, 1000) for gamma in (6.94, 16.97)]
    wanted = Profile(1000, 10.0)
    grid = (np.arange(200_000) + 0.5) / 200
    rows = [(p.gamma + 1) * grid**p.gamma / p.length ** (p.gamma + 1) * (grid < p.length) for p in (*stored, wanted)]
    matrix, target = np.array(rows[:-1]).T, np.array(rows[-1])
    expected = np.linalg.lstsq(matrix, target, rcond=None)[0]
    expected /= expected.sum()
    fit = fit_profile(stored, wanted)
    assert np.allclose(fit.weights, expected, rtol=0, atol=1e-4)
    error = np.linalg.norm(matrix @ expected - target) / np.linalg.norm(target)
    assert np.isclose(fit.error, error, rtol=1e-3, atol=0)
    assert np.isclose(fit.amplification, np.abs(expected).sum(), rtol=1e-3, atol=0)


@pytest.mark.parametrize(("wide", "narrow"), [(1, 1), (5, 5), (1, 4)])
def test_the_error_is_that_of_the_shares_that_writes_have(wide, narrow):
    """The rule of the average, run on one number per write, says what share each has."""
    last, least = 100, min(wide, narrow)

    def share(length: int, gamma: float, every: int) -> np.ndarray:
        shares = np.zeros(last)
        for n in range(every, length + 1, every):
            decay = ((n - every) / n) ** (gamma + 1)
            shares *= decay
            shares[n - every : n] += (1 - decay) / every  # it counts for those passed over
        return shares

    stored = [Profile(n, 6.94, wide) for n in (20, 60, 100)] + [Profile(n, 16.97, narrow) for n in (20, 60, 100)]
    fit = fit_profile(stored, Profile(last, 11.24, least))
    found = np.array(fit.weights) @ [share(each.length, each.gamma, each.every) for each in stored]
    expected = share(last, 11.24, least)
    assert np.isclose(fit.error, np.linalg.norm(found - expected) / np.linalg.norm(expected), rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sigma-rel", "0.004"], r"sigma_rel 0.004 cannot be reconstructed from 40 snapshots"),
        (["--sigma-rel", "0.25", "--checkpoint", "40"], "reach from"),
        (["--sigma-rel", "0.1", "--average", "usual"], "the run has no power average 'usual'"),
        (["--sigma-rel", "0.1", "--model", "v"], "the run has no model 'v'"),
        (["--sigma-rel", "0.1", "--model", "wide"], "no averages of kind power"),
        (["--uniform", "step-9*"], "no checkpoint is called 'step-9*'"),
    ],
)
def test_what_cannot_be_averaged_is_an_error_with_a_remedy(inside, capsys, options, message):
    assert execute(["average", BACKENDS[0], *options, "--out", "none.safetensors"]) == 1
    text = capsys.readouterr().err
    assert "error[GS256]" in text
    assert message in text
    assert "= help: " in text
    assert not Path("none.safetensors").exists()


@pytest.mark.parametrize(
    "options",
    [[], ["--sigma-rel", "0.3"], ["--sigma-rel", "0.1", "--uniform", "*"], ["--uniform", "*", "--average", "wide"]],
)
def test_an_average_without_a_meaning_is_wrong_usage(inside, options):
    assert execute(["average", BACKENDS[0], *options]) == 2


NET = """
graphspec: 1
name: net
inputs: {image: {shape: [batch, 1, 8, 8]}, label: {shape: [batch], dtype: int64}}
models:
  net: {layers: [flatten, {linear: {out: 4, bias: false}}, batch_norm, {linear: 10}], optimizer: {name: sgd, lr: 0.1}}
  other: {layers: [flatten, {linear: 10}], optimizer: {name: sgd, lr: 0.1}}
ops:
  scores: {forward: net, inputs: image}
  others: {forward: other, inputs: image}
  all: {call: add, inputs: [scores, others]}
  loss: {loss: cross_entropy, inputs: [all, label]}
  step: {update: [net, other], loss: loss}
  first: {ema: net, decay: {kind: power, gamma: 3.0}, buffers: copy, exclude: '^3', until: 11 steps}
  second: {ema: net, decay: {kind: power, gamma: 7.0}, buffers: copy, exclude: '^3'}
  third: {ema: net, decay: {kind: power, gamma: 9.0}, buffers: average}
  fourth: {ema: other, decay: {kind: power, gamma: 9.0}}
outputs: [loss]
data: {train: {source: digits, batch: 32}}
run: {steps: 12, checkpoint: {every: 1 steps, keep: 1000}}
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_copied_is_the_newest_and_averages_must_agree(workdir, backend, capsys):
    Path("net.yaml").write_text(NET)
    assert execute(["run", "net.yaml", "--plain", "--backend", backend, "--out", "run"]) == 0
    both = ["--average", "first", "--average", "second"]
    assert execute(["average", "run", "--sigma-rel", "0.14", *both, "--out", "made.safetensors"]) == 0
    made, newest = load_file("made.safetensors"), load_file("run/checkpoints/step-12/state.safetensors")
    copied = {name for name in made if np.array_equal(made[name], newest[f"models.net.{name}"])}
    statistics = {"2.running_mean", "2.running_var", "2.num_batches_tracked"}
    assert copied == {"3.weight", "3.bias", *statistics}
    assert made["2.num_batches_tracked"].dtype == np.int64
    ways = [load_file(f"run/checkpoints/step-{step}/state.safetensors")["models.net.1.weight"] for step in range(1, 13)]
    gamma = np.roots([1, 7, 16 - 0.14**-2, 12 - 0.14**-2]).real.max()
    ideal = np.tensordot(np.diff((np.arange(13) / 12) ** (gamma + 1)), np.array(ways), 1)
    assert np.allclose(made["1.weight"], ideal, rtol=0, atol=1e-3 * np.abs(ideal).max())
    for options, said in (
        (["--model", "net"], "'first' and 'third' have another `exclude`"),
        ([], "'first' averages 'net', and 'fourth' 'other'"),
    ):
        assert execute(["average", "run", "--sigma-rel", "0.14", *options]) == 1
        assert said in capsys.readouterr().err
    assert execute(["average", "run", "--uniform", "*"]) == 1
    assert "the run trains net, other" in capsys.readouterr().err
    assert execute(["average", "run", "--uniform", "*", "--model", "other", "--out", "mean.safetensors"]) == 0
    states = [load_file(f"run/checkpoints/step-{step}/state.safetensors") for step in range(1, 13)]
    mean = np.mean([state["models.other.1.weight"].astype("float64") for state in states], axis=0)
    assert np.allclose(load_file("mean.safetensors")["1.weight"], mean, rtol=1e-6, atol=0)
