"""The library's layers against their formulas."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from runtime.backends.torch.library.layers import Dropout, GlobalAvgPool, ParameterModel, Reshape, Residual
from runtime.backends.torch.library.randomness import NativeRandom, PortableRandom


def drawing(kind: type[NativeRandom] | type[PortableRandom], p: float) -> tuple[NativeRandom | PortableRandom, Dropout]:
    """Return a dropout layer and its source of random numbers."""
    random, layer = kind(0, "cpu"), Dropout(p)
    random.start("train", 1)
    random.attach(layer)
    return random, layer


def test_residual_adds_its_input_and_names_parameters_by_index():
    layer, x = Residual(nn.Linear(3, 3), nn.Tanh()), torch.randn(2, 3)
    assert torch.equal(layer(x), x + torch.tanh(x @ layer[0].weight.T + layer[0].bias))
    assert [name for name, _ in layer.named_parameters()] == ["0.weight", "0.bias"]


def test_reshape_leaves_the_batch_out():
    x = torch.arange(24.0).reshape(2, 12)
    assert torch.equal(Reshape((3, -1))(x), x.reshape(2, 3, 4))
    assert repr(Reshape((3, 4))) == "Reshape((3, 4))"


def test_global_avg_pool_gives_one_number_per_channel():
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    expected = functional.adaptive_avg_pool2d(x, 1).reshape(2, 3)
    assert torch.allclose(GlobalAvgPool()(x), expected, rtol=0, atol=1e-15)


def test_a_parameter_model_gives_a_value_that_later_writes_do_not_reach():
    model = ParameterModel((2, 3))
    value = model()
    assert torch.autograd.grad(value.sum(), model.value)[0].tolist() == [[1.0] * 3] * 2
    with torch.no_grad():
        model.value.fill_(7.0)
    assert value.tolist() == [[0.0] * 3] * 2
    assert [(name, tuple(p.shape)) for name, p in model.named_parameters()] == [("value", (2, 3))]


@pytest.mark.parametrize("kind", [NativeRandom, PortableRandom])
def test_dropout_zeroes_a_share_and_scales_the_rest(kind):
    random, layer = drawing(kind, 0.2)
    with random.within("a"):
        dropped = layer(torch.ones(50_000))
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.8])
    assert float((dropped == 0).float().mean()) == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize("kind", [NativeRandom, PortableRandom])
def test_the_gradient_of_dropout_is_its_mask(kind):
    random, layer = drawing(kind, 0.5)
    x = torch.ones(64, requires_grad=True)
    with random.within("a"):
        dropped = layer(x)
    assert torch.equal(torch.autograd.grad(dropped.sum(), x)[0], dropped.detach())


@pytest.mark.parametrize(("p", "train", "factor"), [(0.5, False, 1.0), (0.0, True, 1.0), (1.0, True, 0.0)])
@pytest.mark.parametrize("kind", [NativeRandom, PortableRandom])
def test_dropout_draws_nothing_where_nothing_is_left_to_chance(kind, p, train, factor):
    _, layer = drawing(kind, p)
    before, x = torch.get_rng_state(), torch.randn(9, generator=torch.Generator().manual_seed(0))
    assert torch.equal(layer.train(train)(x), x * factor)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_without_a_source_is_that_of_torch():
    x = torch.ones(40)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        expected = functional.dropout(x, 0.4)
        torch.manual_seed(3)
        assert torch.equal(Dropout(0.4)(x), expected)
