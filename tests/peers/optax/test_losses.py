"""optax: optax/losses/_regression_test.py and _classification_test.py. Losses of elements, without a reduction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.peers.cases import Case, Refused, loss
from tests.peers.harness import check

YS, TS = np.array([-2.0, -1, 0.5, 1]), np.array([-1.5, 0, -1, 1])
MISMATCH = """
graphspec: 1
name: mismatch
inputs: {p: {shape: [4]}, t: {shape: [4, 1]}}
ops: {value: {loss: mse, inputs: [p, t]}}
outputs: [value]
"""


def regressions() -> Iterator[Case]:
    for peer, weight in (("SquaredErrorTest", 1.0), ("L2LossTest", 0.5)):
        test = f"_regression_test.py::{peer}"
        says = weight * (TS - YS) ** 2
        yield loss(f"{test}.test_batched", "mse", (YS, TS), says, reduction="none", weight=weight)
        yield loss(f"{test}.test_scalar", "mse", (YS[0], TS[0]), says[0], weight=weight)
        yield Case(test=f"{test}.test_shape_mismatch", runs=Refused(text=MISMATCH, code="E-SHAPE"), says={})
    ys, ts = np.array([-2.0, 0.5, 0, 0.5, 2, 4, 132]), np.array([0.0, -0.5, 0, 1, 1, 2, 0.3])
    says = [1.5, 0.5, 0.0, 0.125, 0.5, 1.5, 131.2]
    test = "_regression_test.py::HuberLossTest"
    yield loss(f"{test}.test_batched", "huber", (ys, ts), says, reduction="none")
    yield loss(f"{test}.test_scalar", "huber", (ys[0], ts[0]), says[0])
    ys, ts = np.array([[10.0, 1, -2], [1, 4, 0.2]]), np.array([[0.0, 1.2, 0.2], [1, -0.3, 0]])
    says = [0.9358251989, 1.0464068465]
    test = "_regression_test.py::CosineDistanceTest"
    yield loss(f"{test}.test_batched_distance", "cosine", (ys, ts), says, reduction="none", atol=1e-4)
    yield loss(f"{test}.test_scalar_distance", "cosine", (ys[0], ts[0]), says[0], atol=1e-4)


LOGITS = np.array([[10.0, 1, -2], [1, 4, 0.2]])
SIGMOIDS = (
    ((-1e9, -1e-9), (1.0, 0.0), 5e8),
    ((-1e9, -1e-9), (0.0, 1.0), 0.3465736),
    ((1e9, 1e-9), (1.0, 0.0), 0.3465736),
    ((1e9, 1e-9), (0.0, 1.0), 5e8),
    ((-1e9, 1e-9), (1.0, 0.0), 5e8),
    ((-1e9, 1e-9), (0.0, 1.0), 0.3465736),
    ((1e9, -1e-9), (1.0, 0.0), 0.3465736),
    ((1e9, -1e-9), (0.0, 1.0), 5e8),
    ((0.0, 0.0), (1.0, 0.0), 0.6931472),
    ((0.0, 0.0), (0.0, 1.0), 0.6931472),
)
"""Scores, labels, and the mean of both losses."""


def classifications() -> Iterator[Case]:
    test = "_classification_test.py"
    says, rows = [9.00013, 3.0696733], np.array([[0.0, 1, 0], [1, 0, 0]])
    name = f"{test}::SoftmaxCrossEntropyTest"
    none = {"reduction": "none", "atol": 1e-4}
    yield loss(f"{name}.test_batched", "cross_entropy", (LOGITS, rows), says, **none)
    yield loss(f"{name}.test_scalar", "cross_entropy", (LOGITS[:1], rows[:1]), says[:1], **none)
    name = f"{test}::SoftmaxCrossEntropyWithIntegerLabelsTest"
    labels = np.array([1, 0])
    pair = (LOGITS, labels)
    yield loss(f"{name}.test_consistent_with_softmax_cross_entropy_batched", "cross_entropy", pair, says, **none)
    pair = (LOGITS[:1], labels[:1])
    yield loss(f"{name}.test_consistent_with_softmax_cross_entropy_scalar", "cross_entropy", pair, says[:1], **none)
    name = f"{test}::SigmoidCrossEntropyTest.test_sigmoid_cross_entropy"
    for number, (scores, targets, expected) in enumerate(SIGMOIDS):
        yield loss(f"{name}[{number}]", "bce_with_logits", (scores, targets), expected)
    name = f"{test}::PolyLossTest"
    scores, shares = [0.14, 1.456, 2.356, -0.124, -2.47], [0.1, 0.15, 0.2, 0.25, 0.3]
    yield loss(f"{name}.test_scalar[eps=0]", "cross_entropy", ([scores], [shares]), [2.899], **none)
    pair = ([[4.0, 2, 1], [0, 5, 1]], [[1.0, 0, 0], [0, 0.8, 0.2]])
    yield loss(f"{name}.test_batched[eps=0]", "cross_entropy", pair, [0.1698, 0.8247], **none)
    name = f"{test}::HingeTest"
    yield loss(f"{name}.test_binary", "hinge", (10.0, 1.0), 0.0)
    yield loss(f"{name}.test_batched_binary", "hinge", ([10.0, 20], [1.0, -1]), [0.0, 21], reduction="none")


CASES = (*regressions(), *classifications())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_optax_losses(case: Case, backend: str) -> None:
    check(case, CASES, backend)
