"""Keras: optimizer_test.py, loss_scale_optimizer_test.py, constraints_test.py, regularizers_test.py.

Clips, accumulation, loss scales, constraints and penalties.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.peers.cases import GIVEN, Case, Document, Refused, descent, scale
from tests.peers.harness import check

SGD = {"name": "sgd", "lr": 1.0}
SQUARE = np.array([[1.0, 2], [3, 4]])
ONES = np.ones((2, 2))


def clips() -> Iterator[Case]:
    """Yield clipped gradients, read from one sgd step from 0 at rate 1."""
    test = "optimizer_test.py::OptimizerTest"
    half = 2**0.5 / 2
    hundreds = [[100.0, 100.0]]
    each = {"clip": {"norm": 1, "per": "parameter"}}
    yield descent(f"{test}.test_clip_norm", SGD, [0.0, 0], hundreds, {1: [-half, -half]}, update=each)
    value = {"clip": {"value": 1}}
    yield descent(f"{test}.test_clip_value", SGD, [0.0, 0], hundreds, {1: [-1.0, -1]}, update=value)
    gradient = np.array([50.0, 100])
    says = {1: -gradient / np.linalg.norm(gradient)}
    yield descent(f"{test}.test_global_clip_norm", SGD, [0.0, 0], [gradient], says, update={"clip": {"norm": 1}})


TWO = GIVEN.replace("LOSS_SCALE", "none").replace("models: {w:", "models: {v: {parameter: {shape: [2]}}, w:")


def optimizers() -> Iterator[Case]:
    test = "optimizer_test.py::OptimizerTest"
    says = {1: SQUARE, 2: SQUARE, 3: SQUARE - 1, 4: SQUARE - 1}
    yield descent(f"{test}.test_gradient_accumulation", SGD, SQUARE, [ONES] * 4, says, update={"accumulate": 3})
    yield descent(
        f"{test}.test_overwrite_with_gradient_with_gradient_accumulation[v2]",
        SGD,
        SQUARE,
        [ONES, 2 * ONES, ONES],
        {1: SQUARE, 2: SQUARE - 1.5, 3: SQUARE - 1.5},
        update={"accumulate": 2},
    )
    constant = {"name": "sgd", "lr": {"schedule": "constant", "value": 0.1}}
    yield descent(f"{test}.test_callable_learning_rate", constant, SQUARE, [ONES], {1: SQUARE - 0.1})
    yield descent(
        f"{test}.test_constraints_are_applied",
        {"name": "sgd", "lr": 0.0001},
        np.array([[-0.2, -0.9], [-0.5, 0.0]]),
        [0 * ONES],
        {1: 0 * ONES},
        model={"constraint": "non_negative"},
    )
    for factor in (1.0, 2.0):  # a window of three, compared with one step on its mean
        windows = [np.array([0.3, 0.7]) * factor, np.array([0.5, 0.1]) * factor, np.array([0.1, 0.4]) * factor]
        options = {"name": "sgd", "lr": 0.01, "weight_decay": 0.05}
        mean = np.mean(windows, axis=0)
        start = np.array([0.9, 0.5])
        yield descent(
            f"{test}.test_gradient_accumulation_with_weigth_decay[sgd {factor}]",
            options,
            start,
            windows,
            {3: start - 0.01 * (mean + 0.05 * start)},
            update={"accumulate": 3},
        )
    none = TWO.replace("{update: w,", "{update: v,").replace("shape: [2]}}, w:", "shape: [2]}, optimizer: sgd}, w:")
    yield Case(test=f"{test}.test_empty_gradients", runs=Refused(text=none, code="E-NO-GRADIENT"), says={})


def scales() -> Iterator[Case]:
    test = "loss_scale_optimizer_test.py::LossScaleOptimizerTest"
    yield scale(f"{test}.test_downscaling", {"initial": 400.0}, "0000", [200.0, 100.0, 50.0, 25.0])
    options = {"initial_scale": 2.0, "dynamic_growth_steps": 2}
    yield scale(f"{test}.test_upscaling", options, "1" * 8, [2.0, 4, 4, 8, 8, 16, 16, 32])
    start, slopes = np.array([1.0, 2, 3, 4]), np.array([1.0, 6, 7, 2])
    text = GIVEN.replace("LOSS_SCALE", "dynamic").replace("[2]", "[4]")
    finite, infinite = {"g": slopes.astype("float32")}, {"g": np.full(4, np.inf, "float32")}
    stepped = np.array([0.5, -1, -0.5, 3])
    for name, feeds, says in (
        ("test_finite_step", [finite], stepped),
        ("test_infinite_step", [infinite], start),
        ("test_iterations_update", [finite] * 3, start - 1.5 * slopes),
    ):
        document = Document(text=text, feeds=feeds, watch="w.value", start={"w.value": start}, dtype="float32")
        yield Case(test=f"{test}.{name}", runs=document, says={len(feeds): says})
    fixed = Document(
        text=GIVEN.replace("LOSS_SCALE", "1024").replace("[2]", "[2, 2]").replace("lr: 0.5", "lr: 1.0"),
        feeds=[{"g": SQUARE.astype("float32")}],
        watch="w.value",
        start={"w.value": SQUARE},
        dtype="float32",
    )
    yield Case(test="optimizer_test.py::OptimizerTest.test_static_loss_scaling", runs=fixed, says={1: 0 * SQUARE})


COLUMNS = np.array([[0.0, 0, 0], [1, 0, 0], [3, 0, 0], [3, 3, 3]]).T
BOUNDED = np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [2 / 3**0.5] * 3]).T
MIXED = np.array([[0.0, -7.5, 30.0], [12.0, -3.0, -48.0], [5.0, 44.0, -0.5]])


def constraints() -> Iterator[Case]:
    """Yield constrained weights after a step with a zero gradient; Keras takes norms of columns."""
    test = "constraints_test.py::ConstraintsTest"
    for name, constraint, start, says in (
        ("test_max_norm", {"max_norm": 2.0, "axis": 0}, COLUMNS, BOUNDED),
        ("test_non_neg", "non_negative", MIXED, np.maximum(MIXED, 0)),
        ("test_unit_norm", {"unit_norm": True, "axis": 0}, MIXED, MIXED / np.linalg.norm(MIXED, axis=0)),
        ("test_non_neg_zeroes_negatives", "non_negative", -3 * np.ones((5, 5)), np.zeros((5, 5))),
        ("test_non_neg_preserves_positives", "non_negative", 3 * np.ones((5, 5)), 3 * np.ones((5, 5))),
        ("test_non_neg_all_zeros_input", "non_negative", np.zeros((5, 5)), np.zeros((5, 5))),
    ):
        nothing = np.zeros_like(start)
        yield descent(f"{test}.{name}", SGD, start, [nothing], {1: says}, model={"constraint": constraint})


WEIGHTS = np.array([[0.5, -0.25], [0.125, 0.75]])


def regularizers() -> Iterator[Case]:
    """Yield the gradients of Keras's penalties, read from one sgd step at rate 1."""
    test = "regularizers_test.py::RegularizersTest"
    sign, double = np.sign(WEIGHTS), 2 * WEIGHTS
    for name, regularizer, start, slope in (
        ("test_l1", {"l1": 0.1}, WEIGHTS, 0.1 * sign),
        ("test_l2", {"l2": 0.1}, WEIGHTS, 0.1 * double),
        ("test_l1_l2", [{"l1": 0.1}, {"l2": 0.2}], WEIGHTS, 0.1 * sign + 0.2 * double),
        ("test_l1_with_zero_weights", {"l1": 0.1}, 0 * WEIGHTS, 0 * WEIGHTS),
        ("test_l1_zero_coefficient", {"l1": 0.0}, WEIGHTS, 0 * WEIGHTS),
        ("test_l2_with_zero_weights", {"l2": 0.1}, 0 * WEIGHTS, 0 * WEIGHTS),
        ("test_l2_zero_coefficient", {"l2": 0.0}, WEIGHTS, 0 * WEIGHTS),
        ("test_l1l2_only_l1", [{"l1": 0.1}, {"l2": 0.0}], WEIGHTS, 0.1 * sign),
        ("test_l1l2_only_l2", [{"l1": 0.0}, {"l2": 0.1}], WEIGHTS, 0.1 * double),
    ):
        nothing = np.zeros_like(start)
        yield descent(f"{test}.{name}", SGD, start, [nothing], {1: start - slope}, model={"regularizer": regularizer})


CASES = (*clips(), *optimizers(), *scales(), *constraints(), *regularizers())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_keras_training(case: Case, backend: str) -> None:
    check(case, CASES, backend)
