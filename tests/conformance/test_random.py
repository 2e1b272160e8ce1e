"""Random specs give the same numbers on both backends, and those that the oracle says."""

from __future__ import annotations

import pytest

from tests.conformance.execution import TensorFlowExecution
from tests.conformance.random_specs import Tally, compare, plans_of, running, try_specs

SEEDS = (2, 4)
"""Two small ones that are judged; the long set tries more."""
TRACED = 4
"""One spec in so many runs as graphs: to trace one takes as long as twenty steps without."""


def test_random_specs_agree_on_both_backends_and_with_the_oracle() -> None:
    tally: Tally = try_specs(SEEDS, graphs=TRACED)
    assert tally.failures == []
    assert tally.agreed == len(SEEDS)
    assert tally.as_graphs == 1


def test_a_step_that_moves_a_weight_by_a_little_more_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    plans, step = plans_of(SEEDS[0]), TensorFlowExecution.step

    def drift(execution: TensorFlowExecution, batch: object, mode: str = "train") -> object:
        trained = (model for model in execution.models.values() if hasattr(model, "parameters"))
        weight = next(trained).parameters()[0]
        weight.assign(weight + 1e-9)
        return step(execution, batch, mode)

    monkeypatch.setattr(TensorFlowExecution, "step", drift)
    with running(eagerly=True):
        assert "is off by" in compare(plans["torch"], plans["tensorflow"])
