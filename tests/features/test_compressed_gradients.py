"""`compress` sends less of a gradient and keeps the rest as state; where it has no effect it is an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphspec import SpecError, load
from tests.features.replicas import COMPRESSED, NET, SLOPE, begin, read

pytestmark = pytest.mark.row("C6")


@pytest.mark.xdist_group("shown by replicas")  # one worker starts the processes
def test_the_rest_is_sent_later_also_after_a_resumption(replicas: Path) -> None:
    for part in read(replicas, "compress"):
        # the processes have slopes of 0.3 and 0.2, and send 0.5 when as much is due: MXNet's 2bit
        np.testing.assert_allclose(part["seen"], [1.0, 0.5, 0.0, -0.5], rtol=0, atol=1e-12)
        np.testing.assert_allclose(part["rests"].ravel(), [4 * 0.3 - 2 * 0.5, 4 * 0.2 - 0.5], rtol=0, atol=1e-12)


def test_one_process_is_told_that_nothing_is_compressed() -> None:
    step = begin(SLOPE, COMPRESSED)
    with pytest.raises(SpecError, match="one process sends no gradients"):
        step({"x": np.ones((2, 1)), "y": np.ones((2, 1))})


@pytest.mark.parametrize("kind", ["none", "sharded"])
def test_where_no_gradients_are_sent_nothing_is_compressed(kind: str) -> None:
    with pytest.raises(SpecError, match=r"GS056.*`compress` goes with `kind: replicated`"):
        load(NET, [f"parallel={{kind: {kind}, compress: fp16}}"])
