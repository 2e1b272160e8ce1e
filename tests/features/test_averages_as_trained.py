"""An average counts updates that took place: under accumulation, overflow, micro-batches, ties, compiling, resuming."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from runtime import Step, build
from tests.features.overflows import INF, give
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("E12")

DECAY = "decay: {kind: inverse_power, max: 0.99}"
SPEC = """
graphspec: 1
name: fit
inputs: {x: {shape: [batch, 3]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 4}, tanh, {linear: 1}], optimizer: {name: sgd, lr: 0.2}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: loss}
  average: {ema: net, DECAY, use: {eval: swap}}
outputs: [loss]
""".replace("DECAY", DECAY)
RANDOM = np.random.default_rng(11)
BATCHES = [{"x": RANDOM.normal(size=(6, 3)), "y": RANDOM.normal(size=(6, 1))} for _ in range(8)]


def kept(t: int) -> float:
    """Return what timm's ModelEmaV3 and diffusers keep after the t-th update."""
    return 0.0 if t == 1 else min(1 - t ** (-2 / 3), 0.99)


def fit(w: Mapping[str, np.ndarray], *batches: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights of the net after one update of SGD by the mean gradient of equally large batches, by hand."""
    x, y = (np.concatenate([batch[name] for batch in batches]) for name in ("x", "y"))
    hidden = np.tanh(x @ w["net.0.weight"].T + w["net.0.bias"])
    error = 2 * (hidden @ w["net.2.weight"].T + w["net.2.bias"] - y) / len(y)
    inner = (error @ w["net.2.weight"]) * (1 - hidden**2)
    slopes = {"0.weight": inner.T @ x, "0.bias": inner.sum(0), "2.weight": error.T @ hidden, "2.bias": error.sum(0)}
    return {f"net.{name}": w[f"net.{name}"] - 0.2 * slope for name, slope in slopes.items()}


def train(step: Step, batches: Sequence[Mapping[str, np.ndarray]], window: int = 1) -> list[dict[str, np.ndarray]]:
    """Return the weights after every update by hand, from those that a step begins with."""
    w, written = dict(weights(step)), list[dict[str, np.ndarray]]()
    for first in range(0, len(batches), window):
        w = fit(w, *batches[first : first + window])
        written.append(w)
    return written


def follow(
    written: Sequence[Mapping[str, np.ndarray]], model: str = "net", decay: Callable[[int], float] = kept
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the average after each of some updates, by hand, from the weights after it."""
    average: dict[str, np.ndarray] = {}
    for t, found in enumerate(written, 1):
        own = {name.removeprefix(f"{model}."): value for name, value in found.items() if name.startswith(f"{model}.")}
        average = {name: decay(t) * average.get(name, 0.0) + (1 - decay(t)) * value for name, value in own.items()}
        yield average


def matches(step: Step, average: Mapping[str, np.ndarray], rtol: float = 1e-12) -> bool:
    """Return whether an average is that by hand."""
    found = weights(step)
    return all(np.allclose(found[f"average.{name}"], value, rtol=rtol, atol=1e-14) for name, value in average.items())


def test_accumulating_steps_are_no_updates(backend: str) -> None:
    """Keras 3 averages in every micro-step; the decay would be that of update 8 rather than 2."""
    step = build_step(SPEC, backend, ["ops.step.accumulate=4"])
    written = train(step, BATCHES, window=4)
    for number, batch in enumerate(BATCHES, 1):
        before = weights(step)
        step(batch)
        if number % 4:
            assert all(np.array_equal(value, weights(step)[name]) for name, value in before.items())
    *_, average = follow(written)
    assert matches(step, average)


def test_skipped_steps_are_no_updates(backend: str) -> None:
    from tests.features.overflows import SPEC as GIVEN

    text = GIVEN.replace("precision:", f"  average: {{ema: v, {DECAY}}}\nprecision:")
    step = build_step(text, backend)
    w, average, updates = 0.0, 0.0, 0
    for slope in (-1.0, INF, float("nan"), -2.0, INF, -1.0):
        give(step, slope)
        if math.isfinite(slope):
            updates += 1
            w -= slope  # the learning rate is 1
            average = kept(updates) * average + (1 - kept(updates)) * w
        assert math.isclose(weights(step)["average.value"][0], average, rel_tol=1e-12)


def test_micro_batches_are_one_update(backend: str) -> None:
    whole, split = build_step(SPEC, backend), build_step(SPEC, backend, ["micro_batches=3"])
    written = train(whole, BATCHES)
    for batch in BATCHES:
        whole(batch)
        split(batch)
    *_, average = follow(written)
    assert matches(split, average)
    assert matches(whole, average)


def test_evaluations_are_no_updates(backend: str) -> None:
    step = build_step(SPEC, backend)
    written = []
    for batch in BATCHES:
        step(batch, mode="eval")
        step(batch)
        step(batch, mode="eval")
        written.append(weights(step))
    *_, average = follow(written)
    assert matches(step, average)
    assert step.state().counters["averages"] == {"average": len(BATCHES)}


TIED = """
graphspec: 1
name: tied
inputs: {x: {shape: [batch, 3]}}
models:
  coder: {class: "tests.properties.users:Coder", args: {size: 3}, optimizer: {name: sgd, lr: 0.2}}
ops:
  out: {forward: coder, inputs: x}
  loss: {loss: mse, inputs: [out, x]}
  step: {update: coder, loss: loss}
  average: {ema: coder, DECAY, buffers: ignore}
outputs: [loss]
""".replace("DECAY", DECAY)


def make_tied(backend: str) -> Mapping[str, object]:
    """Return a module that encodes with a matrix and decodes with the same, under two names."""
    if backend == "torch":
        import torch

        class Tied(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.code, self.read = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
                self.read.weight = self.code.weight

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.read(torch.tanh(self.code(x)))

        return {"coder": Tied().double()}
    import tensorflow as tf

    class Part(tf.Module):
        def __init__(self, weight: tf.Variable) -> None:
            super().__init__()
            self.weight, self.bias = weight, tf.Variable(RANDOM.normal(size=3))

        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return tf.matmul(x, self.weight, transpose_b=True) + self.bias

    class TiedParts(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            weight = tf.Variable(RANDOM.normal(size=(3, 3)))
            self.code, self.read = Part(weight), Part(weight)

        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return self.read(tf.tanh(self.code(x)))

    return {"coder": TiedParts()}


def test_tied_weights_are_averaged_once(backend: str) -> None:
    text = TIED.replace('class: "tests.properties.users:Coder", args: {size: 3}', 'class: "tests.features.users:Tied"')
    step = build(compile_step(load(text), backend), device="cpu", dtype="float64", models=make_tied(backend))
    begun = {name.removeprefix("coder."): each for name, each in weights(step).items() if name.startswith("coder.")}
    w = {name: begun[name] for name in ("code.weight", "code.bias", "read.bias")}
    written = []
    for batch in BATCHES:
        x = batch["x"]
        step({"x": x})
        hidden = np.tanh(x @ w["code.weight"].T + w["code.bias"])
        error = 2 * (hidden @ w["code.weight"].T + w["read.bias"] - x) / x.size
        inner = (error @ w["code.weight"]) * (1 - hidden**2)
        slopes = {"code.weight": error.T @ hidden + inner.T @ x, "code.bias": inner.sum(0), "read.bias": error.sum(0)}
        w = {name: w[name] - 0.2 * slopes[name] for name in w}
        written.append({f"coder.{name}": value for name, value in w.items()})
    *_, average = follow(written, "coder")
    assert matches(step, average)
    made: Any = step.models["average"]
    assert made.read.weight is made.code.weight
    assert made.code.weight is not step.models["coder"].code.weight


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # Inductor uses it itself
@pytest.mark.parametrize("how", ["eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_a_compiled_module_is_averaged_under_its_names(how: str) -> None:
    """torch.compile calls every parameter `_orig_mod...`: Composer's average then froze."""
    import torch

    plain = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    compiled = torch.compile(plain, backend=how)
    text = SPEC.replace("layers: [{linear: 4}, tanh, {linear: 1}]", 'class: "tests.features.users:Net"').replace(
        "use: {eval: swap}", "buffers: ignore"
    )
    step = build(compile_step(load(text)), device="cpu", dtype="float64", models={"net": compiled})
    w, written = {f"net.{name}": p.detach().numpy().copy() for name, p in plain.named_parameters()}, []
    for batch in BATCHES[:4]:
        step(batch)
        w = fit(w, batch)
        written.append(w)
    *_, average = follow(written)
    found = {name.removeprefix("_orig_mod."): p for name, p in step.models["average"].named_parameters()}
    assert len(found) == len(average) == 4
    assert all(np.allclose(found[name].detach().numpy(), value, rtol=1e-12, atol=0) for name, value in average.items())


@pytest.mark.needs("tensorflow")
def test_a_step_that_xla_compiles_is_averaged() -> None:
    step = build(compile_step(load(SPEC), "tensorflow"), device="cpu", dtype="float64", jit_compile=True)
    written = train(step, BATCHES[:4])
    for batch in BATCHES[:4]:
        step(batch)
    *_, average = follow(written)
    assert matches(step, average, rtol=1e-10)


def zeros_taken_out(t: int) -> float:
    """Return what is kept of an average that began at zero, so that it is e / (1 - 0.9^t) at any time."""
    return 0.9 * (1 - 0.9 ** (t - 1)) / (1 - 0.9**t)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("fields", "decay"),
    [
        (DECAY, kept),
        ("decay: 0.9, init: zeros", zeros_taken_out),
        ("decay: 0.9, start: {at: 4, before: copy}", lambda t: 0.0 if t <= 4 else 0.9),
        ("decay: {kind: power, gamma: 6.94}, every: 2", lambda t: 1.0 if t % 2 else ((t - 2) / t) ** 7.94),
    ],
    ids=["inverse_power", "zeros", "copy", "power"],
)
def test_it_goes_on_in_the_middle_of_a_warm_up(
    fields: str, decay: Callable[[int], float], backend: str, tmp_path
) -> None:
    text = SPEC.replace(DECAY, fields)
    whole, first, second = (build_step(text, backend) for _ in range(3))
    *_, average = follow(train(whole, BATCHES), decay=decay)
    for batch in BATCHES:
        whole(batch)
    for batch in BATCHES[:3]:
        first(batch)
    first.save(tmp_path / "saved")
    second(BATCHES[7])  # has counted something else
    second.load(tmp_path / "saved")
    for batch in BATCHES[3:]:
        second(batch)
    found, expected = weights(second), weights(whole)
    assert all(np.array_equal(found[name], value) for name, value in expected.items())
    assert matches(second, average)
    assert whole.state().counters == second.state().counters
