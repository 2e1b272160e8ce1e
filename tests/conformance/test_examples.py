"""Ten steps of the examples equal loops written by hand, in float64, with the same random numbers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from compiler import compile_step
from graphspec import load
from runtime import Step, build
from tests.conformance.examples import (
    byol,
    dino,
    distillation,
    dqn,
    maml,
    mean_teacher,
    moco,
    pcgrad,
    ppo,
    progressive_gan,
    sac,
    sam,
    simclr,
    td3,
    vq_vae,
)
from tests.conformance.examples.example import Example, HandLoop, Tensors

MODULES = (
    distillation,
    mean_teacher,
    byol,
    td3,
    sac,
    dqn,
    dino,
    moco,
    pcgrad,
    vq_vae,
    simclr,
    ppo,
    progressive_gan,
    maml,
    sam,
)
EXAMPLES = (*(module.EXAMPLE for module in MODULES), maml.FIRST_ORDER, sam.SECOND_ORDER)
ON_BOTH = (maml.EXAMPLE, maml.FIRST_ORDER, sam.EXAMPLE, sam.SECOND_ORDER)
ON_BOTH = (*ON_BOTH, vq_vae.EXAMPLE, simclr.EXAMPLE, ppo.EXAMPLE, progressive_gan.EXAMPLE)
"""Those of blocks and derived models."""
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)


def prepare(
    example: Example, kind: type[HandLoop], order: str = "fewest", backend: str = "torch"
) -> tuple[Step, HandLoop]:
    """Return the step of an example, and a loop that begins with its weights."""
    plan = compile_step(load(example.path, example.overrides()), backend, order)
    step, loop = build(plan, device="cpu", seed=5, dtype="float64", allow=example.allow), kind()
    assert step.models.keys() == loop.nets.keys()
    for name, net in loop.nets.items():
        net.load_state_dict(read_state(step, name))
    return step, loop


def read_state(step: Step, model: str) -> Tensors:
    """Return the parameters and buffers of a model, of any backend."""
    prefix, arrays = f"models.{model}.", step.state().arrays
    return {key.removeprefix(prefix): torch.from_numpy(each) for key, each in arrays.items() if key.startswith(prefix)}


def compare(example: Example, kind: type[HandLoop], order: str = "fewest", backend: str = "torch") -> float:
    """Return the greatest difference in ten steps of the losses, and of weights and buffers at their end."""
    step, loop = prepare(example, kind, order, backend)
    found = [0.0]
    for batch in example.batches():
        ours = read(step, step({name: each.numpy() for name, each in batch.items()}))
        theirs = loop.step(batch, {name: ours[name] for name in example.drawn if name in ours})
        assert theirs.keys() == {*example.losses}
        found.extend(difference(ours, theirs, name) for name in theirs if name in ours)
    for name, net in loop.nets.items():
        mine, other = read_state(step, name), net.state_dict()
        found.extend(difference(mine, other, key) for key in other)
    return max(found)


def read(step: Step, outputs: Mapping[str, object]) -> Tensors:
    """Return the outputs of a step as tensors of PyTorch."""
    return {name: torch.as_tensor(step.numpy(each)) for name, each in outputs.items()}


def difference(ours: Tensors, theirs: Tensors, name: str) -> float:
    """Return how far two tensors of a name are apart."""
    return (ours[name] - theirs[name]).abs().max().item()


@pytest.mark.sample(2)
@pytest.mark.parametrize("order", ["fewest", "latest"])
@each_example
def test_ten_steps_of_an_example_equal_the_loop_by_hand(example: Example, order: str) -> None:
    assert compare(example, example.loop, order) <= 1e-10


@pytest.mark.sample(9)
@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("example", ON_BOTH, ids=lambda example: example.name)
def test_tensorflow_takes_the_same_ten_steps(example: Example) -> None:
    assert compare(example, example.loop, backend="tensorflow") <= 1e-10


@pytest.mark.sample(6)
@each_example
def test_the_same_loop_with_one_mistake_is_told_apart(example: Example) -> None:
    assert compare(example, example.mutant) > 1e-6
