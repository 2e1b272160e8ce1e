"""Several processes: gradients that never met, in time or at all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.catalogue.mathematics import descend, high, low, mlp, mse
from tests.catalogue.replicas import WORLD, main
from tests.catalogue.trial import SAME, WRONG, batches, distance, order_of, plan_of
from tests.resilience.processes import call

pytestmark = pytest.mark.xdist_group("replicas")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder in which two processes left what they trained."""
    path = tmp_path_factory.mktemp("replicas")
    ended = call(main, path)
    assert ended.code == 0, ended.output[-4000:]
    return path


def read(path):
    """Return weights by model and name."""
    world = {}
    for key, value in np.load(path).items():
        model, name = key.split("/")
        world.setdefault(model, {})[name] = torch.from_numpy(value)
    return world


def compare(folder, name, reference):
    """Return the largest difference of the processes from a reference on all rows, and that of the loop by hand."""
    world = read(folder / f"{name}.start.npz")
    for batch in batches(plan_of(name)):
        world = reference(world, **batch)
    ranks = range(WORLD)
    trained = max(distance(world, read(folder / f"{name}.{rank}.npz")) for rank in ranks)
    return trained, min(distance(world, read(folder / f"{name}.hand.{rank}.npz")) for rank in ranks)


def both_at_the_start(world, image, z):
    """Move both players of a GAN, whose gradients are taken at the weights of the start."""
    g, d = world["g"], world["d"]
    return {
        "g": descend(lambda w: high(mlp(d, mlp(w, z))), g),
        "d": descend(lambda w: high(mlp(w, image)) + low(mlp(w, mlp(g, z))), d),
    }


def punished(world, x):
    """Move a critic whose slope is held at one."""

    def loss(w):
        slope = torch.func.grad(lambda x: mlp(w, x).sum())(x)
        return 10 * mse(slope.norm(dim=1), 1.0) + mlp(w, x).mean()

    return {"critic": descend(loss, world["critic"])}


def fitted(world, x, y):
    """Move a net down one loss of all rows."""
    return {"net": descend(lambda w: mse(mlp(w, x), y), world["net"])}


def test_two_forwards_and_two_backwards_are_reduced_each(folder):
    trained, by_hand = compare(folder, "replicated-gan", both_at_the_start)
    assert trained <= SAME
    assert by_hand > WRONG


def test_gradients_that_are_values_are_reduced(folder):
    trained, by_hand = compare(folder, "replicated-penalty", punished)
    assert trained <= SAME
    assert by_hand > WRONG


def test_micro_batches_are_reduced_once(folder):
    trained, _ = compare(folder, "replicated-micro-batches", fitted)
    assert trained <= SAME
    plan = plan_of("replicated-micro-batches")
    reduced = [each for each in plan.to_json()["functions"][0]["instructions"] if each.get("function") == "reduce_set"]
    assert len(reduced) == 1
    assert order_of(plan).count("gradient step") == 3
