"""A number that is not finite on one process skips the update on all, and moves the one loss scale of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.replicas import read

pytestmark = pytest.mark.row("B9")


@pytest.mark.xdist_group("shown by replicas")  # one worker starts the processes
def test_the_verdict_is_that_of_all(shown: Path, backend: str) -> None:
    first, second = (part["seen"].tolist() for part in read(shown, "judge"))
    assert first == second
    values, scales = first[::2], first[1::2]
    # the gradient is 22 times the weight; that of the second step is infinite on the last process alone
    assert values == pytest.approx([0.78, 0.78, 0.78 * 0.78], abs=1e-12)
    assert scales == [32768, 16384, 16384]
