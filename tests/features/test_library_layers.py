"""Layers of sequences and the rarer norms: models that learn as PyTorch's modules do, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from compiler import compile_step
from graphspec import SpecError, load
from tests.features.steps import build_step, weights

SPEC = """
graphspec: 1
name: learnt
inputs: {x: {shape: [batch, 12]}, y: {shape: [batch, 2]}}
models: {net: {layers: [LAYERS, flatten, {linear: 2}], optimizer: {name: sgd, lr: 0.3}}}
ops:
  out: {forward: net, inputs: x}
  fit: {loss: mse, inputs: [out, y], mode: train}
  step: {update: net, loss: fit}
outputs: [out]
"""
RANDOM = np.random.default_rng(5)
BATCH = {"x": RANDOM.normal(size=(6, 12)), "y": RANDOM.normal(size=(6, 2))}


class Positions(nn.Module):
    """A row of a table for every position."""

    def __init__(self, count: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(count, features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x plus the first rows."""
        return x + self.weight[: x.shape[1]]


class Attention(nn.MultiheadAttention):
    """PyTorch's attention of a sequence to itself, behind a mask of what comes later."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return what positions take of those up to themselves."""
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return super().forward(x, x, x, attn_mask=mask)[0]


class Final(nn.GRU):
    """PyTorch's recurrent layer, of which only the final state is used."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the final state."""
        return super().forward(x)[1][0]


class States(nn.LSTM):
    """PyTorch's recurrent layer, of which only the states are used."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the states of both directions."""
        return super().forward(x)[0]


def sequence(*layers: nn.Module, wide: int) -> nn.Sequential:
    """Return layers of sequences [batch, 3, 4] as a model with two results."""
    return nn.Sequential(nn.Unflatten(1, (3, 4)), *layers, nn.Flatten(), nn.Linear(wide, 2)).double()


MODELS: dict[str, tuple[str, Callable[[], nn.Sequential]]] = {
    "rms_norm": (
        "{linear: 6}, {rms_norm: 0.01}",
        lambda: nn.Sequential(nn.Linear(12, 6), nn.RMSNorm(6, eps=0.01), nn.Flatten(), nn.Linear(6, 2)).double(),
    ),
    "conv1d": (
        "{reshape: [3, 4]}, {conv1d: {out: 6, kernel: 2, stride: 2, padding: 1, groups: 3}}",
        lambda: sequence(nn.Conv1d(3, 6, 2, 2, 1, groups=3), wide=18),
    ),
    "instance_norm": (
        "{reshape: [3, 4]}, {instance_norm: {affine: true}}",
        lambda: sequence(nn.InstanceNorm1d(3, affine=True), wide=12),
    ),
    "attention": (
        "{reshape: [3, 4]}, positional, {multi_head_attention: {heads: 2, causal: true}}",
        lambda: sequence(Positions(3, 4), Attention(4, 2, batch_first=True), wide=12),
    ),
    "lstm": (
        "{reshape: [3, 4]}, {lstm: {size: 3, bidirectional: true}}",
        lambda: sequence(States(4, 3, batch_first=True, bidirectional=True), wide=18),
    ),
    "gru": (
        "{reshape: [3, 4]}, {gru: {size: 3, last: true}}",
        lambda: sequence(Final(4, 3, batch_first=True), wide=3),
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_as_pytorchs_modules_do_also_in_micro_batches(name: str, parts: int, backend: str) -> None:
    """Parameters have PyTorch's names, so that its own modules take them; no sample sees another."""
    written, make = MODELS[name]
    step, reference = build_step(SPEC.replace("LAYERS", written), backend, [f"micro_batches={parts}"]), make()
    given = {key.removeprefix("net."): torch.tensor(value) for key, value in weights(step).items()}
    reference.load_state_dict(given)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.3)
    for _ in range(3):
        found = step.numpy(step(BATCH)["out"])
        out = reference(torch.tensor(BATCH["x"]))
        assert np.allclose(found, out.detach().numpy(), rtol=1e-10, atol=1e-12)
        optimizer.zero_grad()
        nn.functional.mse_loss(out, torch.tensor(BATCH["y"])).backward()
        optimizer.step()
    for key, value in weights(step).items():
        expected = reference.state_dict()[key.removeprefix("net.")].numpy()
        assert np.allclose(value, expected, rtol=1e-10, atol=1e-12), key


def test_sines_are_added_without_parameters(backend: str) -> None:
    step = build_step(SPEC.replace("LAYERS", "{reshape: [3, 4]}, {positional: {method: sinusoidal}}"), backend)
    assert sorted(weights(step)) == ["net.3.bias", "net.3.weight"]
    found = step.numpy(step(BATCH, mode="eval")["out"])
    angles = np.arange(3)[:, None] / np.array([1.0, 1.0, 100.0, 100.0])
    waves = np.where(np.arange(4) % 2 == 0, np.sin(angles), np.cos(angles)).reshape(12)
    held = weights(step)
    assert np.allclose(found, (BATCH["x"] + waves) @ held["net.3.weight"].T + held["net.3.bias"], rtol=1e-12)


BOUNDED = "{spectral_norm: [{linear: {out: 4, bias: false}}]}"


def test_every_forward_in_training_makes_one_power_iteration_and_no_other_does(backend: str) -> None:
    step = build_step(SPEC.replace("LAYERS", BOUNDED), backend)
    u, weight = (weights(step)[f"net.0.{name}"] for name in ("u", "0.weight"))
    for _ in range(2):
        step(BATCH, mode="eval")
    assert np.array_equal(weights(step)["net.0.u"], u)
    found, held = step.numpy(step(BATCH, mode="eval")["out"]), weights(step)
    v = weight.T @ u / np.linalg.norm(weight.T @ u)
    after = weight @ v / np.linalg.norm(weight @ v)
    divided = weight / (after @ weight @ v)
    assert np.allclose(found, BATCH["x"] @ divided.T @ held["net.2.weight"].T + held["net.2.bias"], rtol=1e-10)
    step(BATCH)
    assert np.allclose(weights(step)["net.0.u"], after, rtol=1e-12)


def test_an_attention_draws_only_where_it_drops() -> None:
    for dropout, draws in (("", False), (", dropout: 0.5", True)):
        written = f"{{reshape: [3, 4]}}, {{multi_head_attention: {{heads: 2{dropout}}}}}"
        for backend in ("torch", "tensorflow"):
            step = build_step(SPEC.replace("LAYERS", written), backend)
            assert ("random.attach(" in step.source) == draws


def test_dropped_attention_is_the_same_on_both_backends_and_new_in_every_step() -> None:
    written = "{reshape: [3, 4]}, {multi_head_attention: {heads: 2, dropout: 0.5}}"
    text = SPEC.replace("LAYERS", written).replace("lr: 0.3", "lr: 1.0e-12")
    seen = []
    for backend in ("torch", "tensorflow"):
        step = build_step(text, backend)
        seen.append([step.numpy(step(BATCH)["out"]) for _ in range(2)])
        evaluated = [step.numpy(step(BATCH, mode="eval")["out"]) for _ in range(2)]
        assert np.array_equal(evaluated[0], evaluated[1])
    assert np.allclose(*seen, rtol=1e-10)
    assert not np.allclose(seen[0][0], seen[0][1], rtol=1e-3)


REFUSED = {
    "{conv1d: {out: 4, kernel: 3}}": "[batch, channels, length] for `conv1d`",
    "{reshape: [3, 4]}, {conv1d: {out: 4, kernel: 3, groups: 3}}": "divisible by `groups`",
    "{reshape: [3, 4]}, {conv1d: {out: 4, kernel: 5}}": "at least one position after `conv1d`",
    "{reshape: [12, 1]}, instance_norm": "more than one element in each channel",
    "{reshape: [3, 4]}, {positional: 2}": "at most 2 positions",
    "{reshape: [3, 4]}, {positional: {count: 3, method: sinusoidal}}": "no `count`",
    "{reshape: [3, 4]}, {multi_head_attention: 3}": "features divisible by `heads`",
    "{lstm: 4}": "[batch, positions, features] for `lstm`",
    "{spectral_norm: [relu]}": "one layer, of linear, conv1d, conv2d, conv_transpose2d",
    "{spectral_norm: [{linear: 4}, {linear: 4}]}": "one layer, of linear",
}


@pytest.mark.parametrize("written", REFUSED)
def test_what_does_not_fit_is_told_at_the_layer(written: str) -> None:
    text = SPEC.replace("LAYERS", written)
    with pytest.raises(SpecError) as caught:
        compile_step(load(text))
    (found,) = caught.value.diagnostics
    assert found.code == "E-SHAPE"
    assert REFUSED[written] in found.message
    assert found.span is not None
    line = text.splitlines()[found.span.line - 1]
    layer = line[found.span.column - 1 : found.span.end_column - 1]
    assert written.removeprefix("{reshape: [3, 4]}, ").removeprefix("{reshape: [12, 1]}, ") == layer


def test_a_container_without_a_layer_is_told() -> None:
    with pytest.raises(SpecError, match="`spectral_norm` needs a list of layers"):
        load(SPEC.replace("LAYERS", "{spectral_norm: []}"))
