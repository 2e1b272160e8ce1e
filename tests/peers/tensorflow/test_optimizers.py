"""TensorFlow 1: tensorflow/python/training/*_test.py. Optimizers, minimize() and its parts, moving averages.

Where a test has two variables of two numbers that a rule updates independently, the case has one parameter of four.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.peers import rules
from tests.peers.cases import Case, Differs, Piece, Refused, curve, descent
from tests.peers.harness import check
from tests.peers.reasons import START

START_AT, SLOPES = np.array([1.0, 2, 3, 4]), np.array([0.1, 0.1, 0.01, 0.01])


def basics() -> Iterator[Case]:
    sgd, momentum = {"name": "sgd", "lr": 3.0}, {"name": "sgd", "lr": 2.0, "momentum": 0.9}
    says = {1: START_AT - 3.0 * SLOPES}
    test = "gradient_descent_test.py::GradientDescentOptimizerTest"
    yield descent(f"{test}.testBasic", sgd, START_AT, [SLOPES], says)
    tensor = {"schedule": "constant", "value": 3.0}
    yield descent(f"{test}.testTensorLearningRate", {**sgd, "lr": tensor}, START_AT, [SLOPES], says)
    test = "momentum_test.py::MomentumOptimizerTest"
    first = START_AT - 2.0 * SLOPES
    says = {1: first, 2: first - 2.0 * (0.9 * SLOPES + SLOPES)}
    yield descent(f"{test}.testBasic", momentum, START_AT, [SLOPES] * 2, says)
    tensor = {key: {"schedule": "constant", "value": momentum[key]} for key in ("lr", "momentum")}
    yield descent(f"{test}.testTensorLearningRateAndMomentum", {**momentum, **tensor}, START_AT, [SLOPES] * 2, says)
    belief = {"name": "sgd", "lr": 0.1, "momentum": 0.1}
    yield descent(f"{test}.testLikeDistBeliefMom01", belief, np.zeros(8), DISTBELIEF_GRADIENTS, DISTBELIEF)
    test = "adagrad_test.py::AdagradOptimizerTest"
    adagrad = {"name": "adagrad", "lr": 3.0, "initial_accumulator_value": 0.1}
    says = {3: [-1.6026098728179932, -0.6026098728179932, 2.715679168701172, 3.715679168701172]}
    yield descent(f"{test}.testBasic", adagrad, START_AT, [SLOPES] * 3, says)
    tensor = {"schedule": "constant", "value": 3.0}
    yield descent(f"{test}.testTensorLearningRate", {**adagrad, "lr": tensor}, START_AT, [SLOPES] * 3, says)
    small = np.array([-5.91278e-05, 5.31673e-05, -2.5779e-06, 4.29153e-05, -8.4877e-05, -9.48906e-05])
    yield descent(
        f"{test}.testSparseStability[dense]",
        {**adagrad, "lr": 1.0},
        [0.00872496, -0.106952, 0.110467, 0.226505, -0.0147257, -0.0105945],
        [small],
        {1: [0.00891194, -0.10712013, 0.11047515, 0.22636929, -0.0144573, -0.01029443]},
    )
    test = "adam_test.py::AdamOptimizerTest"
    theirs = partial(rules.adam, lr=0.001, eps=1e-8, inside=True)
    says = {steps: rules.descend(theirs, START_AT, lambda w, step: SLOPES, steps) for steps in (1, 2, 3)}
    yield descent(f"{test}.testBasic", {"name": "adam"}, START_AT, [SLOPES] * 3, says)
    tensor = {"schedule": "constant", "value": 0.001}
    yield descent(f"{test}.testTensorLearningRate", {"name": "adam", "lr": tensor}, START_AT, [SLOPES] * 3, says)


DISTBELIEF_GRADIENTS = [
    [0.00096264342, 0.17914793, 0.93945462, 0.41396621, 0.53037018, 0.93197989, 0.78648776, 0.50036013],
    [0.17075552, 0.88821375, 0.20873757, 0.25236958, 0.57578111, 0.15312378, 0.5513742, 0.94687688],
    [0.35077485, 0.47304362, 0.44412705, 0.44368884, 0.078527533, 0.81223965, 0.31168157, 0.43203235],
    [0.9694621, 0.75035888, 0.28171822, 0.83813518, 0.53807181, 0.3728098, 0.81454384, 0.03848977],
    [0.38578293, 0.8536852, 0.88722926, 0.66276771, 0.13678469, 0.94036359, 0.69107032, 0.81897682],
    [0.27885768, 0.76100707, 0.24625534, 0.81354135, 0.18959245, 0.48038563, 0.84163809, 0.41172323],
    [0.27233034, 0.056316052, 0.5039115, 0.24105175, 0.35697976, 0.75913221, 0.73577434, 0.16014607],
    [0.58697265, 0.2494842, 0.08106143, 0.39954534, 0.15892942, 0.12683646, 0.74053431, 0.16033],
    [0.8215279, 0.41994119, 0.95172721, 0.68000203, 0.79439718, 0.43384039, 0.55561525, 0.22567581],
    [0.68297005, 0.67758518, 0.1748755, 0.13266537, 0.70697063, 0.055731893, 0.68593478, 0.50580865],
]
DISTBELIEF = {
    1: [
        -9.6264346e-05,
        -0.017914793,
        -0.093945466,
        -0.041396622,
        -0.053037018,
        -0.093197994,
        -0.078648776,
        -0.050036013,
    ],
    4: [-0.15459226, -0.24556576, -0.20456907, -0.20662397, -0.18528105, -0.24716705, -0.2643207, -0.21206589],
    7: [-0.26649091, -0.43862185, -0.38418442, -0.40361428, -0.26314685, -0.48537019, -0.51664448, -0.36529395],
    10: [-0.49369633, -0.58184016, -0.52132869, -0.5396927, -0.44306302, -0.56181377, -0.73774242, -0.46082234],
}
"""The first eight of ten numbers of TensorFlow's test, and what zeros are after some of its ten steps."""


def nesterov() -> Iterator[Case]:
    """Yield four steps on 5 v0^2 + 3 v1, with the numbers of the formula in TensorFlow's test."""
    ones = np.array([1.0, 1, 0, 0])
    var, accum, says = START_AT, np.zeros(4), {}
    for step in range(1, 5):
        g = 10 * var * ones + 3 * (1 - ones)
        accum = accum * 0.9 + g
        var = var - 2.0 * g - 2.0 * 0.9 * accum
        says[step] = var
    yield Case(
        test="momentum_test.py::MomentumOptimizerTest.testNesterovMomentum",
        runs=Piece(
            models={
                "v": {
                    "parameter": {"shape": [4]},
                    "optimizer": {"name": "sgd", "lr": 2.0, "momentum": 0.9, "nesterov": True},
                }
            },
            inputs={"square": {"shape": [4]}, "line": {"shape": [4]}},
            ops={
                "now": {"forward": "~v"},
                "squares": {"call": "square", "inputs": "~now"},
                "curved": {"call": "mul", "inputs": ["~squares", "~square"]},
                "straight": {"call": "mul", "inputs": ["~now", "~line"]},
                "terms": {"call": "add", "inputs": ["~curved", "~straight"]},
                "cost": {"call": "sum", "inputs": "~terms"},
                "step": {"update": "~v", "loss": "~cost"},
            },
            start={"v.value": START_AT},
            feeds=[{"square": 5 * ones, "line": 3 * (1 - ones)}] * 4,
            watch="v.value",
        ),
        says=says,
    )


def moving(rms: float, epsilon: float, momentum: float, *, inside: bool) -> np.ndarray:
    """Return the result of two steps of RMSProp whose average of squares starts at ``rms``."""
    var, mom, average = START_AT, np.zeros(4), np.full(4, rms)
    for _ in range(2):
        average = 0.9 * average + 0.1 * SLOPES**2
        root = np.sqrt(average + epsilon) if inside else np.sqrt(average) + epsilon
        mom = momentum * mom + 2.0 * SLOPES / root
        var = var - mom
    return var


def averages_of_squares() -> Iterator[Case]:
    for name, epsilon, momentum in (("testWithoutMomentum", 1.0, 0.0), ("testWithMomentum", 1e-5, 0.5)):
        theirs = partial(moving, 1.0, epsilon, momentum, inside=True)
        yield descent(
            f"rmsprop_test.py::RMSPropOptimizerTest.{name}",
            {"name": "rmsprop", "lr": 2.0, "alpha": 0.9, "eps": epsilon, "momentum": momentum},
            START_AT,
            [SLOPES] * 2,
            {2: theirs()},
            differs=Differs(ours={2: moving(0.0, epsilon, momentum, inside=False)}, why=START, theirs=theirs),
        )
    for gradient in (0.2, 0.1, 0.01):
        for lr in (1.0, 0.5, 0.1):
            rule = partial(rules.adadelta, lr=lr, rho=0.95, eps=1e-8)
            says = {
                steps: rules.descend(rule, START_AT, lambda w, step, g=gradient: np.full(4, g), steps)
                for steps in range(1, 5)
            }
            yield descent(
                f"adadelta_test.py::AdadeltaOptimizerTest.testBasic[{gradient}, {lr}]",
                {"name": "adadelta", "lr": lr, "rho": 0.95, "eps": 1e-8},
                START_AT,
                [gradient] * 4,
                says,
            )


TOTAL = {"call": "sum", "inputs": "~cost"}


def two(update: dict[str, Any], **more: Any) -> Piece:
    """Return an update of two variables whose cost is 5 var0 + 3 var1."""
    sgd = {"name": "sgd", "lr": 3.0}
    return Piece(
        models={
            "var0": {"parameter": {"shape": [2]}, "optimizer": sgd, **more.pop("var0", {})},
            "var1": {"parameter": {"shape": [2]}, "optimizer": sgd, **more.pop("var1", {})},
        },
        ops={
            "now0": {"forward": "~var0"},
            "now1": {"forward": "~var1"},
            "five": {"call": "mul", "inputs": ["~now0", 5.0]},
            "three": {"call": "mul", "inputs": ["~now1", 3.0]},
            "cost": {"call": "add", "inputs": ["~five", "~three"]},
            "step": {"update": ["~var0", "~var1"], **update},
            **more.pop("ops", {"total": TOTAL}),
        },
        start={"var0.value": [1.0, 2], "var1.value": [3.0, 4]},
        watch=("var0.value", "var1.value"),
        **more,
    )


CONSTANT = """
graphspec: 1
name: constant
inputs: {x: {shape: [2]}}
models: {var0: {parameter: {shape: [2]}, optimizer: sgd}, var1: {parameter: {shape: [2]}, optimizer: sgd}}
ops:
  now0: {forward: var0}
  loss: {call: sum, inputs: SOURCE}
  step: {update: TARGETS, loss: loss}
outputs: [loss]
"""


def minimised() -> Iterator[Case]:
    test = "optimizer_test.py::OptimizerTest"
    loss = {"loss": "~total"}
    set_of_both = {"total": TOTAL, "slopes": {"gradient": "~total", "wrt": ["~var0", "~var1"]}}
    weighted = {"slopes": {"gradient": "~cost", "wrt": ["~var0", "~var1"], "grad_outputs": "~weights"}}
    given = {"inputs": {"weights": {"shape": [2]}}, "feeds": [{"weights": np.array([42.0, -42])}]}
    low, high = {"constraint": {"clip": [-0.1, 0.0]}}, {"constraint": {"clip": [0.0, 1.0]}}
    both = {1: [-14.0, -13, -6, -5]}
    yield Case(test=f"{test}.testBasic", runs=two(loss), says=both)
    yield Case(test=f"{test}.testGradientsAsVariables", runs=two({"gradients": "~slopes"}, ops=set_of_both), says=both)
    says = {1: [1 - 3 * 5 * 42.0, 2 + 3 * 5 * 42.0, 3 - 3 * 3 * 42.0, 4 + 3 * 3 * 42.0]}
    piece = two({"gradients": "~slopes"}, ops=weighted, **given)
    yield Case(test=f"{test}.testPrecomputedGradient", runs=piece, says=says)
    piece = two(loss, var0=low, var1=high)
    yield Case(test=f"{test}.testConstraint", runs=piece, says={1: [-0.1, -0.1, 0, 0]})
    for name, source, targets in (
        ("testNoGradients", "now0", "var1"),
        ("testNoGradientsForAnyVariables_Minimize", "x", "[var0, var1]"),
    ):
        text = CONSTANT.replace("SOURCE", source).replace("TARGETS", targets)
        yield Case(test=f"{test}.{name}", runs=Refused(text=text, code="E-NO-GRADIENT"), says={})
    square = {
        "square": {"call": "mul", "inputs": ["~x", "~x"]},
        "value": {"gradient": "~square", "wrt": "~x"},
    }
    piece = Piece(inputs={"x": {"shape": []}}, ops=square, feeds=[{"x": np.array(1.0)}], watch="value")
    yield Case(test=f"{test}.testComputeGradientsWithTensors", runs=piece, says={1: 2.0})
    pred = {
        "now0": {"forward": "~var0"},
        "now1": {"forward": "~var1"},
        "product": {"call": "matmul", "inputs": ["~now0", "~x"]},
        "pred": {"call": "add", "inputs": ["~product", "~now1"]},
        "square": {"call": "square", "inputs": "~pred"},
        "cost": {"call": "sum", "inputs": "~square"},
        "step": {"update": ["~var0", "~var1"], "loss": "~cost"},
    }
    slope = 2 * (1 * 4.0 + 2 * 5.0 + 3)
    piece = Piece(
        inputs={"x": {"shape": [2, 1]}},
        models={
            "var0": {"parameter": {"shape": [1, 2]}, "optimizer": {"name": "sgd", "lr": 1.0}},
            "var1": {"parameter": {"shape": [1]}, "optimizer": {"name": "sgd", "lr": 1.0}},
        },
        ops=pred,
        start={"var0.value": [[1.0, 2]], "var1.value": [3.0]},
        feeds=[{"x": np.array([[4.0], [5]])}],
        watch=("var0.value", "var1.value"),
    )
    test = "gradient_descent_test.py::GradientDescentOptimizerTest.testMinimizeResourceVariable"
    yield Case(test=test, runs=piece, says={1: [1 - slope * 4, 2 - slope * 5, 3 - slope]})


def averages() -> Iterator[Case]:
    test = "moving_averages_test.py::ExponentialMovingAverageTest"
    for name, start, gradient, says in (
        ("testAverageVariablesWithControlDeps", 10.0, -10.0, {1: [17.5]}),
        ("testAverageVariablesNoNumUpdates_Scalar[var0]", 10.0, 0.0, {1: [10.0], 2: [10.0]}),
        ("testAverageVariablesNoNumUpdates_Scalar[var1]", 30.0, 0.0, {1: [30.0], 2: [30.0]}),
    ):
        piece = Piece(
            inputs={"g": {"shape": [1]}},
            models={
                "v": {"parameter": {"shape": [1]}, "optimizer": {"name": "sgd", "lr": 1.0}},
                "slow": {"like": "~v"},
            },
            ops={
                "now": {"forward": "~v"},
                "products": {"call": "mul", "inputs": ["~now", "~g"]},
                "cost": {"call": "sum", "inputs": "~products"},
                "step": {"update": "~v", "loss": "~cost"},
                "average": {"ema": "~v", "into": "~slow", "decay": 0.25},
            },
            start={"v.value": [start], "slow.value": [start]},
            feeds=[{"g": np.array([gradient])}] * len(says),
            watch="slow.value",
        )
        yield Case(test=f"{test}.{name}", runs=piece, says=says)
    stairs = {"schedule": "step", "from": 0.1, "factor": 0.96, "every": 3}
    test = "learning_rate_decay_test.py::LRDecayTest"
    yield curve(f"{test}.testStaircase", stairs, {1: 0.1, 2: 0.1, 100: 0.1 * 0.96**33})
    smooth = {"schedule": "exponential", "from": 0.05, "rate": 0.96, "per": 10}
    yield curve(f"{test}.testContinuous", smooth, {5: 0.05 * 0.96**0.5})


CASES = (*basics(), *nesterov(), *averages_of_squares(), *minimised(), *averages())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tensorflow_optimizers(case: Case, backend: str) -> None:
    check(case, CASES, backend)
