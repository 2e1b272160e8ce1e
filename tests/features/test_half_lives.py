"""`decay`, `half_life` or `tau` says what an average keeps; two of them, or none, are an error."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graphspec import SpecError, load
from tests.features.averages import SPEC, follow, lerp, make, read

pytestmark = pytest.mark.row("E1")

HALVED = 0.9330329915  # what Composer's EMA with half_life 10ba and update_interval 1ba printed as its smoothing


@pytest.mark.parametrize("half_life", ["half_life: 10ba", "decay: {kind: half_life, half_life: 10 updates}"])
def test_a_half_life_of_ten_batches_keeps_what_composer_keeps(half_life: str, backend: str) -> None:
    found = follow(make(backend, half_life), 6)
    assert np.allclose(found, lerp(lambda t: HALVED, 6), rtol=1e-9, atol=0)


def test_a_half_life_in_epochs_or_samples_is_counted_in_writes(backend: str) -> None:
    found = [follow(make(backend, f"half_life: {each}"), 6) for each in ("6 updates", "2 epochs", "24 samples")]
    assert found[0] == found[1] == found[2]
    assert np.allclose(found[0], lerp(lambda t: 2 ** (-1 / 6), 6), rtol=1e-12, atol=0)


def test_after_a_half_life_half_of_the_beginning_is_left(backend: str) -> None:
    settings = ["models.w.parameter.init=8.0", "models.w.optimizer.lr=0.0"]
    text = SPEC.replace("ops:", "  slow: {parameter: {shape: [2], init: 4.0}}\nops:")
    step = make(backend, "into: slow, half_life: 5 updates", text, settings=settings)
    for _ in range(5):
        step({})
    assert math.isclose(read(step, "slow"), 6.0, rel_tol=1e-12)


def test_smoothing_and_what_is_taken_say_the_same(backend: str) -> None:
    found = follow(make(backend, "decay: 0.9"), 6)
    assert np.allclose(found, [0.1, 0.29, 0.561, 0.9049, 1.31441, 1.782969], rtol=1e-12, atol=0)
    assert np.allclose(follow(make(backend, "tau: 0.1"), 6), found, rtol=1e-12, atol=0)
    assert follow(make(backend, "decay: {kind: constant, decay: 0.9}"), 6) == found


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ("decay: 0.9, half_life: 3", "`decay` and `half_life`"),
        ("decay: {kind: tf, max: 0.9}, tau: 0.1", "`decay` and `tau`"),
        ("every: 2", "none of them"),
    ],
)
def test_two_of_them_or_none_is_an_error(fields: str, found: str) -> None:
    with pytest.raises(SpecError, match=rf"GS053.*exactly one of decay, half_life, tau; found {found}"):
        load(SPEC.replace("FIELDS", fields))
