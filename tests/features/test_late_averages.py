"""An average with a `start` is a copy of its source there; before it holds still, or copies (`before: copy`)."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from tests.features.averages import SPEC, follow, make

pytestmark = pytest.mark.row("E3")


@pytest.mark.parametrize("start", ["4 steps", "2 epochs", "{at: 4 steps}", "{at: 2 epochs, before: hold}"])
def test_it_holds_still_and_begins_as_a_copy(start: str, backend: str) -> None:
    found = follow(make(backend, f"decay: 0.9, start: {start}"), 7)
    assert np.allclose(found, [0, 0, 0, 4, 4.1, 4.29, 4.561], rtol=1e-12, atol=0)


@pytest.mark.parametrize("start", ["{at: 4 steps, before: copy}", "{at: 4 updates, before: copy}"])
def test_it_copies_before_and_begins_as_a_copy(start: str, backend: str) -> None:
    found = follow(make(backend, f"decay: 0.9, start: {start}"), 7)
    assert np.allclose(found, [1, 2, 3, 4, 4.1, 4.29, 4.561], rtol=1e-12, atol=0)


def test_every_second_write_with_a_copy_first_is_that_of_mmengine_and_ema_pytorch(backend: str) -> None:
    found = follow(make(backend, "decay: 0.9, every: 2, start: 1 steps"), 6)
    assert np.allclose(found, [1, 1, 1.2, 1.2, 1.58, 1.58], rtol=1e-12, atol=0)


def test_a_late_copy_is_due_like_the_average(backend: str) -> None:
    found = follow(make(backend, "decay: 0.9, every: 2, start: {at: 4 steps, before: copy}"), 8)
    assert np.allclose(found, [0, 2, 2, 4, 4, 4.2, 4.2, 4.58], rtol=1e-12, atol=0)


@pytest.mark.parametrize("before", ["hold", "copy"])
def test_a_formula_counts_from_the_start(before: str, backend: str) -> None:
    """diffusers: `update_after_step=3` copies up to the fourth step, and then keeps 2/11, 3/12, ..."""
    decay = "{kind: tf_warm, max: 0.9999}"
    found = follow(make(backend, f"decay: {decay}, start: {{at: 4 steps, before: {before}}}"), 6)
    fifth = 4 * 2 / 11 + 5 * 9 / 11
    assert np.allclose(found[3:], [4, fifth, fifth * 3 / 12 + 6 * 9 / 12], rtol=1e-12, atol=0)
    assert found[:3] == ([1, 2, 3] if before == "copy" else [0, 0, 0])


def test_written_out_it_begins_as_what_it_was(backend: str) -> None:
    """Composer clones the model before the first step of its average, and then averages in that step."""
    found = follow(make(backend, "decay: 0.9, init: initial, start: {at: 4 steps, before: copy}"), 5)
    assert np.allclose(found, [1, 2, 3, 3.1, 3.29], rtol=1e-12, atol=0)


def test_a_copy_before_a_start_that_only_the_run_counts_is_refused() -> None:
    scaled = SPEC + "precision: {loss_scale: dynamic}\n"
    with pytest.raises(SpecError, match=r"E-PACE.*updates that may be skipped are counted by the run") as caught:
        compile_step(load(scaled.replace("FIELDS", "decay: 0.9, start: {at: 4 updates, before: copy}")))
    assert caught.value.diagnostics[0].help == "count steps, or write `before: hold`"
