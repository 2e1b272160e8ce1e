"""An optimizer makes one update per step from the gradient of all rows; what it has is the same bits everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.features.replicas import NET, read, train

pytestmark = pytest.mark.row("D11")


@pytest.mark.xdist_group("shown by replicas")  # one worker starts the processes
def test_updates_and_slots_are_those_of_one_process(shown: Path, backend: str) -> None:
    whole = train(NET, [], lambda batch: batch, backend)
    for part in read(shown, "replicated"):
        assert part["iterations"].item() == whole["iterations"].item() == 3
        slots = [name for name in whole if name.startswith(("own.", "optimizers."))]
        assert len(slots) == 3 * 4  # two moments of four parameters, one of them read twice
        for name in slots:
            np.testing.assert_allclose(part[name], whole[name], rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.xdist_group("shown by replicas")  # one worker starts the processes
def test_weights_are_the_same_bits_on_all(shown: Path, backend: str) -> None:
    first, second = read(shown, "replicated")
    assert first.keys() == second.keys()
    assert all(np.array_equal(value, second[name]) for name, value in first.items())
