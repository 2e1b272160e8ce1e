"""FastEstimator: test/PR_test, the tests of its ops: UpdateOp, GradientOp, FGSM, losses, schedules.

Its tests for TensorFlow and for PyTorch expect the same numbers; a ``*`` in a name stands for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi
from typing import Any

import numpy as np
import pytest

from tests.peers.cases import GIVEN, Case, Document, Piece, curve, descent, loss
from tests.peers.harness import check

START, GRADIENTS = np.array([0.5, -1.5]), [np.array([1.0, 2]), np.array([3.0, -4]), np.array([-2.0, 1]), np.ones(2)]


def updates() -> Iterator[Case]:
    """Yield weights that move by the mean of ``merge_grad`` gradients, and only then."""
    test = "test_updateop.py::TestUpdateOp.test_*_end_to_end"
    for merge in (1, 2):
        weights, says = START, {}
        for step, _ in enumerate(GRADIENTS, start=1):
            if step % merge == 0:
                weights = weights - 0.1 * np.mean(GRADIENTS[step - merge : step], axis=0)
            says[step] = weights
        name = f"merge_grad: {merge}, take: loss"
        sgd = {"name": "sgd", "lr": 0.1}
        case = descent(f"{test}[{name}]", sgd, START, GRADIENTS, says, update={"accumulate": merge})
        yield case
        assert isinstance(case.runs, Piece)
        ops = {**case.runs.ops, "slopes": {"gradient": "~cost", "wrt": "~w"}}
        ops["step"] = {"update": "~w", "gradients": "~slopes", "accumulate": merge}
        yield Case(
            test=f"{test}[merge_grad: {merge}, take: gradient]",
            runs=Piece(
                inputs=case.runs.inputs,
                models=case.runs.models,
                ops=ops,
                start=case.runs.start,
                feeds=case.runs.feeds,
                watch="w.value",
            ),
            says=says,
        )
        mixed = GIVEN.replace("lr: 0.5", "lr: 0.1").replace("loss: cost", f"loss: cost, accumulate: {merge}")
        document = Document(
            text=mixed.replace("LOSS_SCALE", "dynamic"),
            feeds=[{"g": each.astype("float32")} for each in GRADIENTS],
            watch="w.value",
            start={"w.value": START},
            dtype="float32",
        )
        yield Case(test=f"{test}[mixed_precision, {name}]", runs=document, says=says)


def schedulers() -> Iterator[Case]:
    """Yield optimizers that change with the epoch; an epoch has two steps."""
    for name, rates in (
        ("epoch", [0.1, 0.01, 0.001]),
        ("repeat", [0.1, 0.01, 0.1, 0.01]),
    ):
        written = ", ".join(f"{epoch}: {{name: sgd, lr: {rate}}}" for epoch, rate in enumerate(rates, start=1))
        for merge in (1, 2):
            text = GIVEN.replace("{name: sgd, lr: 0.5}", f"{{{written}}}").replace("LOSS_SCALE", "none")
            gradients = [GRADIENTS[step % 4] for step in range(2 * len(rates))]
            weights, says = START, {}
            for step in range(1, len(gradients) + 1):
                if step % merge == 0:
                    mean = np.mean(gradients[step - merge : step], axis=0)
                    weights = weights - rates[(step - 1) // 2] * mean
                says[step] = weights
            document = Document(
                text=text.replace("loss: cost", f"loss: cost, accumulate: {merge}"),
                feeds=[{"g": each} for each in gradients],
                watch="w.value",
                start={"w.value": START},
                pace=(2, 1, len(gradients)),
            )
            test = f"test_updateop.py::TestUpdateOp.test_*_multi_optimizer_with_{name}_scheduler"
            yield Case(test=f"{test}[merge_grad: {merge}]", runs=document, says=says)


X = np.array([1.0, 2, 4])


def gradients() -> Iterator[Case]:
    inputs = {"x": {"shape": [3]}}
    square: dict[str, Any] = {
        "squares": {"call": "mul", "inputs": ["~x", "~x"]},
        "total": {"call": "sum", "inputs": "~squares"},
        "slope": {"gradient": "~total", "wrt": "~x"},
    }
    piece = Piece(inputs=inputs, ops=square, feeds=[{"x": X}], watch="slope")
    yield Case(test="test_gradientop.py::TestGradientOp.test_*_input", runs=piece, says={1: [2.0, 4, 8]})
    noise = {
        "sign": {"call": "sign", "inputs": "~slope"},
        "small": {"call": "mul", "inputs": ["~sign", 0.01]},
        "moved": {"call": "add", "inputs": ["~x", "~small"]},
        "value": {"call": "clip", "inputs": "~moved", "args": {"min": 1.0, "max": 4.0}},
    }
    piece = Piece(inputs=inputs, ops={**square, **noise}, feeds=[{"x": X}], watch="value")
    yield Case(test="test_fgsm.py::TestFGSM.test_*_input", runs=piece, says={1: [1.01, 2.01, 4]})
    piece = Piece(inputs=inputs, ops={"value": square["squares"]}, feeds=[{"x": X}], watch="value")
    yield Case(test="test_watch.py::TestWatch.test_*_input", runs=piece, says={1: [1.0, 4, 16]})
    twice = {"slopes": {"call": "sum", "inputs": "~slope"}, "second": {"gradient": "~slopes", "wrt": "~x"}}
    for order, watch, says in ((False, "slope", [2.0, 4, 6]), (True, "second", [2.0, 2, 2])):
        ops = {**square, **(twice if order else {})}
        piece = Piece(inputs=inputs, ops=ops, feeds=[{"x": np.array([1.0, 2, 3])}], watch=watch)
        test = f"test_get_gradient.py::TestGetGradient.test_get_gradient_*_tensor_higher_order_{str(order).lower()}"
        yield Case(test=test, runs=piece, says={1: says})
    layer = {"layers": [{"linear": {"out": 1, "bias": False}}], "optimizer": {"name": "sgd", "lr": 1.0}}
    piece = Piece(
        inputs={"x": {"shape": [2, 3]}},
        models={"net": layer},
        ops={
            "pred": {"forward": "~net", "inputs": "~x"},
            "total": {"call": "sum", "inputs": "~pred"},
            "step": {"update": "~net", "loss": "~total"},
        },
        start={"net.0.weight": [[1.0, 2, 3]]},
        feeds=[{"x": np.array([[1.0, 1, 1], [1, -1, -0.5]])}],
        watch="net.0.weight",
    )
    says = {1: np.array([[1.0, 2, 3]]) - [[2.0, 0, 0.5]]}
    yield Case(test="test_gradientop.py::TestGradientOp.test_*_model_input", runs=piece, says=says)
    pair = np.array([1.0, 2, 4]), np.array([1.0, 4, 5])
    mean = {
        "both": {"call": "stack", "inputs": ["~a", "~b"]},
        "value": {"call": "mean", "inputs": "~both", "args": {"axis": 0}},
    }
    piece = Piece(
        inputs={"a": {"shape": [3]}, "b": {"shape": [3]}}, ops=mean, feeds=[{"a": pair[0], "b": pair[1]}], watch="value"
    )
    yield Case(test="test_average.py::TestAverage.test_*_input", runs=piece, says={1: [1.0, 3, 4.5]})


TRUE = np.array([[0.0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0]])
PRED = np.array([[0.1, 0.9, 0.05, 0.05], [0.1, 0.2, 0, 0.7], [0, 0.15, 0.8, 0.05], [1, 0, 0, 0]])
SIGNS = np.array([[-1.0, 1, 1, -1], [1, 1, 1, 1], [-1, -1, 1, -1], [1, -1, -1, -1]])
SCORES = np.array([[0.1, 0.9, 0.05, 0.05], [0.1, -0.2, 0, -0.7], [0, 0.15, 0.8, 0.05], [1, -1, -1, -1]])
SHARES = np.log(np.array([[0.1, 0.8, 0.1], [0.9, 0.05, 0.05], [0.1, 0.2, 0.7]]))
CATEGORIES, CLASSES = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]]), np.array([0, 1, 0])
BINARY = np.array([[0.9], [0.3], [0.8], [0.1]]), np.array([[1.0], [0], [1], [0]])


def losses() -> Iterator[Case]:
    """Yield losses; logarithms of probabilities serve as logits, and class weights become sample weights."""
    test = "test_cross_entropy.py::TestCrossEntropy"
    categorical, sparse = (SHARES, CATEGORIES), (SHARES, CLASSES)
    name = "cross_entropy"
    yield loss(f"{test}.test_categorical_crossentropy", name, categorical, 0.22839302)
    weights = [2.0, 1, 3]
    yield loss(f"{test}.test_categorical_crossentropy_weights", name, categorical, 0.54055756, sample_weight=weights)
    yield loss(f"{test}.test_sparse_categorical_crossentropy", name, sparse, 2.5336342)
    weights = [1.0, 2, 1]
    yield loss(f"{test}.test_sparse_categorical_crossentropy_weights", name, sparse, 3.532212, sample_weight=weights)
    yield loss(f"{test}.test_torch_input", "bce", BINARY, 0.1976349)
    weights = [[2.0], [1], [2], [1]]
    yield loss(f"{test}.test_torch_input_weights", "bce", BINARY, 0.2797609, sample_weight=weights)
    yield loss("test_hinge.py::TestHinge.test_*", "hinge", (SCORES, SIGNS), 0.7125)
    yield loss("test_mean_squared_error.py::TestMeanSquaredError.test_*", "mse", (PRED, TRUE), 0.014375001)
    test, pair, delta = "test_l1_loss.py::Test_L1_Loss", (PRED, TRUE), {"delta": 0.65}
    yield loss(f"{test}.test_L1_*", "l1", pair, 0.081250004)
    yield loss(f"{test}.test_Huber_*", "huber", pair, 0.0071875006, args=delta)
    yield loss(f"{test}.test_Smooth_L1_*", "huber", pair, 0.011057693, args=delta, weight=1 / 0.65)
    test = "test_super_loss.py::TestSuperLoss"
    for peer, inner, pair, axis, says in (
        ("test_tf_superloss_categorical_ce", "cross_entropy", categorical, None, -0.0026386082),
        ("test_tf_superloss_sparse_categorical_ce", "cross_entropy", sparse, None, -0.024740249),
        ("test_torch_superloss_binary_ce", "bce", BINARY, 1, -0.0026238672),
        ("test_*_superloss_hinge", "hinge", (SCORES, SIGNS), 1, -0.072016776),
    ):
        yield superloss(f"{test}.{peer}", loss("", inner, pair, 0.0, reduction="none"), axis, says)


def superloss(test: str, inner: Case, axis: int | None, says: float) -> Case:
    """Return the case of a super loss; the loss of a sample is the mean over ``axis``."""
    assert isinstance(inner.runs, Piece)
    ops = {"each": inner.runs.ops["value"], "value": {"loss": "super_loss", "inputs": "~rows"}}
    rows: dict[str, Any] = {"call": "mean", "args": {"axis": axis}} if axis else {"call": "add"}
    ops["rows"] = {**rows, "inputs": "~each" if axis else ["~each", 0.0]}
    piece = Piece(inputs=inner.runs.inputs, ops=ops, feeds=inner.runs.feeds, watch="value")
    return Case(test=test, runs=piece, says={1: says})


def curves() -> Iterator[Case]:
    test = "test_lr_schedule.py::TestLRSchedule"
    fall = {"schedule": "cosine", "from": 0.01, "to": 0.0, "over": 10}
    yield curve(f"{test}.test_cosine_decay", fall, {5: 0.005})
    long = {**fall, "over": 1000}
    yield curve(f"{test}.test_cosine_decay_cycle", {"schedule": "join", "parts": [long, long]}, {1001: 0.01}, atol=1e-5)
    twice = {"schedule": "join", "parts": [fall, {**fall, "over": 20}]}
    yield curve(f"{test}.test_cosine_decay_multiplier_mid_cycle", twice, {5: 0.005})
    yield curve(f"{test}.test_cosine_decay_multiplier_end_cycle", fall, {10: 0.0})
    rate = {"schedule": "cosine", "from": 1e-3, "to": 1e-6, "over": 3750}
    says = {3: (1e-3 - 1e-6) / 2 * cos(pi * 3 / 3750) + (1e-3 + 1e-6) / 2}
    assert abs(says[3] - 0.0009999973) < 1e-8  # what the tests print
    test = "test_lr_scheduler.py::TestLRScheduler.test_*_model_on"
    for event in ("epoch_begin", "batch_begin"):
        yield curve(f"{test}_{event}", rate, says, atol=1e-9)


CASES = (*updates(), *schedulers(), *gradients(), *losses(), *curves())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fastestimator(case: Case, backend: str) -> None:
    check(case, CASES, backend)
