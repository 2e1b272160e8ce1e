"""Initial values: their distributions, what their keys hold, and what making a model leaves alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from runtime.backends.torch.library.initial import forked_seed, initial_tensor, set_initial

CONSTANTS = {("zeros", 0.0): 0.0, ("ones", 0.0): 1.0, ("constant", 0.25): 0.25}


def draw_and_fail(context) -> None:
    """Draw a number of torch's and raise, both inside a context."""
    with context:
        torch.randn(3)
        raise ValueError("inside")


@pytest.mark.parametrize(("initializer", "value"), CONSTANTS.items())
def test_constants_fill_the_tensor(initializer, value):
    kind, bound = initializer
    made = initial_tensor(0, "net", "0.bias", (2, 3), kind, bound)
    assert torch.equal(made, torch.full((2, 3), value))


def test_uniform_weights_fill_the_interval_between_the_bounds():
    made = initial_tensor(0, "net", "0.weight", (300, 300), "uniform", 0.1)
    assert float(made.abs().max()) == pytest.approx(0.1, rel=1e-3)
    assert (float(made.mean()), float(made.var())) == pytest.approx((0, 0.01 / 3), abs=5e-4)


def test_normal_weights_have_the_bound_as_standard_deviation():
    made = initial_tensor(0, "net", "0.weight", (300, 300), "normal", 0.02)
    assert (float(made.mean()), float(made.std())) == pytest.approx((0, 0.02), abs=5e-4)


@pytest.mark.parametrize("key", [(1, "net", "0.weight"), (0, "other", "0.weight"), (0, "net", "1.weight")])
def test_seed_model_and_parameter_each_change_the_weights(key):
    first = initial_tensor(0, "net", "0.weight", (5,), "normal", 1.0)
    assert torch.equal(initial_tensor(0, "net", "0.weight", (5,), "normal", 1.0), first)
    assert not torch.equal(initial_tensor(*key, (5,), "normal", 1.0), first)


def test_float32_weights_are_the_rounded_float64_weights():
    exact = initial_tensor(0, "net", "0.weight", (50,), "uniform", 0.3, torch.float64)
    assert torch.equal(exact.float(), initial_tensor(0, "net", "0.weight", (50,), "uniform", 0.3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_set_initial_fills_parameters_and_buffers_in_place_in_their_types(dtype):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(dtype)
    weight = model[0].weight
    model[1].num_batches_tracked.fill_(7)
    set_initial(model, 5, "net", {"0.weight": ("uniform", 0.5), "1.num_batches_tracked": ("zeros", 0.0)})
    assert model[0].weight is weight
    assert torch.equal(weight.detach(), initial_tensor(5, "net", "0.weight", (3, 2), "uniform", 0.5, dtype))
    assert weight.requires_grad
    assert model[1].num_batches_tracked.item() == 0
    assert model[1].num_batches_tracked.dtype == torch.int64


def test_making_a_model_under_a_seed_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    with forked_seed(0, "net"):
        first = nn.Linear(3, 3).weight
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(3)
    with forked_seed(0, "net"):
        assert torch.equal(nn.Linear(3, 3).weight, first)
    for key in ((1, "net"), (0, "other")):
        with forked_seed(*key):
            assert not torch.equal(nn.Linear(3, 3).weight, first)


def test_an_error_while_making_a_model_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="inside"):
        draw_and_fail(forked_seed(0, "net"))
    assert torch.equal(torch.get_rng_state(), before)
