"""An average has the numbers of `dtype`, rounded to the nearest or at random; one that cannot move is an error."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graphspec import SpecError, load
from tests.conformance.scenario import BACKENDS
from tests.features.averages import SPEC, follow, make, read
from tests.features.steps import set_weights, weights
from tests.oracle.draws import Draws

pytestmark = pytest.mark.row("E11")

STILL = SPEC.replace("ops:", "  slow: {parameter: {shape: [4000], init: 0.0}}\nops:").replace(
    "shape: [2], init: 0.0", "shape: [4000], init: 1.0"
)
TABLE = {
    "bfloat16": {0.99: 0.26, 0.996: 0.65, 0.999: 2.6, 0.9999: 26},
    "float16": {0.999: 0.33, 0.9999: 3.3, 0.99999: 33},
    "float32": {0.9999999: 0.4},
}


@pytest.mark.parametrize(("dtype", "decay"), [(dtype, decay) for dtype in TABLE for decay in TABLE[dtype]])
def test_an_average_that_cannot_move_is_an_error_that_names_the_gap(dtype: str, decay: float, backend: str) -> None:
    with pytest.raises(SpecError, match=rf"GS276.*the average 'average' cannot move in {dtype}") as caught:
        make(backend, f"decay: {decay}, dtype: {dtype}", dtype="float32")
    gap = float(caught.value.diagnostics[0].label.rpartition(" ")[2])
    assert math.isclose(gap, TABLE[dtype][decay], rel_tol=0.02)


@pytest.mark.parametrize(
    "fields",
    [
        "half_life: 2000 updates, dtype: bfloat16",
        "decay: {kind: tf, max: 0.999}, dtype: bfloat16",
        "decay: 0.999, init: zeros, dtype: bfloat16",
        "tau: 0.001, dtype: bfloat16",
        "decay: {kind: cosine, from: 0.996, over: 1000, endpoint: false}, dtype: bfloat16",
        "decay: {schedule: cosine, from: 0.996, to: 1, over: 1000}, dtype: bfloat16",
        "decay: {schedule: constant, value: 0.99999}, dtype: bfloat16",
        "tau: {schedule: linear, from: 0.001, to: 0.0001, over: 10}, dtype: bfloat16",
        "decay: {schedule: piecewise, at: {0: 0.999, 10: 0.9999}}, dtype: bfloat16",
        "decay: {schedule: linear, from: 0.5, to: 0.999, over: 100}, dtype: bfloat16",
        "tau: {schedule: piecewise, at: {0: 0.5, 10: 0.001}}, dtype: bfloat16",
        "decay: {schedule: cosine, from: 0.9, to: 0.9999, over: 4}, dtype: bfloat16",
        "tau: {schedule: warmup, from: 0.1, to: 0.0001, over: 4}, dtype: bfloat16",
    ],
)
def test_it_is_found_however_the_decay_is_said(fields: str) -> None:
    with pytest.raises(SpecError, match="GS276"):
        make(BACKENDS[0], fields, dtype="float32")


@pytest.mark.parametrize(
    "fields",
    [
        "decay: 0.99999",
        "decay: 0.99, dtype: float16",
        "decay: 0.9999, dtype: bfloat16, rounding: stochastic",
        "decay: {kind: cosine, from: 0.9, over: 100, endpoint: false}, dtype: bfloat16",
        "decay: {kind: uniform}, dtype: bfloat16",
        "decay: {schedule: linear, from: 0.999, to: 0.5, over: 100}, dtype: bfloat16",
        "tau: {schedule: piecewise, at: {0: 0.001, 10: 0.5}}, dtype: bfloat16",
        "decay: 0.9999, every: 5000, interval_correction: compound, dtype: float16",
        "decay: 1.0",
    ],
)
def test_one_that_moves_is_built(fields: str) -> None:
    assert follow(make(BACKENDS[0], fields, dtype="float32"), 1) is not None


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_gap_is_that_of_the_formula(dtype: str) -> None:
    """Just below the gap nothing moves, just above it does."""
    import torch

    kind, digits, kept = getattr(torch, dtype), {"bfloat16": 7, "float16": 10, "float32": 23}[dtype], 0.9
    gap = 2.0**-digits / 1.5 / (2 * (1 - kept))
    e = torch.tensor(1.5, dtype=torch.float64)
    for share, moves in ((0.9, False), (1.1, True)):
        w = e * (1 + share * gap)
        assert bool(torch.lerp(e, w, 1 - kept).to(kind) != e.to(kind)) is moves


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_it_is_rounded_to_the_nearest_number_after_each_write(dtype: str, backend: str) -> None:
    import torch

    e, expected = torch.tensor(0.0, dtype=torch.float32), []
    for t in range(1, 7):
        e = torch.lerp(e, torch.tensor(float(t)), 0.1).to(getattr(torch, dtype)).float()
        expected.append(e.item())
    assert follow(make(backend, f"decay: 0.9, dtype: {dtype}", dtype="float32"), 6) == expected


@pytest.mark.parametrize(("dtype", "digits"), [("bfloat16", 7), ("float16", 10)])
@pytest.mark.parametrize("value", [1.0, -3.7, 1e-3])
def test_at_random_it_is_one_of_two_neighbours_and_right_in_the_mean(
    dtype: str, digits: int, value: float, backend: str
) -> None:
    step = make(
        backend,
        f"into: slow, decay: 0.7, dtype: {dtype}, rounding: stochastic",
        STILL,
        dtype="float32",
        settings=["models.w.optimizer.lr=0.0"],
    )
    set_weights(step, {"w.value": np.full(4000, value)})
    step({})
    found, wanted = weights(step)["slow.value"].astype(np.float64), 0.3 * np.float32(value)
    ulp = 2.0 ** (math.floor(math.log2(abs(wanted))) - digits)
    assert set(np.unique(found)) == {math.floor(wanted / ulp) * ulp, math.ceil(wanted / ulp) * ulp}
    assert abs(found.mean() - wanted) < 4 * ulp / 2 / math.sqrt(4000)


def test_it_goes_up_by_draws_that_are_keyed_by_the_step_and_the_same_everywhere(backend: str) -> None:
    step = make(backend, "into: slow, decay: 0.75, dtype: bfloat16, rounding: stochastic", STILL, dtype="float32")
    e = np.zeros(4000)
    for t in range(1, 4):
        step({})
        e = 0.75 * e + 0.25 * (1 + t)
        ulp = 2.0 ** (np.floor(np.log2(e)) - 7)
        e = np.floor(e / ulp + Draws(0).numbers("train", t, "average.0", 0, (4000,), "uniform")) * ulp
        assert np.array_equal(weights(step)["slow.value"], e)


def test_at_random_a_slow_average_keeps_its_pace(backend: str) -> None:
    step = make(backend, "into: slow, decay: 0.999, dtype: bfloat16, rounding: stochastic", STILL, dtype="float32")
    for _ in range(50):
        step({})
    e = 0.0
    for t in range(1, 51):
        e = 0.999 * e + 0.001 * (1 + t)
    assert math.isclose(weights(step)["slow.value"].mean(), e, rel_tol=0.01)


def test_rounding_without_a_type_is_refused() -> None:
    with pytest.raises(SpecError, match=r"GS053.*`rounding` says how the average comes to be of a `dtype`"):
        load(SPEC.replace("FIELDS", "decay: 0.9, rounding: stochastic"))


def test_a_step_in_double_precision_may_average_in_single(backend: str) -> None:
    step = make(backend, "decay: 0.9, dtype: float32")
    step({})
    assert read(step) == float(np.float32(0.1))
