"""Processes take a step together, `replicated` or `sharded`, with the numbers of one; none goes ahead of the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphspec import SpecError, load
from tests.features.replicas import NET, read, train

pytestmark = pytest.mark.row("C4")


@pytest.mark.xdist_group("shown by replicas")  # one worker starts the processes
@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_every_kind_has_the_numbers_of_one_process(replicas: Path, kind: str) -> None:
    whole = train(NET, [], lambda batch: batch)
    for part in read(replicas, kind):
        for name, value in whole.items():
            if not name.startswith("own."):
                np.testing.assert_allclose(part[name], value, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("kind", ["dist_async", "asynchronous"])
def test_there_is_no_kind_without_a_common_step(kind: str) -> None:
    with pytest.raises(SpecError, match=r"(?s)GS043.*'replicated' or 'sharded'"):
        load(NET, [f"parallel={{kind: {kind}}}"])
