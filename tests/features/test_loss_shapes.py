"""What a loss takes is the same at build and at run: shapes that only the step knows are never broadcast."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from compiler import compile_step
from compiler.types.dimension import ShapeProblem, TensorType
from compiler.types.infer import infer_call
from graphspec import SpecError, load
from tests.features.steps import build_step, weights

ELEMENTWISE = ("mse", "l1", "huber", "hinge", "bce", "bce_with_logits", "focal", "poisson_nll")
OF_CLASSES = (("cross_entropy", "float32"), ("cross_entropy", "int64"), ("nll", "int64"))
OF_AXIS = (("kl_div", "float32"), *OF_CLASSES)
OPEN_RANK = (*((each, "float32") for each in (*ELEMENTWISE, "cosine", "dice", "nt_xent")), *OF_AXIS)
"""Losses, and the type of their second operand."""
SHAPES = ((), (4,), (4, 1), (1, 4), (4, 4))
ANY = """
graphspec: 1
name: any
inputs: {{a: {a}, b: {b}}}
ops:
  fit: {{loss: {loss}, inputs: [a, b]}}
outputs: [fit]
"""
MISFIT = "do not fit"
UNREDUCED = {"reduction": "none"}


def is_allowed(loss, one, other, dtype):
    try:
        infer_call(loss, [TensorType(one, "float32"), TensorType(other, dtype)], {})
    except ShapeProblem:
        return False
    return True


def batch_of(one, other, dtype):
    numbers = np.random.default_rng(0)
    b = numbers.random(other) if dtype == "float32" else np.zeros(other, np.int64)
    return {"a": numbers.random(one), "b": b}


def runs(step, batch):
    try:
        found = step(batch)["fit"]
    except SpecError as error:
        if MISFIT not in str(error):
            raise
        return False
    return bool(np.isfinite(np.asarray(found)))


@pytest.mark.sample(3)
@pytest.mark.parametrize(("loss", "dtype"), OPEN_RANK)
def test_inputs_without_a_shape_meet_under_the_rule_of_the_compiler(backend: str, loss: str, dtype: str) -> None:
    step = build_step(ANY.format(a="{}", b=f"{{dtype: {dtype}}}", loss=loss), backend)
    shapes = SHAPES if loss in ("mse", "cosine", "kl_div", "cross_entropy") else SHAPES[:3]
    for one, other in product(shapes, shapes):
        assert runs(step, batch_of(one, other, dtype)) == is_allowed(loss, one, other, dtype), (one, other)


@pytest.mark.parametrize(("loss", "dtype"), OF_AXIS)
def test_free_dimensions_meet_under_the_rule_of_the_compiler(backend: str, loss: str, dtype: str) -> None:
    for ranks in ((2, 2), (2, 1)):
        shapes = ("{shape: [p, q]}", f"{{shape: [{', '.join('rs'[: ranks[1]])}], dtype: {dtype}}}")
        text = ANY.format(a=shapes[0], b=shapes[1], loss=loss)
        if not is_allowed(loss, ("p", "q"), ("r", "s")[: ranks[1]], dtype):
            with pytest.raises(SpecError, match="E-SHAPE"):
                build_step(text, backend)
            continue
        step = build_step(text, backend)
        for one, other in product(SHAPES, SHAPES):
            if (len(one), len(other)) == ranks:
                assert runs(step, batch_of(one, other, dtype)) == is_allowed(loss, one, other, dtype), (one, other)


@pytest.mark.parametrize("loss", ["cosine", "kl_div"])
def test_what_does_not_fit_is_told_before_the_loss_meets_it(backend: str, loss: str) -> None:
    step = build_step(ANY.format(a="{}", b="{}", loss=loss), backend)
    for _ in range(20):  # in a graph, what is computed of the second operand raced with the look at both
        assert not runs(step, batch_of((), (), "float32"))


def divergence(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return KL(target, scores) of logits by samples."""
    pair = (each.log_softmax(1) for each in (scores, target))
    return F.kl_div(*pair, reduction="none", log_target=True).sum(1)


LEARNT = """
graphspec: 1
name: learnt
inputs: {{x: {{}}, b: {{dtype: {dtype}}}}}
models: {{scale: {{parameter: {{shape: [], init: ones}}, optimizer: {{name: sgd, lr: 0.5}}}}}}
ops:
  s: {{forward: scale}}
  a: {{call: mul, inputs: [x, s]}}
  fit: {{loss: {loss}, inputs: [a, b], {more}}}
  cost: {{call: mean, inputs: fit}}
  step: {{update: scale, loss: cost}}
outputs: [fit]
"""
HELD: dict[str, tuple[str, str, tuple[int, ...], Callable[..., torch.Tensor]]] = {
    "kl_div": ("kl_div", "float32", (4, 3, 2), divergence),
    "class numbers": ("cross_entropy", "int64", (4, 2), F.cross_entropy),
    "probabilities": ("cross_entropy", "float32", (4, 3, 2), F.cross_entropy),
    "nll": ("nll", "int64", (4, 2), F.nll_loss),
}
"""Loss, type and shape of the target, and the loss in torch, for scores [4, 3, 2]."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("name", HELD)
def test_classes_of_inputs_without_a_shape_are_along_axis_1(
    backend: str, name: str, reduction: str, parts: int
) -> None:
    loss, dtype, shape, reference = HELD[name]
    random = np.random.default_rng(3)
    x = random.normal(size=(4, 3, 2))
    b = random.random(shape) if dtype == "float32" else random.integers(0, 3, shape)
    text = LEARNT.format(loss=loss, dtype=dtype, more=f"reduction: {reduction}")
    step = build_step(text, backend, [f"micro_batches={parts}"])
    found = np.asarray(step({"x": x, "b": b})["fit"])
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    every = reference(torch.from_numpy(x) * scale, torch.from_numpy(b), **({} if loss == "kl_div" else UNREDUCED))
    cost = every.sum() / 4 if (loss, reduction) == ("kl_div", "mean") else every.mean()  # kl_div's is over the batch
    cost.backward()
    assert np.allclose(found, (every if reduction == "none" else cost).detach(), rtol=1e-12)
    (left,) = (value for key, value in weights(step).items() if key.startswith("scale"))
    assert np.isclose(left, 1 - 0.5 * float(scale.grad), rtol=1e-12)


HALF = "tests.features.columns"
NET = """
graphspec: 1
name: net
inputs: {{x: {{shape: [batch, 3]}}, y: {{shape: [batch]}}}}
models:
  net:
    layers: [{{linear: {{out: 3, bias: false}}}}, {{linear: {{out: 1, bias: false}}}}]
    optimizer: {{name: sgd, lr: 0.1}}
ops:
  out: {{forward: net, inputs: x, outputs: [out, {{hidden: {{tap: 0}}}}]}}
  met: {{call: "{function}", inputs: {value}}}
  fit: {{loss: {loss}, inputs: [{pair}]}}
  step: {{update: net, loss: fit, missing: skip}}
outputs: [fit]
"""
X = np.random.default_rng(1).normal(size=(4, 3))
Y = np.array([1.0, -1.0, 0.5, 2.0])


def net(backend: str, function: str, *, value: str = "out", loss: str = "mse", pair: str = "met, y"):
    return build_step(NET.format(function=f"{HALF}:{function}", value=value, loss=loss, pair=pair), backend)


@pytest.mark.parametrize("loss", ["mse", "bce_with_logits", "cosine"])
def test_a_column_of_a_users_function_is_no_vector(backend: str, loss: str) -> None:
    with pytest.raises(SpecError, match=MISFIT):
        net(backend, "column", loss=loss)


def test_a_vector_of_a_users_function_is_compared_element_by_element(backend: str) -> None:
    step = net(backend, "flat")
    before = weights(step)
    first, second = before["net.0.weight"], before["net.1.weight"]
    found = float(np.asarray(step({"x": X, "y": Y})["fit"]))
    error = (X @ first.T @ second.T)[:, 0] - Y
    assert np.isclose(found, np.mean(error**2), rtol=1e-12)
    slope = 2 * error[None, :] @ (X @ first.T) / 4
    assert np.allclose(weights(step)["net.1.weight"], second - 0.1 * slope, atol=1e-12)


def test_a_number_of_a_users_function_stands_for_a_tensor_filled_with_it(backend: str) -> None:
    step = net(backend, "corner", loss="bce_with_logits", pair="out, met")
    before = weights(step)
    found = float(np.asarray(step({"x": X, "y": Y})["fit"]))
    logits = (X @ before["net.0.weight"].T @ before["net.1.weight"].T)[:, 0]
    assert np.isclose(found, np.mean(np.logaddexp(0, logits) - logits * logits[0]), rtol=1e-12)


def test_a_tap_is_held_against_what_it_meets(backend: str) -> None:
    with pytest.raises(SpecError, match=MISFIT):
        net(backend, "flat", pair="hidden, y")({"x": X[:3], "y": Y[:3]})  # [3, 3] against [3]


def test_an_accuracy_refuses_a_column_of_targets(backend: str) -> None:
    text = ANY.replace("{{loss: {loss}, inputs: [a, b]}}", "{{metric: accuracy, inputs: [a, b]}}")
    step = build_step(text.format(a="{shape: [batch, 2]}", b="{dtype: int64}"), backend)
    scores = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    assert float(np.asarray(step({"a": scores, "b": np.array([1, 0, 0])})["fit"])) == pytest.approx(2 / 3)
    with pytest.raises(SpecError, match=MISFIT) as raised:
        step({"a": scores, "b": np.array([[1], [0], [0]])})
    backends = {"torch": "runtime.backends.torch.execution", "tensorflow": "runtime.backends.tensorflow.execution"}
    meaning, _, _ = import_module(backends[backend]).ERRORS.interpret(ValueError(str(raised.value)))
    assert meaning == "its operands have shapes that do not fit"  # those of a metric here, and of no loss


@pytest.mark.needs("tensorflow")
def test_xla_refuses_too() -> None:
    from runtime import build

    text = ANY.format(a="{shape: [p, q]}", b="{shape: [r, s]}", loss="mse")
    step = build(compile_step(load(text), "tensorflow"), device="cpu", jit_compile=True)
    assert float(np.asarray(step({"a": np.ones((4, 4), "f"), "b": np.zeros((4, 4), "f")})["fit"])) == 1.0
    with pytest.raises(SpecError, match=r"do not fit|1 values, but the requested shape has 2"):
        step({"a": np.ones((4, 1), "f"), "b": np.zeros((4, 4), "f")})


def test_rows_of_a_loss_are_no_single_number_however_little_is_known(backend: str) -> None:
    text = """
graphspec: 1
name: rows
inputs: {x: {}, y: {}}
models: {scale: {parameter: {shape: [], init: ones}, optimizer: sgd}}
ops:
  s: {forward: scale}
  out: {call: mul, inputs: [x, s]}
  fit: {loss: mse, inputs: [out, y], reduction: none}
  step: {update: scale, loss: fit}
"""
    step = build_step(text, backend)
    with pytest.raises(SpecError, match=r"single number|only for scalar outputs"):
        step({"x": np.ones(4), "y": np.zeros(4)})


def test_what_declarations_tell_is_not_looked_at_again(backend: str) -> None:
    known = ANY.format(a="{shape: [batch, 3]}", b="{shape: [batch, 3]}", loss="mse")
    assert "matched" not in build_step(known, backend).source
    assert "matched(a, b)" in build_step(known.replace("[batch, 3]", "[batch, k]", 1), backend).source


@pytest.mark.parametrize(("loss", "pair"), [("cosine", "a, 1.0"), ("kl_div", "1.0, a"), ("nt_xent", "a, 0.5")])
def test_a_number_is_no_row(loss: str, pair: str) -> None:
    text = ANY.format(a="{shape: [batch, 3]}", b="{}", loss=loss).replace("[a, b]", f"[{pair}]")
    with pytest.raises(SpecError, match=r"(?s)E-SHAPE.*found a number"):
        compile_step(load(text))
