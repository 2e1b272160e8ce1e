"""Averages in random specs have their statistics computed anew: they become the means that the oracle's layers see."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest

from compiler import compile_step
from graphspec.declare.layers import Layer
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from tests.features.steps import build_step
from tests.oracle.layers import Call, walk
from tests.oracle.numbers import Array, Reals
from tests.properties.agreement import batches, find_turns
from tests.properties.specs import random_spec

OWN = "models.planted."
ENOUGH = 2
"""Specs that are tried on each backend."""
TAKEN = 3
"""Batches over which statistics are computed; there is one more."""


@dataclass(kw_only=True)
class Recomputing(Call):
    """A call in which only BatchNorm is in training."""

    def _dropout(self, x: Array, name: str, p: float = 0.5) -> Array:
        return x

    def _spectral_norm(self, layer: Layer, x: Array, name: str) -> Array:
        return Call._spectral_norm(replace(self, train=False), layer, x, name)


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A random spec with one more average, which evaluations call once, on an input."""

    document: Mapping[str, Any]
    layers: Sequence[Layer]
    given: str


def plant(document: Mapping[str, Any], seed: int) -> Planted | None:
    """Return a spec with an average of a model with BatchNorm; None where it has no such model, or does not compile."""
    ops, models = document["ops"], document["models"]
    called = {name: op for name, op in ops.items() if op.get("forward") in models and "within" not in op}
    fitting = (op for op in called.values() if op.get("inputs") in [*document["inputs"]] and _fits(document, op))
    forward = next(fitting, None)
    if forward is None:
        return None
    model, stands_in = forward["forward"], seed % 2 == 0
    more = {
        "planted": {"ema": model, "decay": 0.8, "buffers": "copy"} | ({"use": {"eval": "swap"}} if stands_in else {}),
        "watched": {"forward": model if stands_in else "planted", "inputs": forward["inputs"], "mode": "eval"},
    }
    planted = {**document, "ops": {**ops, **more}, "outputs": ["watched"]}
    spec = load(json.dumps(planted) + "\n")
    try:
        compile_step(spec)
    except SpecError:
        return None
    return Planted(document=planted, layers=spec.models[model].layers or (), given=forward["inputs"])


def _fits(document: Mapping[str, Any], forward: Mapping[str, Any]) -> bool:
    """Return whether a model has BatchNorm and is updated, and nothing but what is planted runs in evaluation."""
    model, ops = forward["forward"], document["ops"].values()
    is_updated = any(model in op.get("update", ()) for op in ops)
    stands_in = any("eval" in op.get("use", {}) for op in ops)
    is_quiet = not any("metric" in op or op.get("mode") == "eval" for op in ops)
    is_written_here = not any("class" in each for each in document["models"].values())  # those of PyTorch alone
    is_normalized = "batch_norm" in json.dumps(document["models"][model].get("layers"))
    return is_written_here and is_normalized and is_updated and is_quiet and not stands_in


@cache
def planted_specs() -> Sequence[Planted]:
    """Return the first random specs in which an average can be planted."""
    found = (plant(random_spec(seed), seed) for seed in range(1000))
    return list(islice((each for each in found if each is not None), ENOUGH))


def call(layers: Sequence[Layer], tensors: Mapping[str, np.ndarray], seen: np.ndarray, *, train: bool) -> Recomputing:
    """Call layers on the rows of an input; what they return is the tap of the last."""
    given = {name: each[None] for name, each in tensors.items()}
    made = Recomputing(
        numbers=Reals(), parameters=given, buffers=given, train=train, mask=lambda shape, p: np.ones(shape)
    )
    made.run(layers, seen[None])
    return made


def expect(layers: Sequence[Layer], tensors: Mapping[str, np.ndarray], seen: Sequence[np.ndarray]):
    """Return the means of the statistics of batches: one that is new tells what it was moved by, and how far."""
    momenta = {path: layer.options.get("momentum", 0.1) for path, layer in walk(layers) if layer.kind == "batch_norm"}
    written = [call(layers, tensors, each, train=True).written for each in seen]
    found: dict[str, np.ndarray] = {}
    for path, momentum in momenta.items():
        for name in (f"{path}.running_mean", f"{path}.running_var"):
            moved = [each[name][0] - (1 - momentum) * tensors[name] for each in written]
            found[name] = np.mean(moved, axis=0) / momentum
    return found


@pytest.mark.parametrize("number", range(ENOUGH))
def test_statistics_become_the_means_that_the_layers_of_an_average_see(number: int, backend: str) -> None:
    planted = planted_specs()[number]
    step = build_step(json.dumps(planted.document) + "\n", backend)
    given = list(islice(batches(step.spec), 3 + TAKEN + 1))
    for turn, batch in zip(find_turns(step.spec, ["train"] * 3), given, strict=False):
        step(batch, *turn)
    seen = [batch[planted.given] for batch in given[3:]]
    before = step.state().arrays

    step.recompute_buffers("planted", given[3:-1])
    after = step.state().arrays
    average = {name.removeprefix(OWN): each for name, each in before.items() if name.startswith(OWN)}
    statistics = expect(planted.layers, average, seen[:-1])
    for name, value in statistics.items():
        assert np.allclose(after[OWN + name], value, rtol=1e-9, atol=1e-12), name
        assert not np.allclose(after[OWN + name], before[OWN + name], rtol=1e-3), name
    changed = [name for name in before if not np.array_equal(after[name], before[name])]
    assert {name for name in changed if "num_batches" not in name} == {OWN + name for name in statistics}

    watched = step(given[-1], "eval")["watched"]
    called = call(planted.layers, {**average, **statistics}, seen[-1], train=False)
    last = called.taps[str(len(planted.layers) - 1)]
    assert np.allclose(step.numpy(watched), last[0], rtol=1e-9, atol=1e-12)
