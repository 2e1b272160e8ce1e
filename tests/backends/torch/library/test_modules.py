"""What surrounds a call of a model: modes, frozen weights, snapshots, taps and several results."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from torch import nn

from runtime.backends.torch.library.modules import detached, frozen, in_mode, results, snapshot_call, watch


def make_net() -> nn.Sequential:
    """Return a small network with buffers, the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double()


def make_batch(seed: int = 1) -> torch.Tensor:
    """Return five samples."""
    return torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gradients(loss: torch.Tensor, model: nn.Module) -> list[torch.Tensor]:
    """Return the gradients of all parameters."""
    return list(torch.autograd.grad(loss, list(model.parameters())))


@torch.no_grad()
def scramble(tensors) -> None:
    """Overwrite tensors in place."""
    for tensor in tensors:
        tensor.copy_(tensor * 3 + 1)


def freeze_and_fail(model: nn.Module) -> None:
    """Check that all is frozen inside, and raise."""
    with frozen(list(model.parameters())):
        assert not any(p.requires_grad for p in model.parameters())
        raise ValueError("inside")


def test_in_mode_switches_the_model_and_all_inside():
    model = make_net()
    for train in (False, True, True, False):
        in_mode(model, train)
        assert {each.training for each in model.modules()} == {train}


def test_in_mode_lets_a_model_keep_parts_in_evaluation():
    class Half(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[1].eval()
            return self

    model = Half(*make_net()).eval()
    in_mode(model, True)
    assert [layer.training for layer in model] == [True, False, True, True]


def test_frozen_weights_get_no_gradient_and_pass_one_on():
    model, x = make_net().eval(), make_batch().requires_grad_()
    expected = torch.autograd.grad(model(x).sum(), x)[0]
    with frozen(list(model.parameters())):
        loss = model(x).sum()
    assert torch.equal(torch.autograd.grad(loss, x, retain_graph=True)[0], expected)
    assert all(p.requires_grad for p in model.parameters())
    with pytest.raises(RuntimeError, match="not have been used"):
        gradients(loss, model)


def test_frozen_leaves_what_was_frozen_before_and_restores_after_an_error():
    model = make_net()
    model[0].weight.requires_grad_(False)
    before = [p.requires_grad for p in model.parameters()]
    with pytest.raises(ValueError, match="inside"):
        freeze_and_fail(model)
    assert [p.requires_grad for p in model.parameters()] == before


@pytest.mark.parametrize("what", ["buffers", "all"])
def test_a_snapshot_gives_the_same_value_and_gradients(what):
    model, x = make_net().eval(), make_batch()
    expected = model(x)
    value = snapshot_call(model, what, x)
    assert torch.equal(value, expected)
    pairs = zip(gradients(value.square().sum(), model), gradients(expected.square().sum(), model), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


def test_a_snapshot_of_all_is_not_disturbed_by_later_writes():
    model, x = make_net().eval(), make_batch()
    expected = gradients(model(x).square().sum(), model)
    loss = snapshot_call(model, "all", x).square().sum()
    scramble((*model.parameters(), *model.buffers()))
    assert all(torch.equal(*pair) for pair in zip(gradients(loss, model), expected, strict=True))


def test_a_snapshot_of_buffers_is_not_disturbed_by_a_training_forward():
    model, x = make_net().eval(), make_batch()
    expected = gradients(model(x).square().sum(), model)
    loss = snapshot_call(model, "buffers", x).square().sum()
    model.train()(make_batch(2))
    assert all(torch.equal(*pair) for pair in zip(gradients(loss, model), expected, strict=True))


def test_without_a_snapshot_the_same_writes_do_disturb():
    model, x = make_net().eval(), make_batch()
    loss = model(x).square().sum()
    scramble((*model.parameters(), *model.buffers()))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradients(loss, model)


@pytest.mark.parametrize("what", ["buffers", "all"])
def test_statistics_of_a_training_snapshot_reach_the_model(what):
    model, twin, x = make_net(), make_net(), make_batch()
    kept = model[1].running_mean
    assert torch.equal(snapshot_call(model, what, x), twin(x))
    assert model[1].running_mean is kept
    assert all(torch.equal(*pair) for pair in zip(model.buffers(), twin.buffers(), strict=True))


def test_a_buffer_that_training_replaces_reaches_the_model():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count = self.count + 1
            return x * self.count

    model, x = Counting(), torch.ones(2)
    assert snapshot_call(model, "buffers", x).tolist() == [1, 1]
    assert snapshot_call(model, "all", x).tolist() == [2, 2]
    assert model.count.item() == 2


def test_tied_weights_stay_tied_in_a_snapshot():
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).double(), make_batch()
    model[1].weight = model[0].weight
    expected = gradients(model(x).square().sum(), model)
    found = gradients(snapshot_call(model, "all", x).square().sum(), model)
    assert len(found) == 3
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_a_snapshot_of_a_method_runs_that_method():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 2).double()

        def encode(self, x, *, scale):
            return self.inner(x) * scale

    model, x = Encoder(), make_batch()
    value = snapshot_call(model, "all", x, method="encode", scale=2.0)
    scramble(model.parameters())
    (weight, _) = gradients(value.sum(), model)
    assert torch.allclose(weight, 2 * x.sum(0).expand(2, 3))


def test_watch_holds_what_inner_layers_gave():
    model, x = make_net().eval(), make_batch()
    seen = watch(model, "0", "2")
    model(x)
    assert torch.equal(seen.pop("0"), model[0](x))
    assert torch.equal(seen["2"], torch.tanh(model[1](model[0](x))))
    assert list(seen) == ["2", "0"]  # calling a layer alone is seen as well


@pytest.mark.parametrize("snapshot", ["buffers", "all"])
def test_watch_sees_the_layers_of_a_snapshot(snapshot):
    model, x = make_net().eval(), make_batch()
    seen = watch(model, "3")
    assert snapshot_call(model, snapshot, x) is seen["3"]


def test_results_come_in_order_or_by_name():
    pair = namedtuple("pair", "b a")(1, 2)
    assert results((1, 2), "a", "b") == (1, 2)
    assert results([1, 2], "a", "b") == (1, 2)
    assert results(pair, "a", "b") == (2, 1)  # whose results have names goes by these
    assert results(pair, "one", "two") == (1, 2)
    assert results({"b": 2, "a": 1, "c": 3}, "a", "b") == (1, 2)


def test_a_wrong_number_of_results_is_an_error():
    with pytest.raises(ValueError, match=r"gave 3 results instead of 2 \(a, b\)"):
        results((1, 2, 3), "a", "b")


def test_detached_values_carry_no_graph():
    x = torch.ones(2, requires_grad=True)
    values = detached((x * 2, x * 3))
    assert [value.tolist() for value in values] == [[2, 2], [3, 3]]
    assert not any(value.requires_grad for value in values)


def test_a_snapshot_in_training_does_not_disturb_a_pending_backward_of_the_same_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double().train()
    x = torch.randn(5, 3, dtype=torch.float64)
    alone = torch.autograd.grad(model(x).square().mean() + model(x).sum(), list(model.parameters()))
    pending = model(x).square().mean() + model(x).sum()
    before = model[1].running_mean.clone()
    snapshot_call(model, "all", 10 * x)
    for found, expected in zip(torch.autograd.grad(pending, list(model.parameters())), alone, strict=True):
        assert torch.equal(found, expected)
    assert not torch.equal(model[1].running_mean, before)
