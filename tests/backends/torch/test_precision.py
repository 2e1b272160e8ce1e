"""Models that compute in a lower precision train as a loop with ``torch.autocast`` around every call."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from compiler import compile_step
from graphspec import load
from runtime import Step, build

TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
JUDGED = """graphspec: 1
name: judged
join_calls: false
precision: {{compute: {0}, loss_scale: none}}
inputs: {{image: {{shape: [batch, 2, 4, 4]}}, z: {{shape: [batch, 3]}}}}
models:
  g:
    layers: [{{linear: 32}}, relu, {{reshape: {{shape: [2, 4, 4]}}}}, batch_norm, {{conv2d: {{out: 2, kernel: 1}}}}]
    optimizer: {{name: sgd, lr: 0.1}}
  d: {{layers: [{{conv2d: {{out: 4, kernel: 3, padding: 1}}}}, silu, flatten, layer_norm, {{linear: 1}}],
      optimizer: {{name: sgd, lr: 0.1}}}}
ops:
  fake: {{forward: g, inputs: z}}
  on_real: {{forward: d, inputs: image}}
  on_fake: {{forward: d, inputs: fake}}
  d_real: {{loss: bce_with_logits, inputs: [on_real, 1.0]}}
  d_fake: {{loss: bce_with_logits, inputs: [on_fake, 0.0]}}
  d_loss: {{call: add, inputs: [d_real, d_fake]}}
  step_d: {{update: d, loss: d_loss}}
  judged: {{forward: d, inputs: fake, after: step_d}}
  g_loss: {{loss: bce_with_logits, inputs: [judged, 1.0]}}
  step_g: {{update: g, loss: g_loss}}
outputs: [d_loss, g_loss, fake, on_real]
"""
ALONE = """graphspec: 1
name: alone
precision: {0}
inputs: {{x: {{shape: [batch, 4]}}}}
models:
  net: {{layers: [{{linear: {{out: 4, bias: false}}}}], optimizer: {{name: sgd, lr: 1.0}}}}
ops:
  out: {{forward: net, inputs: x}}
  loss: {{call: mean, inputs: out}}
  slopes: {{gradient: loss, wrt: net}}
  step: {{update: net, gradients: slopes}}
  again: {{forward: net, inputs: x, after: step, stop: true}}
outputs: [out, loss, again]
"""


def made(text: str, dtype: str = "float32") -> Step:
    """Return the step of a spec on the CPU."""
    return build(compile_step(load(text), "torch"), device="cpu", dtype=dtype)


def batches(count: int = 10) -> Iterator[dict[str, torch.Tensor]]:
    """Yield batches of normal numbers."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        image = torch.randn(6, 2, 4, 4, generator=generator)
        yield {"image": image, "z": torch.randn(6, 3, generator=generator)}


def judge(logits: torch.Tensor, target: float) -> torch.Tensor:
    """Return the binary cross-entropy against one number."""
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))


class Loop:
    """The step of the spec as it is written by hand."""

    def __init__(self, models: dict[str, nn.Module], dtype: torch.dtype) -> None:
        self.g, self.d, self.dtype = models["g"], models["d"].requires_grad_(True), dtype
        self.of_g = torch.optim.SGD(self.g.parameters(), lr=0.1)
        self.of_d = torch.optim.SGD(self.d.parameters(), lr=0.1)

    def call(self, model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        """Call a model in a stretch of its own."""
        with torch.autocast("cpu", self.dtype):
            return model(x)

    def step(self, image: torch.Tensor, z: torch.Tensor) -> dict[str, torch.Tensor]:
        """Take one step: the discriminator's first, the generator's against the new discriminator."""
        fake = self.call(self.g, z).float()
        on_real, on_fake = self.call(self.d, image).float(), self.call(self.d, fake.detach()).float()
        d_loss = judge(on_real, 1.0) + judge(on_fake, 0.0)
        self.of_d.zero_grad()
        d_loss.backward()
        self.of_d.step()
        g_loss = judge(self.call(self.d, fake).float(), 1.0)
        self.of_g.zero_grad()
        g_loss.backward()
        self.of_g.step()
        return {"d_loss": d_loss, "g_loss": g_loss, "fake": fake, "on_real": on_real}


@pytest.mark.parametrize("compute", TYPES)
def test_ten_steps_are_those_of_a_loop_with_autocast_bit_by_bit(compute: str) -> None:
    step = made(JUDGED.format(compute))
    loop = Loop(copy.deepcopy(dict(step.models)), TYPES[compute])
    for batch in batches():
        found, expected = step(batch), loop.step(**batch)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    for name, model in (("g", loop.g), ("d", loop.d)):
        ours = step.models[name].state_dict()
        assert all(torch.equal(ours[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("compute", TYPES)
def test_the_precision_is_not_that_of_float32(compute: str) -> None:
    batch = next(batches(1))
    low, full = (made(JUDGED.format(each))(batch)["fake"] for each in (compute, "float32"))
    assert 1e-5 < float((low - full).abs().max()) < 0.05


@pytest.mark.parametrize("compute", TYPES)
def test_in_double_precision_it_is_off(compute: str) -> None:
    one, other = (made(JUDGED.format(each), "float64") for each in (compute, "float32"))
    for batch in batches(3):
        batch = {name: value.double() for name, value in batch.items()}
        found, expected = one(batch), other(batch)
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_weights_gradients_slots_and_values_are_float32() -> None:
    step = made(JUDGED.format("float16"))
    outputs = step(next(batches(1)))
    tensors = [*outputs.values(), *(p for model in step.models.values() for p in model.state_dict().values())]
    assert {each.dtype for each in tensors if each.is_floating_point()} == {torch.float32}
    assert {each.dtype.name for each in step.state().arrays.values() if each.dtype.kind == "f"} == {"float32"}


def test_what_is_too_large_for_float16_is_infinite_in_it_alone() -> None:
    batch = {"x": torch.full((2, 4), 60000.0)}
    for compute, is_finite in (("float16", False), ("bfloat16", True), ("float32", True)):
        step = made(ALONE.format(f"{{compute: {compute}, loss_scale: none}}"))
        step.models["net"][0].weight.data.fill_(1.0)
        assert bool(step(batch)["out"].isfinite().all()) is is_finite


def test_what_is_too_small_for_float16_vanishes_in_it_alone() -> None:
    batch = {"x": torch.full((2, 4), 1e-8)}
    for compute, vanishes in (("float16", True), ("bfloat16", False)):
        step = made(ALONE.format(f"{{compute: {compute}, loss_scale: none}}"))
        assert bool((step(batch)["out"] == 0).all()) is vanishes


def test_a_cast_of_old_weights_is_never_used_behind_an_update() -> None:
    step = made(ALONE.format("bfloat16"))
    twin, trap = (copy.deepcopy(step.models["net"]).requires_grad_(True) for _ in range(2))
    x = torch.ones(2, 4)
    with torch.autocast("cpu", torch.bfloat16):  # the mistake: one stretch around the whole step
        trap(x).float().mean().backward()
        with torch.no_grad():
            trap[0].weight -= trap[0].weight.grad
        stale = trap(x).float()
    found = step({"x": x})
    with torch.no_grad():
        twin[0].weight -= torch.full((4, 4), 0.25)
    with torch.autocast("cpu", torch.bfloat16):
        expected = twin(x).float()
    assert torch.equal(found["again"], expected)
    assert torch.equal(stale, found["out"])  # there the weights of before are still used
    assert bool((stale.detach() - expected > 0.9).all())


def test_a_step_called_within_an_autocast_of_the_caller_gives_float32_still() -> None:
    step = made(ALONE.format("bfloat16"))
    with torch.autocast("cpu", torch.bfloat16):
        assert step({"x": torch.ones(2, 4)})["out"].dtype == torch.float32
