"""Models that share a module: each runs in its own mode, and what they share is declared or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, build

X = np.random.default_rng(0).normal(size=(6, 3))
SPEC = """
graphspec: 1
name: shared
inputs: {x: {shape: [batch, 3]}}
models:
  whole: {class: "tests.features.test_shared_modules:Unused", optimizer: {name: sgd, lr: 0.1}}
  part: {class: "tests.features.test_shared_modules:Unused", traits: {ties: TIES, recomputes: false}}
ops:
  seen: {forward: whole, inputs: x}
  error: {loss: mse, inputs: [seen, 0.5]}
  step: {update: whole, loss: error}
  features: {forward: part, inputs: x MORE}
  again: {forward: whole, inputs: x, after: []}
  other: {loss: mse, inputs: [again, 1.0]}
outputs: [error, other OUT]
"""


class Unused(nn.Module):
    """What is given in the place of a model."""


class Doubling(nn.Module):
    """A layer that doubles in training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, or 2x."""
        return 2 * x if self.training else x


def step_of(models: dict[str, nn.Module], ties: str, more: str = "") -> Step:
    """Return the step of two given models."""
    out = ", features" if "mode" not in more else ""
    text = SPEC.replace("TIES", ties).replace(" MORE", more).replace(" OUT", out)
    return build(compile_step(load(text)), device="cpu", dtype="float64", models=models, allow=["tests"])


@pytest.mark.parametrize("more", ["", ", every: 2", ", mode: eval", ", mode: [train, eval]", ", train: true"])
def test_each_model_runs_in_its_own_mode(more: str) -> None:
    part = nn.Sequential(nn.Linear(3, 3), Doubling()).double()
    whole = nn.Sequential(part, nn.Linear(3, 1)).double()
    weights = [
        p.detach().clone().requires_grad_() for p in (part[0].weight, part[0].bias, whole[1].weight, whole[1].bias)
    ]
    step = step_of({"whole": whole, "part": part}, "[whole.0.0.weight, whole.0.0.bias]", more)
    x = torch.tensor(X)
    for number in range(4):
        hidden = nn.functional.linear(x, *weights[:2])
        seen = nn.functional.linear(2 * hidden, *weights[2:])
        error, other = ((seen - 0.5) ** 2).mean(), ((seen - 1.0) ** 2).mean()
        found = step({"x": x})
        assert np.allclose([float(found["error"]), float(found["other"])], [error.item(), other.item()], rtol=1e-12)
        if "features" in found:
            times = 2 if "true" in more else 1
            assert np.allclose(step.numpy(found["features"]), times * hidden.detach().numpy(), rtol=1e-12)
        for weight, slope in zip(weights, torch.autograd.grad(error, weights), strict=True):
            weight.data -= 0.1 * slope
        if "eval" in more and number == 1:
            evaluated = step({"x": x}, "eval")
            if "features" in evaluated:
                hidden = nn.functional.linear(x, *weights[:2]).detach()
                assert np.allclose(step.numpy(evaluated["features"]), hidden.numpy(), rtol=1e-12)


CHECKPOINTS = """
graphspec: 1
name: shared
inputs: {x: {shape: [batch, 3]}}
models:
  whole: {class: "tests.features.test_shared_modules:Unused", optimizer: {name: sgd, lr: 0.1}}
  part:
    class: "tests.features.test_shared_modules:Unused"
    traits: {ties: [whole.0.0.weight, whole.0.0.bias], recomputes: false}
ops:
  features: {forward: part, inputs: x, checkpoint: true TRAIN}
  seen: {forward: whole, inputs: features, checkpoint: true}
  error: {loss: mse, inputs: [seen, 0.5]}
  step: {update: whole, loss: error}
"""


def test_models_that_share_a_module_are_recomputed_in_one_mode_alone() -> None:
    with pytest.raises(SpecError, match=r"GS133.*'seen' as in training and 'features' as in evaluation, and a module"):
        compile_step(load(CHECKPOINTS.replace(" TRAIN", "")))
    part = nn.Sequential(nn.Linear(3, 3), Doubling()).double()
    whole = nn.Sequential(part, nn.Linear(3, 1)).double()
    weights = [
        p.detach().clone().requires_grad_() for p in (part[0].weight, part[0].bias, whole[1].weight, whole[1].bias)
    ]
    plan = compile_step(load(CHECKPOINTS.replace(" TRAIN", ", train: true")))
    step = build(plan, device="cpu", dtype="float64", models={"whole": whole, "part": part}, allow=["tests"])
    x = torch.tensor(X)
    for _ in range(3):
        inner = 2 * nn.functional.linear(x, *weights[:2])
        seen = nn.functional.linear(2 * nn.functional.linear(inner, *weights[:2]), *weights[2:])
        error = ((seen - 0.5) ** 2).mean()
        assert np.isclose(float(step({"x": x})["error"]), error.item(), rtol=1e-12)
        for weight, slope in zip(weights, torch.autograd.grad(error, weights), strict=True):
            weight.data -= 0.1 * slope


def share_data(one: nn.Linear, other: nn.Linear) -> None:
    """Let two layers hold one memory under two parameters."""
    other.weight.data = one.weight.data


def share_view(one: nn.Linear, other: nn.Linear) -> None:
    """Let a layer hold a view of another's weight."""
    other.weight = nn.Parameter(one.weight.data.T)


@pytest.mark.parametrize("share", [share_data, share_view])
def test_one_memory_under_two_parameters_is_a_tie(share: Any) -> None:
    whole, part = nn.Linear(3, 3).double(), nn.Linear(3, 3).double()
    share(whole, part)
    with pytest.raises(SpecError, match=r"GS213.*share the parameter 'weight'"):
        step_of({"whole": whole, "part": part}, "[]")
    assert step_of({"whole": whole, "part": part}, "[whole.weight]")


class Borrowing(nn.Module):
    """A module that holds another without registering it."""

    def __init__(self, borrowed: nn.Module) -> None:
        super().__init__()
        self.borrowed, self.own = [borrowed], nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what both make of x."""
        return self.own(self.borrowed[0](x))


def test_a_model_that_another_holds_unregistered_is_a_tie() -> None:
    whole = nn.Linear(3, 3).double()
    part = Borrowing(whole).double()
    for models in ({"whole": whole, "part": part}, {"whole": part, "part": whole}):
        with pytest.raises(SpecError, match=r"GS213.*share the parameter 'borrowed\.0\.weight'"):
            step_of(models, "[]")
    assert step_of({"whole": whole, "part": part}, "[whole.weight, whole.bias]")
    helper = nn.Linear(3, 3).double().requires_grad_(False)
    assert step_of({"whole": Borrowing(helper).double(), "part": Borrowing(helper).double()}, "[]")


@pytest.mark.parametrize("affine", [True, False])
def test_statistics_that_two_models_write_are_refused(affine: bool) -> None:
    part = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, affine=affine)).double()
    whole = nn.Sequential(part, nn.Linear(3, 1)).double()
    ties = [f"whole.0.{name}" for name, _ in part.named_parameters()]
    with pytest.raises(SpecError, match=r"GS213.*share the buffer '1.running_mean', which a call in training writes"):
        step_of({"whole": whole, "part": part}, f"[{', '.join(ties)}]")
    for model in (part[1],):
        model.track_running_stats, model.running_mean, model.running_var, model.num_batches_tracked = (
            False,
            *[None] * 3,
        )
    assert step_of({"whole": whole, "part": part}, f"[{', '.join(ties)}]")


KERAS = """
graphspec: 1
name: shared
inputs: {x: {shape: [batch, 3]}}
models:
  whole: {class: {tensorflow: "keras:Model"}, optimizer: {name: sgd, lr: 0.1}}
  part: {class: {tensorflow: "keras:Model"}}
ops:
  seen: {forward: whole, inputs: x}
  error: {loss: mse, inputs: [seen, 0.5]}
  step: {update: whole, loss: error}
  features: {forward: part, inputs: x}
outputs: [error, features]
"""


@pytest.mark.needs("tensorflow")
def test_statistics_that_two_models_of_keras_write_are_refused() -> None:
    import keras

    norm = keras.layers.BatchNormalization(center=False, scale=False)
    whole, part = keras.Sequential([keras.layers.Dense(3), norm]), keras.Sequential([norm])
    for model in (whole, part):
        model.build((None, 3))
    with pytest.raises(SpecError, match=r"GS213.*share the buffer '.*', which a call in training writes"):
        build(compile_step(load(KERAS), "tensorflow"), device="cpu", models={"whole": whole, "part": part})
