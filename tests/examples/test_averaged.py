"""lookahead, swa and diffusion: ten steps of each in float64 against loops by hand, and what diffusion draws with."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from runtime import build
from tests.conformance.scenario import BACKENDS

pytestmark = pytest.mark.needs("torch")
EXAMPLES = Path(__file__).parents[2] / "examples"
on_each = pytest.mark.parametrize("backend", BACKENDS)
RANDOM = np.random.default_rng(8)
BATCHES = [{"image": RANDOM.uniform(-1, 1, (8, 1, 8, 8)), "label": RANDOM.integers(0, 10, 8)} for _ in range(10)]


def make(name: str, *settings: str, backend: str = "torch"):
    """Return the step of an example in float64."""
    spec = load(EXAMPLES / name / f"{name}.yaml", settings)
    return build(compile_step(spec, backend), device="cpu", dtype="float64")


def of(step, model: str) -> dict[str, np.ndarray]:
    """Return the tensors of a model."""
    arrays = step.state().arrays.items()
    return {name.removeprefix(f"models.{model}."): each for name, each in arrays if name.startswith(f"models.{model}.")}


def leaves(step, model: str = "net"):
    """Return the weights of a model as tensors that gradients are taken of, without running statistics."""
    import torch

    kept = {name: each for name, each in of(step, model).items() if not re.search("running|tracked", name)}
    return {name: torch.tensor(each, requires_grad=True) for name, each in kept.items()}


def classify(w, image, norms=None):
    """Return the logits of the classifiers; ``norms`` collects the mean and the unbiased variance of every batch."""
    import torch

    x, last = image.reshape(len(image), -1), max(int(name.partition(".")[0]) for name in w)
    for place in sorted({int(name.partition(".")[0]) for name in w}):
        weight, bias = w[f"{place}.weight"], w[f"{place}.bias"]
        if weight.dim() == 2:
            x = x @ weight.T + bias
            x = x if place == last or f"{place + 1}.weight" in w else torch.clamp(x, min=0)
        else:
            mean, variance = x.mean(0), x.var(0, unbiased=False)
            if norms is not None:
                norms.setdefault(place, []).append((mean.detach(), x.var(0, unbiased=True).detach()))
            x = torch.clamp((x - mean) / torch.sqrt(variance + 1e-5) * weight + bias, min=0)
    return x


def descend(w, loss, velocity, rate: float, decay: float = 0.0):
    """Take one step of SGD with momentum 0.9."""
    import torch

    slopes = torch.autograd.grad(loss, list(w.values()))
    with torch.no_grad():
        for (name, value), slope in zip(w.items(), slopes, strict=True):
            velocity[name] = 0.9 * velocity.get(name, 0) + slope + decay * value
            value -= rate * velocity[name]


def agree(found, expected) -> None:
    """Compare weights by name."""
    for name, value in expected.items():
        assert np.allclose(found[name], value.detach().numpy(), rtol=1e-9, atol=1e-12), name


def cross_entropy(logits, label):
    """Return the mean cross-entropy."""
    import torch

    return -torch.log_softmax(logits, 1)[range(len(label)), label].mean()


@on_each
def test_ten_steps_of_lookahead(backend: str) -> None:
    import torch

    step = make("lookahead", backend=backend)
    w, velocity = leaves(step), {}
    slow = {name: value.detach().clone() for name, value in w.items()}
    for t, batch in enumerate(BATCHES, 1):
        step(batch)
        descend(w, cross_entropy(classify(w, torch.tensor(batch["image"])), batch["label"]), velocity, 0.2)
        if t % 5 == 0:
            for name, value in slow.items():
                value += 0.5 * (w[name].detach() - value)
                w[name].data.copy_(value)
        agree(of(step, "net"), w)
        agree(of(step, "slow"), slow)


@on_each
def test_ten_steps_of_swa_and_the_statistics_of_the_mean(backend: str) -> None:
    import torch

    step = make("swa", "ops.average.start=6", "ops.average.every=2", backend=backend)
    w, velocity, ends = leaves(step), {}, []
    for t, batch in enumerate(BATCHES, 1):
        step(batch)
        loss = cross_entropy(classify(w, torch.tensor(batch["image"])), batch["label"])
        descend(w, loss, velocity, 0.2, decay=5e-4)
        if t in (6, 8, 10):
            ends.append({name: value.detach().clone() for name, value in w.items()})
        agree(of(step, "net"), w)
    mean = {name: sum(each[name] for each in ends) / 3 for name in w}
    agree(of(step, "average"), mean)
    step.recompute_buffers("average", BATCHES[:4])
    norms: dict[int, list] = {}
    for batch in BATCHES[:4]:
        classify(mean, torch.tensor(batch["image"]), norms)
    expected = {
        f"{place}.running_{kind}": torch.stack([each[number] for each in seen]).mean(0)
        for place, seen in norms.items()
        for number, kind in enumerate(("mean", "var"))
    }
    assert len(expected) == 4
    agree(of(step, "average"), expected)


def apply_net(w, x):
    """Return what the net of diffusion gives."""
    import torch

    def linear(name, x):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def silu(x):
        return x * torch.sigmoid(x)

    x = silu(linear("0", x))
    for block in ("2", "3"):
        x = x + linear(f"{block}.2", silu(linear(f"{block}.0", x)))
    return linear("5", silu(x))


@on_each
def test_ten_steps_of_diffusion(backend: str) -> None:
    import torch

    step = make("diffusion", "outputs=[loss, draw, noise, held_out_loss]", backend=backend)
    w = leaves(step)
    first, second = ({name: torch.zeros_like(value) for name, value in w.items()} for _ in range(2))
    ways: list[dict] = []
    for t, batch in enumerate(BATCHES, 1):
        outputs = {name: torch.tensor(step.numpy(value)) for name, value in step(batch).items()}
        digit, strength = torch.tensor(batch["image"]).reshape(8, 64), torch.exp(1.2 * outputs["draw"] - 0.6)
        noisy, both = digit + strength * outputs["noise"], torch.sqrt(strength**2 + 0.7**2)
        skip, out = 0.7**2 / both**2, strength * 0.7 / both
        given = torch.cat([noisy / both, torch.log(strength) / 4], 1)
        loss = ((apply_net(w, given) - (digit - skip * noisy) / out) ** 2).mean()
        assert np.allclose(loss.item(), outputs["loss"], rtol=1e-9, atol=0)
        slopes = torch.autograd.grad(loss, list(w.values()))
        with torch.no_grad():
            for (name, value), slope in zip(w.items(), slopes, strict=True):
                first[name] += 0.1 * (slope - first[name])
                second[name] += 0.001 * (slope**2 - second[name])
                root = torch.sqrt(second[name] / (1 - 0.999**t)) + 1e-8
                value -= 5e-3 * first[name] / (1 - 0.9**t) / root
        ways.append({name: value.detach().clone() for name, value in w.items()})
        agree(of(step, "net"), w)
    for op, sigma in (("wide", 0.10), ("narrow", 0.05)):
        gamma = np.roots([1, 7, 16 - sigma**-2, 12 - sigma**-2]).real.max()
        shares = np.diff((np.arange(11) / 10) ** (gamma + 1))
        ideal = {name: sum(share * each[name] for share, each in zip(shares, ways, strict=True)) for name in w}
        agree(of(step, op), ideal)


def test_what_draws_digits_denoises_as_the_net_was_trained_to() -> None:
    import torch

    sampling = runpy.run_path(str(EXAMPLES / "diffusion" / "sampling.py"))
    step = make("diffusion")
    weights, noisy = of(step, "net"), RANDOM.normal(size=(5, 64))
    for strength in (0.05, 0.7, 5.0):
        both = np.hypot(strength, 0.7)
        given = torch.tensor(np.column_stack([noisy / both, np.full(5, np.log(strength) / 4)]))
        with torch.no_grad():
            net = step.models["net"](given).numpy()
        expected = 0.49 / both**2 * noisy + strength * 0.7 / both * net
        assert np.allclose(sampling["denoise"](weights, noisy, strength), expected, rtol=1e-9, atol=1e-12)


def test_digits_of_one_kind_are_drawn_where_the_net_knows_only_that_kind() -> None:
    """Heun's method, with the denoiser that is right for data of a normal distribution around 0.3."""
    names = runpy.run_path(str(EXAMPLES / "diffusion" / "sampling.py"))
    made = names["sample"]
    made.__globals__["denoise"] = lambda weights, x, strength: (0.04 * x + strength**2 * 0.3) / (0.04 + strength**2)
    drawn = made({}, 2000, steps=48)
    # The equation's solution from noise of deviation 6 keeps the share 0.2 / sqrt(0.2^2 + 6^2) of the way to 0.3.
    assert np.allclose([drawn.mean(), drawn.std()], [0.3 * (1 - 0.2 / 6.0033), 0.2 * 6 / 6.0033], rtol=0.01, atol=0)
    other = 0.5 + 0.2 * RANDOM.normal(size=(4000, 64))
    # The distance of two normal distributions alike but for their means is that of these.
    assert np.isclose(names["measure_distance"](drawn, other), 64 * 0.21**2, rtol=0.1, atol=0)
