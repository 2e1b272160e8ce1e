"""Keras: keras/src/losses/losses_test.py. Values of losses, with weights and each reduction.

Without a reduction Keras gives one number per row, we give one per element, so a mean over the row follows. Sample
weights are a ``mul``. Where Keras takes probabilities, ``kl_div`` and ``cross_entropy`` take logits: their logarithms.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.peers.cases import Case, Differs, Piece, Refused, describe, loss
from tests.peers.harness import check
from tests.peers.reasons import CLAMP, COSINE, LABELS

TRUE, PRED = np.array([[1.0, 9, 2], [-5, -2, 6]]), np.array([[4.0, 8, 12], [8, 1, 3]])
BY_ROW = np.array([[1.2], [3.4]])
BY_TIME = np.array([[3.0, 6, 5], [0, 4, 2]])
ERRORS = {
    "MeanSquaredErrorTest": ("mse", 49.5, 113.85, 767.8 / 6, 97.833336, 227.69998 * 3),
    "MeanAbsoluteErrorTest": ("l1", 5.5, 12.65, 81.4 / 6, 13.833333, 25.29999 * 3),
}
"""The last number is the sum: Keras adds up the means of rows of three, we add up all elements."""


def errors() -> Iterator[Case]:
    for peer, (name, plain, scaled, by_row, by_time, total) in ERRORS.items():
        test = f"losses_test.py::{peer}"
        pair = (PRED, TRUE)
        yield loss(f"{test}.test_all_correct_unweighted", name, (PRED, PRED), 0.0)
        yield loss(f"{test}.test_unweighted", name, pair, plain)
        yield loss(f"{test}.test_scalar_weighted", name, pair, scaled, weight=2.3)
        yield loss(f"{test}.test_sample_weighted", name, pair, by_row, sample_weight=BY_ROW, atol=1e-5)
        yield loss(f"{test}.test_timestep_weighted", name, pair, by_time, sample_weight=BY_TIME, atol=1e-5)
        yield loss(f"{test}.test_zero_weighted", name, pair, 0.0, weight=0.0)
        yield loss(f"{test}.test_sum_reduction", name, pair, total, weight=2.3, reduction="sum", atol=1e-4)
    for peer, name, rows in (
        ("MeanSquaredErrorTest", "mse", [84.3333, 143.3666]),
        ("MeanAbsoluteErrorTest", "l1", [10.7333, 14.5666]),
    ):
        yield Case(
            test=f"losses_test.py::{peer}.test_no_reduction",
            runs=Piece(
                inputs={"x": describe(PRED), "y": describe(TRUE)},
                ops={
                    "each": {"loss": name, "inputs": ["~x", "~y"], "reduction": "none", "weight": 2.3},
                    "rows": {"call": "mean", "inputs": "~each", "args": {"axis": 1}},
                },
                feeds=[{"x": PRED, "y": TRUE}],
                watch="rows",
            ),
            says={1: rows},
            atol=1e-4,
        )


HINGE_TRUE, HINGE_PRED = np.array([[0.0, 1], [0, 0]]), np.array([[0.6, 0.4], [0.4, 0.6]])


def hinges() -> Iterator[Case]:
    test = "losses_test.py::HingeTest"
    rows = np.array([1.0, 0.0])[:, None]
    for suffix, reduction, says, labelled, ours in (
        ("[mean]", "mean", 1.3, 2 * HINGE_TRUE - 1, None),
        ("[sum]", "sum", 2.6 * 2, 2 * HINGE_TRUE - 1, None),
        ("[labels of 0]", "mean", 1.3, HINGE_TRUE, 0.9),
    ):
        differs = Differs(
            ours={1: ours}, why=LABELS, theirs=lambda: np.maximum(0, 1 - (2 * HINGE_TRUE - 1) * HINGE_PRED).mean()
        )
        yield loss(
            f"{test}.test_unweighted{suffix}",
            "hinge",
            (HINGE_PRED, labelled),
            says,
            reduction=reduction,
            differs=None if ours is None else differs,
        )
    signed = (HINGE_PRED, 2 * HINGE_TRUE - 1)
    yield loss(f"{test}.test_weighted[mean]", "hinge", signed, 0.55, sample_weight=rows)
    yield loss(f"{test}.test_weighted[sum]", "hinge", signed, 1.1 * 2, sample_weight=rows, reduction="sum")
    yield loss(f"{test}.test_zero_weighted", "hinge", signed, 0.0, weight=0.0)


def similarity(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the cosine of each row of one with the same row of the other."""
    return (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)


def cosines() -> Iterator[Case]:
    test = "losses_test.py::CosineSimilarityTest"
    cosine = similarity(PRED, TRUE)
    for name, weight in (("test_unweighted", 1.0), ("test_scalar_weighted", 2.3)):
        differs = Differs(ours={1: weight * (1 - cosine).mean()}, why=COSINE)
        yield loss(f"{test}.{name}", "cosine", (PRED, TRUE), -weight * cosine.mean(), weight=weight, differs=differs)
    rows = np.array([1.2, 3.4])
    differs = Differs(ours={1: (rows * (1 - cosine)).mean()}, why=COSINE)
    yield loss(
        f"{test}.test_sample_weighted",
        "cosine",
        (PRED, TRUE),
        -(rows * cosine).mean(),
        sample_weight=rows,
        differs=differs,
    )


HUBER_TRUE, HUBER_PRED = np.array([[1.0, 0, 1], [1, 0, 0]]), np.array([[0.9, 0.2, 0.2], [0.8, 0.4, 0.6]])


def huber(delta: float) -> np.ndarray:
    """Return Huber's loss of each element, as Keras's test computes it."""
    error = np.abs(HUBER_PRED - HUBER_TRUE)
    least = np.minimum(error, delta)
    return 0.5 * least**2 + delta * (error - least)


def hubers() -> Iterator[Case]:
    test = "losses_test.py::HuberLossTest"
    pair = (HUBER_PRED, HUBER_TRUE)
    plain = huber(1.0)
    yield loss(f"{test}.test_all_correct", "huber", (HUBER_TRUE, HUBER_TRUE), 0.0)
    yield loss(f"{test}.test_unweighted", "huber", pair, plain.mean())
    yield loss(f"{test}.test_scalar_weighted", "huber", pair, 2.3 * plain.mean(), weight=2.3)
    yield loss(f"{test}.test_sample_weighted", "huber", pair, (plain * BY_ROW).mean(), sample_weight=BY_ROW)
    yield loss(f"{test}.test_timestep_weighted", "huber", pair, (plain * BY_TIME).mean(), sample_weight=BY_TIME)
    yield loss(f"{test}.test_zero_weighted", "huber", pair, 0.0, weight=0.0)
    yield loss(
        f"{test}.test_non_default_delta", "huber", pair, 2.3 * huber(0.8).mean(), weight=2.3, args={"delta": 0.8}
    )


T, S = np.array([[0.5, 0.8, 0.12], [0.7, 0.43, 0.8]]), np.array([[0.4, 0.9, 0.12], [0.36, 0.3, 0.4]])


def divergences() -> Iterator[Case]:
    """Yield Keras's cases with rows that sum to 1: the softmax of their logarithms is the row itself."""
    test = "losses_test.py::KLDivergenceTest"
    teacher, student = T / T.sum(1, keepdims=True), S / S.sum(1, keepdims=True)
    rows = (teacher * np.log(teacher / student)).sum(1)
    pair = (np.log(student), np.log(teacher))
    yield loss(f"{test}.test_unweighted[normalized]", "kl_div", pair, rows.mean())
    yield loss(f"{test}.test_scalar_weighted[normalized]", "kl_div", pair, 2.3 * rows.mean(), weight=2.3)
    weights = np.array([1.2, 3.4])
    yield loss(
        f"{test}.test_sample_weighted[normalized]", "kl_div", pair, (weights * rows).mean(), sample_weight=weights
    )
    yield loss(f"{test}.test_zero_weighted[normalized]", "kl_div", pair, 0.0, weight=0.0)


EYE, LOGITS = np.eye(3), np.array([[10.0, -10, 10], [10, 10, -10]])
BINARY_TRUE = np.array([[1.0, 0, 1], [0, 1, 1]])
CERTAIN = np.array([[1.0, 1], [1, 0]]), np.array([[1.0, 0], [1, 0]])


def binaries() -> Iterator[Case]:
    test = "losses_test.py::BinaryCrossentropyTest"
    yield loss(f"{test}.test_all_correct_unweighted", "bce", (EYE, EYE), 0.0)
    yield loss(f"{test}.test_all_correct_unweighted[logits]", "bce_with_logits", (20 * EYE - 10, EYE), 0.0, atol=1e-4)
    p = np.array([[0.9, 0.1, 0.2], [0.3, 0.8, 0.1], [0.1, 0.2, 0.7]])
    yield loss(f"{test}.test_unweighted", "bce", (p, EYE), 0.20046903)
    for name, weight, says in (("test_unweighted", 1.0, 3.98559), ("test_scalar_weighted", 2.3, 9.1668)):
        differs = Differs(
            ours={1: weight * 100 / 4}, why=CLAMP, theirs=lambda weight=weight: -weight * np.log(1.192093e-7) / 4
        )
        yield loss(f"{test}.{name}[certain]", "bce", CERTAIN, says, weight=weight, atol=1e-3, differs=differs)
    pair = (LOGITS, BINARY_TRUE)
    yield loss(f"{test}.test_unweighted[logits]", "bce_with_logits", pair, 3.3333, atol=1e-3)
    yield loss(f"{test}.test_scalar_weighted[logits]", "bce_with_logits", pair, 7.666, weight=2.3, atol=1e-3)
    rows = np.array([[4.0], [3.0]])
    yield loss(f"{test}.test_sample_weighted[logits]", "bce_with_logits", pair, 10.0, sample_weight=rows, atol=1e-3)
    smooth = np.array([[1.0, 0, 1]]) * 0.9 + 0.05
    yield loss(
        f"{test}.test_label_smoothing", "bce_with_logits", (LOGITS[:1] * [1, 1, -1], smooth), 10.5 / 3, atol=1e-3
    )


PROBABILITIES = np.array([[0.9, 0.05, 0.05], [0.5, 0.89, 0.6], [0.05, 0.01, 0.94]])
CLASS_LOGITS = np.array([[8.0, 1, 1], [0, 9, 1], [2, 3, 5]])
CLASSES = np.array([0, 1, 2])
BY_SAMPLE = np.array([1.2, 3.4, 5.6])


def categories() -> Iterator[Case]:
    """Yield the cases with one-hot rows and with class numbers, which expect the same numbers."""
    for peer, target in (("CategoricalCrossentropyTest", EYE), ("SparseCategoricalCrossentropyTest", CLASSES)):
        test = f"losses_test.py::{peer}"
        normal = np.log(PROBABILITIES / PROBABILITIES.sum(1, keepdims=True))  # Keras also normalizes probabilities
        for suffix, logits, plain, scaled, by_sample in (
            ("", normal, 0.3239, 0.7449, 1.0696),
            ("[logits]", CLASS_LOGITS, 0.0573, 0.1317, 0.31829),
        ):
            pair = (logits, target)
            yield loss(f"{test}.test_unweighted{suffix}", "cross_entropy", pair, plain, atol=1e-3)
            yield loss(f"{test}.test_scalar_weighted{suffix}", "cross_entropy", pair, scaled, weight=2.3, atol=1e-3)
            yield loss(
                f"{test}.test_sample_weighted{suffix}",
                "cross_entropy",
                pair,
                by_sample,
                sample_weight=BY_SAMPLE,
                atol=1e-3,
            )
        each = [0.001822, 0.000459, 0.169846]
        yield loss(f"{test}.test_all_correct_unweighted[logits]", "cross_entropy", (10 * EYE, target), 0.0, atol=1e-3)
        yield loss(f"{test}.test_no_reduction", "cross_entropy", (CLASS_LOGITS, target), each, reduction="none")
    smooth = {"label_smoothing": 0.1}
    yield loss(
        "losses_test.py::CategoricalCrossentropyTest.test_label_smoothing",
        "cross_entropy",
        (np.array([[100.0, -100, -100]]), EYE[:1]),
        400 * 0.1 / 3,
        args=smooth,
    )
    planes = np.array([[[0.8, 0.1], [0.1, 0.8], [0.1, 0.1]], [[0.1, 0.8], [0.8, 0.1], [0.1, 0.1]]])
    labels = np.array([[[1.0, 0], [0, 1], [0, 0]], [[0, 1], [1, 0], [0, 0]]])
    yield loss(
        "losses_test.py::CategoricalCrossentropyTest.test_label_smoothing_with_axis",
        "cross_entropy",
        (np.log(planes), labels),
        -((labels * 0.9 + 0.1 / 3) * np.log(planes)).sum(1).mean(),
        args={**smooth, "axis": 1},
    )
    yield loss(
        "losses_test.py::SparseCategoricalCrossentropyTest.test_ignore_class",
        "cross_entropy",
        (np.array([[[0.854, 0.698, 0.598], [0.088, 0.86, 0.018]]]), np.array([[-1, 2]])),
        [[0.0, 1.480129]],
        reduction="none",
        args={"axis": -1, "ignore_index": -1},
    )
    truth = np.array([[0, 1, 1, 0], [1, 0, 1, 0], [0, 0, 1, 1], [1, 1, 0, 1]])
    second = np.where(truth, 1.0, 0.0)
    second[0, 3], second[3, 3] = 0.8, 0.4
    pixels = np.log(np.stack([1 - second, second], -1) + 1e-30)
    yield loss(
        "losses_test.py::SparseCategoricalCrossentropyTest.test_binary_segmentation",
        "cross_entropy",
        (pixels, truth),
        (-np.log(0.2) - np.log(0.4)) / 16,
        compat="tf_keras",
    )
    yield loss(
        "losses_test.py::SparseCategoricalCrossentropyTest.test_binary_segmentation_different_axis",
        "cross_entropy",
        (np.moveaxis(pixels, 2, 0), truth),
        (-np.log(0.2) - np.log(0.4)) / 16,
        args={"axis": 0},
    )


MISMATCH = """
graphspec: 1
name: mismatch
inputs: {p: {shape: [3, 3]}, t: {shape: [3, 1]}}
ops: {value: {loss: NAME, inputs: [p, t]}}
outputs: [value]
"""


def mismatches() -> Iterator[Case]:
    for peer, name in (("BinaryCrossentropyTest", "bce"), ("CategoricalCrossentropyTest", "cross_entropy")):
        refused = Refused(text=MISMATCH.replace("NAME", name), code="E-SHAPE")
        yield Case(test=f"losses_test.py::{peer}.test_shape_mismatch", runs=refused, says={})


CASES = (
    *errors(),
    *hinges(),
    *cosines(),
    *hubers(),
    *divergences(),
    *binaries(),
    *categories(),
    *mismatches(),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_keras_losses(case: Case, backend: str) -> None:
    check(case, CASES, backend)
