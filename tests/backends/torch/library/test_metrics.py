"""Running metrics of emitted code by themselves."""

from __future__ import annotations

import pytest
import torch

from runtime.backends.torch.library.metrics import Running, accuracy, count_rows, running
from runtime.support.clocks import Clock


def feed(metric: Running, clock: Clock, *batches: torch.Tensor) -> list[float]:
    """Return the values of a metric, step by step."""
    found = []
    for each in batches:
        clock.start("train")
        found.append(float(metric(each)))
        clock.finish()
    return found


def test_accuracy_counts_the_rows_whose_greatest_score_is_at_the_target():
    scores = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]])
    assert accuracy(scores, torch.tensor([1, 0, 0])) == pytest.approx(2 / 3)


def test_a_batch_without_rows_counts_for_nothing():
    clock = Clock()
    metric = Running(clock, torch.mean, "cpu")
    found = feed(metric, clock, torch.zeros(0, 2), torch.ones(2, 2), torch.zeros(0, 2), torch.zeros(1, 2))
    assert found[0] != found[0]
    assert found[1:] == pytest.approx([1, 1, 2 / 3])


@pytest.mark.parametrize("value", [3, 2.5, True, torch.tensor(3), torch.tensor(True), torch.tensor(2.5).double()])
def test_a_value_of_any_type_has_a_mean(value):
    clock = Clock()
    metric = Running(clock, lambda x: value, "cpu")
    assert feed(metric, clock, torch.ones(2, 1), torch.ones(3, 1)) == [float(value)] * 2


def test_a_million_small_values_are_summed_exactly_enough():
    clock = Clock()
    metric = Running(clock, torch.mean, "cpu")
    metric.load({"total": torch.tensor(1e7, dtype=torch.float64), "rows": 10**7, "window": 0})
    assert metric.wide == torch.float64
    feed(metric, clock, *[torch.zeros(1, 1)] * 10)
    assert float(metric.total) == 1e7
    assert metric.rows == 10**7 + 10


def test_nothing_of_the_graph_is_kept():
    clock = Clock()
    metric, weight = Running(clock, torch.mean, "cpu"), torch.ones(3, requires_grad=True)
    clock.start("train")
    assert not metric(weight * 2).requires_grad
    clock.finish()
    assert not metric.total.requires_grad


def test_a_single_number_is_one_row():
    assert count_rows(torch.tensor(1.0), torch.ones(5)) == count_rows(2.0) == count_rows() == 1
    assert count_rows(torch.ones(5, 2)) == 5


def test_a_function_class_is_no_metric():
    with pytest.raises(TypeError, match="Linear has no update, compute and reset"):
        running(Clock(), torch.nn.Linear, "cpu", options={"in_features": 1, "out_features": 1})
