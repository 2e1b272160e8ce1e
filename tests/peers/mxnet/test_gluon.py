"""MXNet: tests/python/unittest/test_gluon_trainer.py and test_loss.py.

A trainer on two devices sums their gradients, so the gradient is 2. Its sgd has the rate inside the momentum. An
``lr_mult`` that changes between steps is a scheduled ``lr_scale`` of a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.peers.cases import Case, curve, descent, loss
from tests.peers.curves import stairs
from tests.peers.harness import check

TEN = np.zeros(10)
MOMENTUM = {"name": "sgd", "lr": 1.0, "momentum": 0.5, "momentum_form": "lr_inside"}


def multiplied(*values: tuple[int, float]) -> dict[str, Any]:
    """Return a group with a scheduled ``lr_scale``."""
    return {"groups": [{"match": "value", "lr_scale": stairs(*values)}]}


def trainers() -> Iterator[Case]:
    test = "test_gluon_trainer.py"
    yield descent(
        f"{test}::test_trainer",
        MOMENTUM,
        TEN,
        [2.0, 2.0],
        {1: TEN - 2, 2: TEN - 4},
        model=multiplied((0, 1.0), (1, 0.5)),
    )
    yield descent(f"{test}::test_trainer[update_on_kvstore=False]", MOMENTUM, TEN, [0.0 + 1.0], {1: TEN - 1})
    name = "test_trainer_with_sparse_grad_on_single_context[dense]"
    yield descent(f"{test}::{name}", MOMENTUM, TEN, [1.0], {1: TEN - 1})
    yield descent(f"{test}::test_trainer_with_teststore", MOMENTUM, TEN, [2.0], {1: TEN - 2})
    tenth = {"name": "sgd", "lr": 0.1}
    says = {1: TEN - 0.2, 2: TEN - 0.2 - 0.4}  # the rate is 0.1, and 0.2 once lr_mult is 2
    model = multiplied((0, 1.0), (1, 2.0))
    yield descent(f"{test}::test_trainer_save_load", tenth, TEN, [2.0, 2.0], says, model=model)
    yield descent(f"{test}::test_trainer_reset_kv", tenth, TEN, [2.0], {1: TEN - 0.2})
    factor = {"schedule": "step", "from": 1.0, "factor": 0.1, "every": 2}
    says = {0: 1.0, 2: 0.1, 4: 0.01, 6: 0.001, 8: 0.0001}
    yield curve(f"{test}::test_trainer_lr_sched", factor, says, atol=1e-9)


OUTPUT, LABEL, WEIGHTS = np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 5, 7]), np.array([0.5, 1, 0.5, 1])


def losses() -> Iterator[Case]:
    """Yield the sums of losses; MXNet's L2Loss is half of the square."""
    test = "test_loss.py::test_loss_ndarray"
    pair = (OUTPUT, LABEL)
    total = {"reduction": "sum"}
    yield loss(f"{test}[L1]", "l1", pair, 6.0, **total)
    yield loss(f"{test}[L1 weight=0.5]", "l1", pair, 3.0, weight=0.5, **total)
    yield loss(f"{test}[L1 weighting]", "l1", pair, 5.0, sample_weight=WEIGHTS, **total)
    yield loss(f"{test}[L2]", "mse", pair, 7.0, weight=0.5, **total)
    yield loss(f"{test}[L2 weight=0.25]", "mse", pair, 1.75, weight=0.25 / 2, **total)
    yield loss(f"{test}[L2 weighting]", "mse", pair, 6.0, sample_weight=WEIGHTS, weight=0.5, **total)
    pair = (np.array([[0.0, 2], [1, 4]]), np.array([0, 1]))
    says = [2.12692809, 0.04858733]
    yield loss(f"{test}[SoftmaxCE]", "cross_entropy", pair, says, reduction="none", atol=1e-4)
    halved = np.array([0.5, 1.0])
    mean = (1.06346405 + 0.04858733) / 2
    yield loss(f"{test}[SoftmaxCE weighting]", "cross_entropy", pair, mean, sample_weight=halved, atol=1e-4)


CASES = (*trainers(), *losses())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_mxnet(case: Case, backend: str) -> None:
    check(case, CASES, backend)
