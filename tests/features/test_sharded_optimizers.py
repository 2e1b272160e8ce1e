"""With `kind: sharded` each process keeps the slots of its own rows of the weights, and steps these alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.replicas import read

pytestmark = pytest.mark.row("C5")


@pytest.mark.xdist_group("shown by replicas")  # one worker starts the processes
def test_slots_are_where_the_weights_are(replicas: Path) -> None:
    shapes = [{name: value.shape for name, value in part.items()} for part in read(replicas, "sharded")]
    # of three rows the first process has two
    assert [each["own.0.weight"] for each in shapes] == [(2, 2), (1, 2)]
    assert [each["own.0.bias"] for each in shapes] == [(2,), (1,)]
    assert [each["optimizers.net.exp_avg.0.weight"] for each in shapes] == [(3, 2), (3, 2)]  # a state has all of it


@pytest.mark.xdist_group("shown by replicas")  # one worker starts the processes
def test_replicas_have_all_slots(replicas: Path) -> None:
    assert [part["own.0.weight"].shape for part in read(replicas, "replicated")] == [(3, 2), (3, 2)]
