"""Types of losses and metrics, and the mistakes torch would not tell."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

from compiler.ir.value import Constant
from compiler.types.dimension import UNKNOWN, ShapeProblem, TensorType
from compiler.types.infer import RULES, infer_call
from graphspec.declare.library import CALLS, LOSSES, METRICS
from graphspec.declare.subscripts import read_subscript

SCALAR = TensorType((), "float32")
ELEMENTWISE = ("mse", "l1", "huber", "bce", "bce_with_logits", "focal", "poisson_nll", "hinge")


def floats(*shape):
    """Return the type of a float32 tensor."""
    return TensorType(shape, "float32")


def classes(*shape):
    """Return the type of an int64 tensor."""
    return TensorType(shape, "int64")


def test_every_built_in_function_has_a_rule():
    assert set(RULES) == {*CALLS, *LOSSES, *METRICS}


@pytest.mark.parametrize("name", RULES)
def test_nothing_is_refused_where_nothing_is_known(name):
    signature = {**METRICS, **LOSSES, **CALLS}[name]
    required = {"sections": 2, "shape": [2, 3], "dims": [1, 0], "classes": 3, "min": 0.0, "at": read_subscript("0")}
    required |= {"equation": "i->i", "k": 1, "shifts": 1, "pad": [1, 1], "factor": 2, "count": 2}
    options = {option.name: required[option.name] for option in signature.options if option.name in required}
    results = infer_call(name, [UNKNOWN] * signature.fewest, options)
    assert len(results) == (2 if name in ("split", "split_rows") else signature.results)


@pytest.mark.parametrize("name", sorted({*LOSSES, "accuracy"}))
def test_losses_and_metrics_are_scalars_even_of_unknown_operands(name):
    signature = {**METRICS, **LOSSES}[name]
    assert infer_call(name, [UNKNOWN] * signature.fewest, {})[0].shape == ()


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_losses_refuse_what_would_broadcast(name):
    with pytest.raises(
        ShapeProblem, match=r"shapes \[batch, 10\] and \[batch, 1\], expected two equal shapes"
    ) as caught:
        infer_call(name, [floats("batch", 10), floats("batch", 1)], {})
    assert caught.value.path == ("inputs", 1)


@pytest.mark.parametrize("target", [floats("batch"), floats("batch", 11), floats(1), floats("2*batch", 10)])
def test_elementwise_losses_refuse_other_shapes(target):
    with pytest.raises(ShapeProblem, match="expected two equal shapes"):
        infer_call("mse", [floats("batch", 10), target], {})


def test_a_single_sample_is_no_batch():
    with pytest.raises(ShapeProblem, match=r"shapes \[batch\] and \[1\]"):
        infer_call("mse", [floats("batch"), floats(1)], {})


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_losses_take_literals_and_equal_shapes(name):
    for target in (
        Constant(value=1),
        Constant(value=0.0),
        floats("batch", 10),
        floats(64, 10),
        floats("n", 10),
        floats(),
        UNKNOWN,
    ):
        (reduced,) = infer_call(name, [floats("batch", 10), target], {})
        assert reduced.shape == ()
    (elements,) = infer_call(name, [floats("batch", 10), Constant(value=1.0)], {}, reduction="none")
    assert elements == floats("batch", 10)


@pytest.mark.parametrize("name", ["bce", "bce_with_logits", "huber", "hinge"])
def test_targets_that_must_be_floating_are(name):
    with pytest.raises(ShapeProblem, match="dtype int64, expected a floating-point dtype"):
        infer_call(name, [floats("batch"), classes("batch")], {})


@pytest.mark.parametrize("name", ["mse", "l1"])
def test_differences_with_integers_are_floating_as_in_torch(name):
    assert infer_call(name, [floats("batch"), classes("batch")], {}) == (SCALAR,)
    with pytest.raises(ShapeProblem, match="dtype int64, expected a floating-point dtype"):
        infer_call(name, [classes("batch"), classes("batch")], {})


TARGETS = [
    (floats("batch", 10), classes("batch"), {}),
    (floats("batch", 10), floats("batch", 10), {}),
    (floats("batch", 10, 4, 4), classes("batch", 4, 4), {}),
    (floats("batch", 4, 10), classes("batch", 4), {"axis": -1}),
    (floats(10), classes(), {"axis": 0}),
    (floats("batch", 10), TensorType(("batch",), None), {}),
    (floats("batch", 10), TensorType(None, "int64"), {}),
]


@pytest.mark.parametrize(("logits", "target", "options"), TARGETS)
def test_cross_entropy_takes_class_numbers_or_probabilities(logits, target, options):
    assert infer_call("cross_entropy", [logits, target], options) == (SCALAR,)


@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        (floats("batch", 10), classes("batch", 1), r"a target \[batch, 1\] int64 .* class numbers of shape \[batch\]"),
        (floats("batch", 10), classes("batch", 10), r"class numbers of shape \[batch\]"),
        (floats("batch", 10), floats("batch"), r"a target \[batch\] float32"),
        (floats("batch", 10), floats("batch", 9), "a target"),
        (floats("batch", 10), classes("2*batch"), "a target"),
        (floats("batch", 10), TensorType(("batch",), "bool"), "dtype bool"),
        (classes("batch", 10), classes("batch"), "dtype int64, expected a floating-point dtype"),
        (floats("batch"), classes("batch"), "an axis from -1 to 0"),
    ],
)
def test_cross_entropy_refuses_other_targets(logits, target, message):
    with pytest.raises(ShapeProblem, match=message):
        infer_call("cross_entropy", [logits, target], {})


def test_nll_takes_class_numbers_only():
    assert infer_call("nll", [floats("batch", 10), classes("batch")], {}) == (SCALAR,)
    with pytest.raises(ShapeProblem, match="use `cross_entropy` for target probabilities"):
        infer_call("nll", [floats("batch", 10), floats("batch", 10)], {})


@pytest.mark.parametrize("name", ["kl_div", "cosine", "nt_xent"])
def test_losses_of_two_views_need_equal_shapes(name):
    assert infer_call(name, [floats("batch", 8), floats("batch", 8)], {}) == (SCALAR,)
    with pytest.raises(ShapeProblem, match="expected two equal shapes"):
        infer_call(name, [floats("batch", 8), floats("batch", 9)], {})


def test_unreduced_losses_have_one_element_per_row():
    pair = [floats("batch", 8), floats("batch", 8)]
    shapes = {name: infer_call(name, pair, {}, reduction="none")[0].shape for name in ("kl_div", "cosine", "nt_xent")}
    assert shapes == {"kl_div": ("batch",), "cosine": ("batch",), "nt_xent": ("2*batch",)}
    assert infer_call("wasserstein", pair[:1], {}, reduction="none") == (floats("batch", 8),)


@pytest.mark.parametrize(("logits", "target"), [((3, 10), (3,)), ((3, 10, 2), (3, 2)), ((3, 10), (3, 10))])
def test_unreduced_cross_entropy_has_the_shape_of_torch(logits, target):
    numbers = len(target) < len(logits)
    dtype = torch.int64 if numbers else torch.float32
    expected = F.cross_entropy(torch.ones(logits), torch.ones(target).to(dtype), reduction="none")
    operands = [floats(*logits), classes(*target) if numbers else floats(*target)]
    assert infer_call("cross_entropy", operands, {}, reduction="none") == (floats(*expected.shape),)


def test_accuracy_compares_scores_with_one_class_number_per_sample():
    assert infer_call("accuracy", [floats("batch", 10), classes("batch")], {}) == (SCALAR,)
    with pytest.raises(ShapeProblem, match="a target with one axis less"):
        infer_call("accuracy", [floats("batch", 10), classes("batch", 1)], {})


def test_three_operands_have_one_shape_and_may_be_numbers_where_that_has_a_meaning():
    rows, other = floats("batch", 4), floats("batch", 1)
    for given in ([rows, rows, rows], [rows, Constant(value=0.5), rows], [rows, rows, floats()]):
        assert infer_call("gaussian_nll", given, {}, reduction="none") == (rows,)
    assert infer_call("triplet_margin", [rows] * 3, {}, reduction="none") == (floats("batch"),)
    for name in ("gaussian_nll", "triplet_margin"):
        with pytest.raises(ShapeProblem, match="three equal shapes") as caught:
            infer_call(name, [rows, rows, other], {})
        assert caught.value.path == ("inputs", 2)
    with pytest.raises(ShapeProblem, match="found a number, expected three equal shapes"):
        infer_call("triplet_margin", [rows, rows, Constant(value=1.0)], {})


def test_dice_keeps_the_axes_that_it_does_not_sum_over():
    image = floats("batch", 3, 8, 8)
    assert infer_call("dice", [image, image], {}, reduction="none") == (floats("batch"),)
    assert infer_call("dice", [image, image], {"axis": [2, 3]}, reduction="none") == (floats("batch", 3),)
    assert infer_call("dice", [image, image], {"axis": 1}) == (SCALAR,)
    with pytest.raises(ShapeProblem, match="an axis from -4 to 3"):
        infer_call("dice", [image, image], {"axis": 4})
    with pytest.raises(ShapeProblem, match="at least two axes"):
        infer_call("dice", [floats("batch"), floats("batch")], {})


def test_ctc_takes_scores_classes_and_lengths_of_one_batch():
    given = [floats("batch", 20, 5), classes("batch", 3), classes("batch"), classes("batch")]
    assert infer_call("ctc", given, {}) == (SCALAR,)
    assert infer_call("ctc", given, {}, reduction="none") == (floats("batch"),)
    for index, operand, expected in (
        (0, floats("batch", 5), "[batch, time, classes] for `ctc`"),
        (1, floats("batch", 3), "whole numbers of dtype int64"),
        (2, Constant(value=20), "[batch] for `ctc`"),
        (3, classes("2*batch"), "batch rows, as the logits have"),
    ):
        with pytest.raises(ShapeProblem, match=re.escape(expected)) as caught:
            infer_call("ctc", [operand if at == index else each for at, each in enumerate(given)], {})
        assert caught.value.path == ("inputs", index)
    with pytest.raises(ShapeProblem, match="a class from 0 to 4"):
        infer_call("ctc", given, {"blank": 5})
