"""A step of several processes is that of one on all rows; `reduce: sum`, of all or an update, adds up each one's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.features.replicas import LINE, ROWS, begin, read
from tests.features.steps import weights

pytestmark = pytest.mark.row("A10")


@pytest.mark.xdist_group("shown by replicas")  # one worker starts the processes
def test_the_gradient_is_that_of_all_rows(shown: Path, backend: str) -> None:
    step = begin(LINE, backend=backend)
    step(ROWS)
    for part in read(shown, "combine"):
        # the mean of 2 x^2 over five rows is 22; half the sum of the means of three and two rows would be 25.2
        assert part["mean"].item() == pytest.approx(1 - 0.01 * 22, abs=1e-12)
        np.testing.assert_allclose(part["mean"], weights(step)["net.0.weight"], rtol=0, atol=1e-12)


@pytest.mark.xdist_group("shown by replicas")  # one worker starts the processes
def test_sums_add_up_the_mean_of_each_process(shown: Path, backend: str) -> None:
    for part in read(shown, "combine"):
        assert part["sum"].item() == pytest.approx(1 - 0.01 * (2 * 14 / 3 + 2 * 41 / 2), abs=1e-12)
        assert part["own"].item() == part["sum"].item()  # said by the update alone


@pytest.mark.xdist_group("shown by replicas")  # one worker starts the processes
def test_the_loss_is_that_of_all_rows_in_both(shown: Path, backend: str) -> None:
    for part in read(shown, "combine"):
        assert part["loss.mean"].item() == pytest.approx(11, abs=1e-12)
        assert part["loss.sum"].item() == pytest.approx(11, abs=1e-12)
