"""Micro-batches know where the rows of a value lie once a call has moved them, and tell of calls that mix them."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from compiler.types.calls import ALONG, LINEAR
from graphspec import SpecError, load
from graphspec.declare.library import CALLS
from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: turned
inputs: {x: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: {out: 3, bias: false}}], optimizer: {name: sgd, lr: 0.5}}
ops:
  seen: {forward: net, inputs: x}
  turned: {call: permute, inputs: seen, args: {dims: [1, 0]}}
  squared: {call: square, inputs: turned}
  fit: {loss: mse, inputs: [squared, 1.0]}
  step: {update: net, loss: fit}
outputs: [turned, squared, fit]
"""
WEIGHT = np.linspace(-1, 1, 12).reshape(3, 4)
X = np.random.default_rng(3).normal(size=(5, 4))


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_rows_that_lie_along_another_axis_are_joined_along_it(backend: str, parts: int) -> None:
    step = build_step(SPEC, backend, [f"micro_batches={parts}"])
    set_weights(step, {"net.0.weight": WEIGHT})
    found = {name: np.asarray(value) for name, value in step({"x": X}).items()}
    turned = WEIGHT @ X.T
    assert np.allclose(found["turned"], turned)
    assert np.allclose(found["squared"], turned**2)
    assert np.isclose(found["fit"], np.mean((turned**2 - 1) ** 2))
    slope = 4 * (turned**2 - 1) * turned / turned.size
    assert np.allclose(weights(step)["net.0.weight"], WEIGHT - 0.5 * slope @ X)


@pytest.mark.parametrize(
    ("call", "is_mixing"),
    [
        ("{call: softmax, inputs: turned, args: {axis: 1}}", True),
        ("{call: softmax, inputs: turned, args: {axis: 0}}", False),
        ("{call: logsumexp, inputs: turned, args: {axis: 1, keepdims: true}}", True),
        ("{call: logsumexp, inputs: turned, args: {axis: 0, keepdims: true}}", False),
        ("{call: logsumexp, inputs: seen}", True),
        ("{call: matmul, inputs: [turned, seen]}", False),
        ("{call: matmul, inputs: [seen, turned]}", True),
        ("{call: matmul, inputs: [seen, [[1]]]}".replace("[[1]]", "table"), False),
        ("{call: reshape, inputs: seen, args: {shape: [3, -1]}}", True),
        ("{call: reshape, inputs: seen, args: {shape: [-1]}}", False),
        ("{call: reshape, inputs: turned, args: {shape: [-1, 3]}}", True),
        ('{call: subscript, inputs: seen, args: {at: ":, 0"}}', False),
        ('{call: subscript, inputs: seen, args: {at: "None, :, 1:"}}', False),
        ("{call: subscript, inputs: turned, args: {at: 0}}", False),
        ('{call: subscript, inputs: turned, args: {at: ":, 0"}}', True),
        ('{call: subscript, inputs: seen, args: {at: "::2"}}', True),
        ("{call: subscript, inputs: seen, args: {at: 0}}", True),
        ("{call: norm, inputs: seen, args: {axis: 0, keepdims: true}}", True),
        ("{call: cumsum, inputs: turned}", True),
        ("{call: cumsum, inputs: turned, args: {axis: 0}}", False),
        ("{call: roll, inputs: turned, args: {shifts: 1}}", True),
        ("{call: roll, inputs: seen, args: {shifts: 1}}", False),
        ("{call: pad, inputs: seen, args: {pad: [1, 1]}}", False),
        ("{call: pad, inputs: seen, args: {pad: [1, 1, 0, 0]}}", False),
        ("{call: pad, inputs: seen, args: {pad: [0, 0, 1, 0]}}", True),
        ("{call: pad, inputs: turned, args: {pad: [1, 1]}}", True),
        ('{call: einsum, inputs: [seen, turned], args: {equation: "bi,ib->b"}}', False),
        ('{call: einsum, inputs: [seen, seen], args: {equation: "bi,bj->ij"}}', False),
        ('{call: einsum, inputs: [seen, turned], args: {equation: "bi,jc->ij"}}', True),
        ('{call: einsum, inputs: [seen, table], args: {equation: "bi,ij->bj"}}', False),
        ('{call: einsum, inputs: [turned], args: {equation: "ib->ib"}}', False),
    ],
)
def test_what_mixes_rows_is_told(call: str, is_mixing: bool) -> None:
    text = SPEC.replace("{call: square, inputs: turned}", call).replace(
        "inputs:", "state: {table: {shape: [3, 3]}}\ninputs:", 1
    )
    found = compile_step(load(text, ["micro_batches=2"])).warnings
    told = [each.message for each in found if each.code == "W-COUPLED" and each.message.startswith("'squared'")]
    assert len(told) == is_mixing


def test_of_every_call_along_an_axis_it_is_known_whether_it_mixes() -> None:
    along = {name for name, call in CALLS.items() if any(option.name == "axis" for option in call.options)}
    assert along - LINEAR - ALONG == set()


REDUCED = """
graphspec: 1
name: reduced
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 3]}}
models: {net: {layers: [{linear: {out: 3, bias: false}}], optimizer: {name: sgd, lr: 0.02}}}
ops:
  seen: {forward: net, inputs: x}
  apart: {call: sub, inputs: [seen, y]}
  squared: {call: square, inputs: apart}
CALLS
  step: {update: net, loss: fit ACCUMULATE}
"""
TURNED = "  turned: {call: permute, inputs: squared, args: {dims: [1, 0]}}\n"
STACKED = "  stacked: {call: stack, inputs: [squared, squared]}\n"
ONES = """
  zeros: {call: mul, inputs: [y, 0.0]}
  ones: {call: add, inputs: [zeros, 1.0]}
  across: {call: permute, inputs: ones, args: {dims: [1, 0]}}
  product: {call: matmul, inputs: [across, squared]}
  fit: {call: mean, inputs: product}
"""
FORMS = {
    "sum over turned rows": (
        TURNED + "  rows: {call: sum, inputs: turned, args: {axis: 1}}\n  fit: {call: mean, inputs: rows}",
        lambda n: 1 / 3,
    ),
    "mean over turned rows": (
        TURNED + "  rows: {call: mean, inputs: turned, args: {axis: -1}}\n  fit: {call: sum, inputs: rows}",
        lambda n: 1 / n,
    ),
    "sum over stacked rows": (
        STACKED + "  rows: {call: sum, inputs: stacked, args: {axis: 1}}\n  fit: {call: mean, inputs: rows}",
        lambda n: 1 / 3,
    ),
    "subscript of a sum over rows": (
        TURNED
        + "  rows: {call: sum, inputs: turned, args: {axis: 1}}\n"
        + '  row: {call: subscript, inputs: rows, args: {at: "None, :3"}}\n'
        + "  fit: {call: mean, inputs: row}",
        lambda n: 1 / 3,
    ),
    "product over rows": (ONES.strip("\n"), lambda n: 1 / 3),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("how", ["window", "micro-batches"])
def test_reductions_over_rows_along_another_axis_count_alike(backend: str, name: str, how: str) -> None:
    """Each form is a factor times the sum over all samples of what is squared; steps and parts have unequal rows."""
    calls, factor = FORMS[name]
    text = REDUCED.replace("CALLS", calls).replace(" ACCUMULATE", ", accumulate: 2" if how == "window" else "")
    step = build_step(text, backend, ["micro_batches=2"] if how == "micro-batches" else [])
    set_weights(step, {"net.0.weight": WEIGHT})
    random = np.random.default_rng(5)
    x, y = random.normal(size=(7, 4)), random.normal(size=(7, 3))
    for rows in [slice(0, 4), slice(4, 7)] if how == "window" else [slice(0, 7)]:
        step({"x": x[rows], "y": y[rows]})
    slope = factor(7) * 2 * (x @ WEIGHT.T - y).T @ x
    assert np.allclose(weights(step)["net.0.weight"], WEIGHT - 0.02 * slope, rtol=1e-12)


BOTH = (
    TURNED
    + """  rows: {call: sum, inputs: turned, args: {axis: 1}}
  first: {call: mean, inputs: rows}
  second: {loss: mse, inputs: [seen, y] REDUCED}
  fit: {call: add, inputs: [first, second]}"""
)


def test_a_sum_over_turned_rows_stands_beside_other_sums(backend: str) -> None:
    text = (
        REDUCED.replace("CALLS", BOTH).replace(" ACCUMULATE", ", accumulate: 2").replace(" REDUCED", ", reduction: sum")
    )
    step = build_step(text, backend)
    set_weights(step, {"net.0.weight": WEIGHT})
    random = np.random.default_rng(5)
    x, y = random.normal(size=(7, 4)), random.normal(size=(7, 3))
    for rows in [slice(0, 4), slice(4, 7)]:
        step({"x": x[rows], "y": y[rows]})
    slope = (1 / 3 + 1) * 2 * (x @ WEIGHT.T - y).T @ x
    assert np.allclose(weights(step)["net.0.weight"], WEIGHT - 0.02 * slope, rtol=1e-12)


def test_a_sum_over_turned_rows_is_refused_beside_a_mean() -> None:
    text = REDUCED.replace("CALLS", BOTH).replace(" ACCUMULATE", ", accumulate: 2").replace(" REDUCED", "")
    with pytest.raises(SpecError, match=r"E-COUNTS.*gathers 'rows', a sum, and 'second', a mean"):
        compile_step(load(text))


@pytest.mark.parametrize("other", ["mean, inputs: seen", "mul, inputs: [held, 0.5]"])
def test_a_sum_and_what_is_no_sum_are_refused_below_a_mean_of_both(other: str) -> None:
    """The mean is over places, not over rows: what is added up in it is taken apart all the same."""
    text = f"""
graphspec: 1
name: below
inputs: {{x: {{shape: [batch, 3]}}}}
models:
  net: {{layers: [{{linear: 3}}], optimizer: {{name: sgd, lr: 0.1}}}}
  weight: {{parameter: {{shape: [3], init: ones}}, optimizer: {{name: sgd, lr: 0.1}}}}
ops:
  held: {{forward: weight}}
  seen: {{forward: net, inputs: x}}
  total: {{call: sum, inputs: seen, args: {{axis: 0}}}}
  other: {{call: {other}{", args: {axis: 0}" if "seen" in other else ""}}}
  both: {{call: add, inputs: [total, other]}}
  fit: {{call: mean, inputs: both}}
  step: {{update: [net, weight], loss: fit, accumulate: 2}}
"""
    with pytest.raises(SpecError, match=r"E-COUNTS.*gathers 'total', a sum, and '(other|held)', a mean"):
        compile_step(load(text))


TAKEN = """
graphspec: 1
name: taken
inputs: {x: {shape: [batch, 4]}}
models: {net: {layers: [{linear: {out: 3, bias: false}}], optimizer: {name: sgd, lr: 0.5}}}
ops:
  seen: {forward: net, inputs: x}
  turned: {call: permute, inputs: seen, args: {dims: [1, 0]}}
  taken: {call: subscript, inputs: FROM, args: {at: "AT"}}
  squared: {call: square, inputs: taken}
  fit: {loss: mse, inputs: [squared, 1.0]}
  step: {update: net, loss: fit}
outputs: [taken, squared, fit]
"""


@pytest.mark.sample(3)
@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize(
    ("value", "at"),
    [("seen", ":, 0"), ("seen", ":, None, 1:"), ("seen", "None"), ("turned", "1"), ("turned", "::2, :, None")],
)
def test_a_subscript_that_takes_all_rows_is_the_same_for_micro_batches(
    backend: str, value: str, at: str, parts: int
) -> None:
    step = build_step(TAKEN.replace("FROM", value).replace("AT", at), backend, [f"micro_batches={parts}"])
    set_weights(step, {"net.0.weight": WEIGHT})
    found = {name: np.asarray(value) for name, value in step({"x": X}).items()}
    index = eval(f"np.index_exp[{at}]")
    seen = X @ WEIGHT.T
    taken = (seen if value == "seen" else seen.T)[index]
    assert np.allclose(found["taken"], taken)
    assert np.isclose(found["fit"], np.mean((taken**2 - 1) ** 2))
    slope = np.zeros_like(seen)
    (slope if value == "seen" else slope.T)[index] = 4 * (taken**2 - 1) * taken / taken.size
    assert np.allclose(weights(step)["net.0.weight"], WEIGHT - 0.5 * slope.T @ X)
