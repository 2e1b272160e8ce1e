"""Checkpoints load with and without a loss scale: common state continues, a new scale starts as the spec says."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.features.overflows import INF, give, made
from tests.features.steps import weights

pytestmark = pytest.mark.row("B6")

ADAM = "models.v.optimizer={name: adam, lr: 0.1}"
SCALES = {"none": "none", "fixed": "64", "dynamic": "{initial: 16, growth_steps: 3}"}


def told(differs: bool) -> AbstractContextManager[object]:
    """Return what sees that `load` reports another loss scale, where there is one."""
    return pytest.warns(UserWarning, match="`precision.loss_scale.kind` was") if differs else nullcontext()


@pytest.mark.sample(5)
@pytest.mark.parametrize(("before", "after"), list(product(SCALES, SCALES)))
@pytest.mark.parametrize("window", ["null", "{steps: 2, reduce: steps}"])
def test_every_direction_goes_on_with_the_same_weights(
    before: str, after: str, window: str, tmp_path: Path, backend: str
) -> None:
    accumulate = f"ops.step.accumulate={window}"
    whole, half, rest = (
        made(backend, [ADAM, accumulate, f"precision.loss_scale={SCALES[each]}"]) for each in ("none", before, after)
    )
    slopes = (1.0, -2.0, 0.5, 3.0, 1.0)
    for slope in slopes:
        give(whole, slope)
    for slope in slopes[:3]:
        give(half, slope)
    half.save(tmp_path / "saved")
    with told(before != after):
        rest.load(tmp_path / "saved")
    for slope in slopes[3:]:
        give(rest, slope)
    assert np.array_equal(weights(rest)["v.value"], weights(whole)["v.value"])
    assert rest.optimizers["v"].iterations == whole.optimizers["v"].iterations


@pytest.mark.parametrize(("before", "after", "expected"), [(3, 2, -2.0), (2, 3, -3.0), (4, 2, -4.0)])
def test_a_window_of_another_length_is_counted_from_its_own_beginning(
    before: int, after: int, expected: float, tmp_path: Path, backend: str
) -> None:
    """Three or four steps before the checkpoint: a full window, two windows, and an open one, which is filled then."""
    half, rest = (made(backend, [f"ops.step.accumulate={{steps: {each}, reduce: sum}}"]) for each in (before, after))
    for _ in range(4 if before == 2 else 3):
        give(half, 1.0)
    half.save(tmp_path / "saved")
    rest.load(tmp_path / "saved")
    start, moves = weights(rest)["v.value"][0], []
    for _ in range(4):
        give(rest, 1.0)
        moves.append(float(weights(rest)["v.value"][0] - start))
    assert next(each for each in moves if each) == expected


def test_the_scale_and_what_it_has_counted_are_kept(tmp_path: Path, backend: str) -> None:
    settings = [ADAM, f"precision.loss_scale={SCALES['dynamic']}"]
    whole, half, rest = (made(backend, settings) for _ in range(3))
    slopes = (1.0, INF, 1.0, 1.0, 1.0)
    for slope in slopes:
        give(whole, slope)
    for slope in slopes[:4]:
        give(half, slope)
    half.save(tmp_path / "saved")
    rest.load(tmp_path / "saved")
    give(rest, slopes[4])
    assert (rest.report.scale_before, rest.report.scale_after) == (8, 16)
    assert rest.state().counters == whole.state().counters


def test_a_scale_that_is_new_begins_as_the_spec_says(tmp_path: Path, backend: str) -> None:
    plain, scaled = (made(backend, [f"precision.loss_scale={SCALES[each]}"]) for each in ("none", "dynamic"))
    give(plain, 1.0)
    plain.save(tmp_path / "saved")
    give(scaled, INF)
    with told(True):
        scaled.load(tmp_path / "saved")
    give(scaled, 1.0)
    assert scaled.report.scale_before == 16


@pytest.mark.needs("torch", "tensorflow")
def test_a_scale_saved_under_one_backend_goes_on_under_the_other(tmp_path: Path) -> None:
    settings = [ADAM, f"precision.loss_scale={SCALES['dynamic']}"]
    first, second = made("torch", settings), made("tensorflow", settings)
    for slope in (1.0, INF, 1.0, 1.0):
        give(first, slope)
    first.save(tmp_path / "saved")
    second.load(tmp_path / "saved")
    assert second.state().counters == first.state().counters
