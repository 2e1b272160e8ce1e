"""`decay` takes every published formula by its kind, computed on the host from the writes of the source."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from graphspec import SpecError, load
from tests.features.averages import SPEC, follow, lerp, make

pytestmark = pytest.mark.row("E8")

TAU = 5.0
KINDS = {
    "{kind: constant, decay: 0.9}": lambda t: 0.9,
    "{kind: half_life, half_life: 3 updates}": lambda t: 0.5 ** (1 / 3),
    "{kind: tf, max: 0.4}": lambda t: min(0.4, (1 + t) / (10 + t)),
    "{kind: tf_warm, max: 0.34, min: 0.2}": lambda t: 0.0 if t == 1 else min(max(t / (9 + t), 0.2), 0.34),
    "{kind: inverse_power, max: 0.69}": lambda t: 0.0 if t == 1 else min(1 - t ** (-2 / 3), 0.69),
    "{kind: inverse_power, max: 0.9, gamma: 2.0, power: 0.75, min: 0.3}": lambda t: (
        0.0 if t == 1 else min(max(1 - (1 + (t - 1) / 2) ** -0.75, 0.3), 0.9)
    ),
    "{kind: exp_ramp, max: 0.9, tau: 5.0}": lambda t: 0.9 * (1 - math.exp(-t / TAU)),
    "{kind: anneal, max: 0.8, gamma: 2.0}": lambda t: 1 - max(0.2, 2 / (2 + t - 1)),
    "{kind: cosine, from: 0.5, to: 0.9, over: 4, endpoint: false}": lambda t: (
        0.9 - 0.4 * (math.cos(math.pi * min(t - 1, 4) / 4) + 1) / 2
    ),
    "{kind: cosine, from: 0.5, over: 4, endpoint: true}": lambda t: (
        1.0 - 0.5 * (math.cos(math.pi * min(t - 1, 3) / 3) + 1) / 2
    ),
    "{kind: power, gamma: 6.94}": lambda t: (1 - 1 / t) ** 7.94,
    "{kind: uniform}": lambda t: (t - 1) / t,
    "{kind: hard, every: 3}": lambda t: 0.0 if t % 3 == 0 else 1.0,
}


@pytest.mark.parametrize("decay", KINDS, ids=lambda decay: decay.strip("{}").replace("kind: ", ""))
def test_an_average_of_every_kind_is_that_of_its_formula(decay: str, backend: str) -> None:
    found = follow(make(backend, f"decay: {decay}"), 8)
    assert np.allclose(found, lerp(KINDS[decay], 8), rtol=1e-12, atol=0)


PUBLISHED = {
    "{kind: tf_warm, max: 0.9999}": [0, 0.1818, 0.25, 0.3077, 0.3571, 0.4],
    "{kind: inverse_power, max: 0.9999}": [0, 0.370, 0.519, 0.603, 0.658, 0.697],
}


@pytest.mark.parametrize("decay", PUBLISHED, ids=["diffusers", "timm"])
def test_what_the_library_keeps_is_what_was_seen_of_it(decay: str, backend: str) -> None:
    found = [0.0, *follow(make(backend, f"decay: {decay}"), 6)]
    kept = [1 - (new - old) / (t - old) for t, (old, new) in enumerate(pairwise(found), 1)]
    assert np.allclose(kept, PUBLISHED[decay], atol=5e-4)


@pytest.mark.needs("torch")
def test_a_mean_of_all_weights_is_that_of_swa_utils() -> None:
    import torch

    model = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    expected = []
    for t in range(1, 7):
        model.weight.data.fill_(t)
        averaged.update_parameters(model)
        expected.append(averaged.module.weight.item())
    assert np.allclose(follow(make("torch", "decay: {kind: uniform}"), 6), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("sigma", "gamma"), [(0.1, 6.9372), (0.05, 16.9722), (0.25, 0.7198)])
def test_a_relative_width_gives_the_exponent_of_karras(sigma: float, gamma: float) -> None:
    text = SPEC.replace("FIELDS", f"decay: {{kind: power, sigma_rel: {sigma}}}")
    found = load(text).ops["average"].formula.numbers["gamma"]
    assert math.isclose(found, gamma, abs_tol=5e-5)
    # The width of p(t) = t^g on [0, 1], of which g is the exponent, by its moments.
    mean, square = (found + 1) / (found + 2), (found + 1) / (found + 3)
    assert math.isclose(math.sqrt(square - mean**2), sigma, rel_tol=1e-12)


def test_a_way_in_epochs_is_counted_in_writes(backend: str) -> None:
    half = follow(make(backend, "decay: {kind: cosine, from: 0.5, over: 2 epochs, endpoint: false}"), 8)
    assert half == follow(make(backend, "decay: {kind: cosine, from: 0.5, over: 6, endpoint: false}"), 8)


@pytest.mark.parametrize(
    ("decay", "said"),
    [
        ("{kind: cosine, from: 0.9, over: 100}", "says by `endpoint` whether the last write of `over` reaches `to`"),
        ("{kind: power, gamma: 6.94, sigma_rel: 0.1}", "exactly one of `gamma` and `sigma_rel`"),
        ("{kind: power}", "exactly one of `gamma` and `sigma_rel`"),
        ("{kind: tf}", "needs `max`"),
        ("{kind: uniform, max: 0.9}", "a decay of kind uniform has no `max`"),
        ("{kind: tf_warm, max: 0.9, min: 0.95}", "`min: 0.95` is more than `max: 0.9`"),
        ("{kind: cosine, from: 0.9, over: 1, endpoint: true}", "a way of one write has no end"),
    ],
)
def test_a_formula_with_a_number_too_few_or_too_many_is_refused(decay: str, said: str) -> None:
    with pytest.raises(SpecError, match="GS053") as caught:
        load(SPEC.replace("FIELDS", f"decay: {decay}"))
    assert said in caught.value.diagnostics[0].message
