"""An average counts updates that took place: under accumulation, overflow, micro-batches, ties, compiling, resuming."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from runtime import Step, build
from tests.features.overflows import INF, give, made
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


def follow(written: Sequence[dict[str, np.ndarray]], model: str = "net") -> Iterator[dict[str, np.ndarray]]:
    """Yield the average after each of some updates, by hand, from the weights after it."""
    average: dict[str, np.ndarray] = {}
    for t, found in enumerate(written, 1):
        own = {name.removeprefix(f"{model}."): value for name, value in found.items() if name.startswith(f"{model}.")}
        average = {name: kept(t) * average.get(name, 0.0) + (1 - kept(t)) * value for name, value in own.items()}
        yield average


def matches(step: Step, average: dict[str, np.ndarray], target: str = "average") -> bool:
    """Return whether an average is that by hand."""
    found = weights(step)
    return all(np.allclose(found[f"{target}.{name}"], value, rtol=1e-12, atol=1e-15) for name, value in average.items())


def test_accumulating_steps_are_no_updates(backend: str) -> None:
    """Keras 3 averages in every micro-step; the decay would be that of update 8 rather than 2."""
    step = build_step(SPEC, backend, ["ops.step.accumulate=4"])
    written = []
    for number, batch in enumerate(BATCHES, 1):
        before = weights(step)
        step(batch)
        if number % 4 == 0:
            written.append(weights(step))
        else:
            assert all(np.array_equal(value, weights(step)[name]) for name, value in before.items())
    *_, average = follow(written)
    assert len(written) == 2
    assert matches(step, average)


def test_skipped_steps_are_no_updates(backend: str) -> None:
    from tests.features.overflows import SPEC as GIVEN

    text = GIVEN.replace("precision:", f"  average: {{ema: v, {DECAY}}}\nprecision:")
    step = made(backend, text=text)
    average, updates = 0.0, 0
    for slope in (-1.0, INF, float("nan"), -2.0, INF, -1.0):
        give(step, slope)
        if math.isfinite(slope):
            updates += 1
            w = float(weights(step)["v.value"][0])
            average = kept(updates) * average + (1 - kept(updates)) * w
        assert math.isclose(weights(step)["average.value"][0], average, rel_tol=1e-6)


def test_micro_batches_are_one_update(backend: str) -> None:
    whole, split = build_step(SPEC, backend), build_step(SPEC, backend, ["micro_batches=3"])
    written = []
    for batch in BATCHES:
        whole(batch)
        split(batch)
        written.append(weights(split))
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


@pytest.mark.needs("torch")
def test_tied_weights_are_averaged_once() -> None:
    import torch

    class Tied(torch.nn.Module):
        """Encodes with a matrix and decodes with its transpose, under two names."""

        def __init__(self) -> None:
            super().__init__()
            self.code, self.read = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
            self.read.weight = self.code.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Return x, coded and read."""
            return self.read(torch.tanh(self.code(x)))

    text = TIED.replace('class: "tests.properties.users:Coder", args: {size: 3}', 'class: "tests.features.users:Tied"')
    step = build(compile_step(load(text)), device="cpu", dtype="float64", models={"coder": Tied().double()})
    written = []
    for batch in BATCHES:
        step({"x": batch["x"]})
        written.append(
            {f"coder.{name}": p.detach().numpy().copy() for name, p in step.models["coder"].named_parameters()}
        )
    *_, average = follow(written, "coder")
    assert set(average) == {"code.weight", "code.bias", "read.bias"}
    found = dict(step.models["average"].named_parameters())
    assert all(np.allclose(found[name].detach().numpy(), value, rtol=1e-12, atol=0) for name, value in average.items())
    assert step.models["average"].read.weight is step.models["average"].code.weight


@pytest.mark.needs("torch")
def test_a_compiled_module_is_averaged_under_its_names() -> None:
    """torch.compile calls every parameter `_orig_mod...`: Composer's average then froze."""
    import torch

    plain = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    compiled = torch.compile(plain, backend="eager")
    text = SPEC.replace("layers: [{linear: 4}, tanh, {linear: 1}]", 'class: "tests.features.users:Net"').replace(
        "use: {eval: swap}", "buffers: ignore"
    )
    step = build(compile_step(load(text)), device="cpu", dtype="float64", models={"net": compiled})
    written = []
    for batch in BATCHES[:4]:
        step(batch)
        written.append({f"net.{name}": p.detach().numpy().copy() for name, p in plain.named_parameters()})
    *_, average = follow(written)
    found = {name.removeprefix("_orig_mod."): p for name, p in step.models["average"].named_parameters()}
    assert len(found) == len(average) == 4
    assert all(np.allclose(found[name].detach().numpy(), value, rtol=1e-12, atol=0) for name, value in average.items())


@pytest.mark.parametrize(
    "fields",
    [
        DECAY,
        "decay: 0.9, init: zeros",
        "decay: 0.9, start: {at: 4, before: copy}",
        "decay: {kind: power, gamma: 6.94}, every: 2",
    ],
)
def test_it_goes_on_in_the_middle_of_a_warm_up(fields: str, backend: str, tmp_path) -> None:
    text = SPEC.replace(DECAY, fields)
    whole, first, second = (build_step(text, backend) for _ in range(3))
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
    assert whole.state().counters == second.state().counters
