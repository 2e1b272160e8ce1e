"""Minima, maxima, powers, comparisons, masks and subscripts: as PyTorch computes and differentiates them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build, emit
from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: twins
inputs:
  x: {shape: [batch, 4]}
  reward: {shape: [batch]}
  done: {shape: [batch], dtype: bool}
  turn: {shape: [batch], dtype: int64}
models: {twins: {layers: [{linear: {out: 2, bias: false}}], optimizer: {name: sgd, lr: 0.05}}}
ops:
  q: {forward: twins, inputs: x}
  q_1: {call: subscript, inputs: q, args: {at: ":, 0"}}
  q_2: {call: subscript, inputs: q, args: {at: ":, -1"}}
  least: {call: minimum, inputs: [q_1, q_2]}
  goal: {call: stop, inputs: least}
  goes_on: {call: logical_not, inputs: done}
  is_low: {call: less, inputs: [q_1, 0.1]}
  is_first: {call: equal, inputs: [turn, 0]}
  is_taken: {call: logical_and, inputs: [goes_on, is_low]}
  is_chosen: {call: logical_or, inputs: [is_taken, is_first]}
  next: {call: mul, inputs: [goal, goes_on]}
  aim: {call: add, inputs: [reward, next]}
  apart: {call: sub, inputs: [q_1, aim]}
  squares: {call: pow, inputs: [apart, 2]}
  bent: {call: pow, inputs: [1.5, q_2]}
  kept: {call: where, inputs: [is_chosen, squares, bent]}
  at_least: {call: maximum, inputs: [kept, 0.2]}
  weight: {call: pow, inputs: [turn, 2]}
  weighed: {call: mul, inputs: [at_least, weight, least]}
  cost: {call: mean, inputs: weighed}
  step: {update: twins, loss: cost}
outputs: [cost, is_chosen, weight, least, next]
"""
WEIGHT = np.array([[0.5, -0.2, 0.1, 0.3], [0.2, 0.4, -0.3, 0.1]])
RANDOM = np.random.default_rng(8)
BATCH = {
    "x": RANDOM.normal(size=(6, 4)),
    "reward": RANDOM.normal(size=6),
    "done": np.array([True, False, False, True, False, False]),
    "turn": np.array([0, 1, 2, 3, 0, 2]),
}


def train_by_hand(steps: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the weight after some steps, and what the last one computed."""
    weight = torch.tensor(WEIGHT, requires_grad=True)
    x, reward, done, turn = (torch.tensor(value) for value in BATCH.values())
    found: dict[str, torch.Tensor] = {}
    for _ in range(steps):
        q = x @ weight.T
        least = torch.minimum(q[:, 0], q[:, 1])
        chosen = (~done & (q[:, 0] < 0.1)) | (turn == 0)
        next = least.detach() * ~done
        kept = torch.where(chosen, (q[:, 0] - (reward + next)) ** 2, 1.5 ** q[:, 1])
        cost = (torch.maximum(kept, torch.tensor(0.2, dtype=torch.float64)) * turn**2 * least).mean()
        found = {"cost": cost, "is_chosen": chosen, "weight": turn**2, "least": least, "next": next}
        (slope,) = torch.autograd.grad(cost, weight)
        with torch.no_grad():
            weight -= 0.05 * slope
    return weight.detach().numpy(), {name: value.detach().numpy() for name, value in found.items()}


@pytest.mark.parametrize("parts", [1, 2])
def test_three_steps_are_those_of_a_loop_of_pytorch(backend: str, parts: int) -> None:
    step = build_step(SPEC, backend, [f"micro_batches={parts}"])
    set_weights(step, {"twins.0.weight": WEIGHT})
    for _ in range(3):
        found = {name: step.numpy(value) for name, value in step(BATCH).items()}
    weight, expected = train_by_hand(3)
    assert np.allclose(weights(step)["twins.0.weight"], weight, rtol=1e-12)
    for name, value in expected.items():
        assert np.allclose(found[name], value, rtol=1e-12), name
    assert (found["is_chosen"].dtype, found["weight"].dtype) == (np.bool_, np.int64)


def test_a_build_for_debugging_and_other_modes_give_the_same(backend: str) -> None:
    plain = build_step(SPEC, backend)
    checked = build(plain.plan, device="cpu", dtype="float64", debug=True)
    for step in (plain, checked):
        set_weights(step, {"twins.0.weight": WEIGHT})
    for mode in ("train", "eval"):
        one, other = plain(BATCH, mode), checked(BATCH, mode)
        assert one.keys() == other.keys()
        for name in one:
            assert np.array_equal(plain.numpy(one[name]), checked.numpy(other[name])), name


def test_a_mode_is_exported(backend: str, tmp_path: Path) -> None:
    step = build_step(SPEC, backend, dtype="float32")
    assert step.export(tmp_path / "out", mode="eval", values=["is_chosen", "at_least", "weight"]).program is not None


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_step_of_lower_precision_compares_what_its_models_give(backend: str, precision: str) -> None:
    step = build_step(SPEC, backend, [f"precision={precision}"], dtype="float32")
    set_weights(step, {"twins.0.weight": WEIGHT})
    single = {name: value.astype(np.float32) if value.dtype == np.float64 else value for name, value in BATCH.items()}
    found = {name: step.numpy(value) for name, value in step(single).items()}
    _, expected = train_by_hand(1)
    assert np.array_equal(found["is_chosen"], expected["is_chosen"])
    assert np.allclose(found["cost"], expected["cost"], rtol=0.05)


GATED = """
graphspec: 1
name: gated
inputs: {x: {shape: [batch, 4]}}
models: {net: {layers: [{linear: {out: 2, bias: false}}], optimizer: {name: sgd, lr: 0.05}}}
ops:
  y: {forward: net, inputs: x}
  level: {call: mean, inputs: y}
  is_low: {call: less, inputs: [level, LIMIT]}
  is_high: {call: logical_not, inputs: is_low}
  doubled: {call: mul, inputs: [level, 2.0]}
  cost: {call: where, inputs: [is_low, doubled, level]}
  step: {update: net, loss: cost}
outputs: [cost, is_low, is_high]
"""


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize(("limit", "factor"), [(10.0, 2.0), (-10.0, 1.0)])
def test_a_mask_made_of_a_mean_is_made_of_that_of_the_whole_batch(
    backend: str, parts: int, limit: float, factor: float
) -> None:
    step = build_step(GATED.replace("LIMIT", str(limit)), backend, [f"micro_batches={parts}"])
    set_weights(step, {"net.0.weight": WEIGHT})
    found = {name: step.numpy(value) for name, value in step({"x": BATCH["x"]}).items()}
    assert np.isclose(found["cost"], factor * (BATCH["x"] @ WEIGHT.T).mean())
    assert (found["is_low"], found["is_high"]) == (limit > 0, limit < 0)
    slope = factor * np.tile(BATCH["x"].mean(axis=0) / 2, (2, 1))
    assert np.allclose(weights(step)["net.0.weight"], WEIGHT - 0.05 * slope)


SLOPE = """
graphspec: 1
name: slope
inputs: {x: {shape: [3]}, y: {shape: [3]}}
ops:
  z: {call: CALL, inputs: INPUTS}
  all: {call: sum, inputs: z}
  slope: {gradient: all, wrt: WRT}
outputs: [z, slope]
"""
X, Y = np.array([-1.0, 0.0, 2.0]), np.array([-1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("call", "inputs", "wrt", "expected"),
    [
        ("minimum", "[x, y]", "x", [0.5, 1.0, 0.0]),
        ("minimum", "[x, y]", "y", [0.5, 0.0, 1.0]),
        ("maximum", "[x, y]", "x", [0.5, 0.0, 1.0]),
        ("maximum", "[x, 0]", "x", [0.0, 0.5, 1.0]),
        ("maximum", "[0.0, x]", "x", [0.0, 0.5, 1.0]),
        ("minimum", "[x, 2.0]", "x", [1.0, 1.0, 0.5]),
        ("pow", "[x, 2]", "x", [-2.0, 0.0, 4.0]),
        ("pow", "[x, 3.0]", "x", [3.0, 0.0, 12.0]),
        ("pow", "[x, 1]", "x", [1.0, 1.0, 1.0]),
        ("pow", "[x, 0]", "x", [0.0, 0.0, 0.0]),
        ("pow", "[2.0, x]", "x", list(2**X * np.log(2))),
        ("pow", "[x, y]", "x", [-1.0, 1.0, 1.0]),
    ],
)
def test_equal_operands_share_the_gradient_and_powers_have_theirs(
    backend: str, call: str, inputs: str, wrt: str, expected: list[float]
) -> None:
    step = build_step(SLOPE.replace("CALL", call).replace("INPUTS", inputs).replace("WRT", wrt), backend)
    found = step({"x": X, "y": Y})
    assert np.allclose(step.numpy(found["slope"]), expected, rtol=1e-14)
    function = {"minimum": np.minimum, "maximum": np.maximum, "pow": np.power}[call]
    assert np.array_equal(step.numpy(found["z"]), function(*eval(inputs, {"x": X, "y": Y})))


TYPES = """
graphspec: 1
name: types
inputs: {n: {shape: [batch], dtype: TYPE}, x: {shape: [batch], dtype: float32}, m: {shape: [batch], dtype: bool}}
ops:
  z: {call: CALL, inputs: INPUTS}
outputs: z
"""
OPERANDS = {
    "n": np.array([1, 2, 3]),
    "x": np.array([0.5, 2.0, -1.0], np.float32),
    "m": np.array([True, False, True]),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
@pytest.mark.parametrize(
    ("call", "inputs", "expected"),
    [
        ("pow", "[n, 2]", [1, 4, 9]),
        ("pow", "[n, 0.5]", [1, 2**0.5, 3**0.5]),
        ("pow", "[2.0, n]", [2, 4, 8]),
        ("pow", "[x, n]", [0.5, 4, -1]),
        ("pow", "[m, 2]", [1, 0, 1]),
        ("minimum", "[n, 2]", [1, 2, 2]),
        ("minimum", "[n, x]", [0.5, 2, -1]),
        ("maximum", "[1.5, n]", [1.5, 2, 3]),
        ("maximum", "[m, n]", [1, 2, 3]),
        ("less", "[n, x]", [False, False, False]),
        ("less_equal", "[n, x]", [False, True, False]),
        ("greater", "[2, n]", [True, False, False]),
        ("greater_equal", "[n, 1.5]", [False, True, True]),
        ("equal", "[2.0, n]", [False, True, False]),
        ("equal", "[m, true]", [True, False, True]),
        ("not_equal", "[m, n]", [False, True, True]),
        ("logical_and", "[m, true]", [True, False, True]),
        ("logical_or", "[false, m]", [True, False, True]),
    ],
)
def test_types_mix_as_in_pytorch(backend: str, dtype: str, call: str, inputs: str, expected: list[float]) -> None:
    text = TYPES.replace("TYPE", dtype).replace("CALL", call).replace("INPUTS", inputs)
    step = build_step(text, backend, dtype="float32")
    found = step.numpy(step({**OPERANDS, "n": OPERANDS["n"].astype(dtype)})["z"])
    assert np.allclose(found, expected)
    assert str(found.dtype) == step.plan.types["z"].dtype


REFUSED = [
    ("pow", "[n, -1]", "the exponent -1, expected a number from 0 up"),
    ("pow", "[2, n]", "multiply it by 1.0 before"),
    ("less", "[m, m]", "expected numbers for `less`"),
    ("logical_and", "[m, x]", "dtype float32, expected a mask"),
    ("logical_not", "n", "`{call: greater, inputs: [x, 0]}` is a mask"),
]


@pytest.mark.parametrize(("call", "inputs", "message"), REFUSED)
def test_what_has_no_meaning_is_refused(call: str, inputs: str, message: str) -> None:
    text = TYPES.replace("TYPE", "int64").replace("CALL", call).replace("INPUTS", inputs)
    with pytest.raises(SpecError) as error:
        compile_step(load(text))
    (found,) = error.value.diagnostics
    assert found.code == "E-SHAPE"
    assert message in f"{found.message}; {found.help}"


WRITTEN = {
    "torch": (
        "q_1 = q[:, 0]",
        "q_2 = q[:, -1]",
        "least = torch.minimum(q_1, q_2)",
        "goes_on = ~done",
        "is_low = q_1 < 0.1",
        "is_first = turn == 0",
        "is_taken = goes_on & is_low",
        "is_chosen = is_taken | is_first",
        "squares = apart ** 2",
        "bent = 1.5 ** q_2",
        "at_least = maximum(kept, 0.2)",
        "weight = turn ** 2",
    ),
    "tensorflow": (
        "q_1 = q[:, 0]",
        "least = minimum(q_1, q_2)",
        "goes_on = ~done",
        "is_low = q_1 < 0.1",
        "is_first = equal(turn, 0)",
        "is_taken = goes_on & is_low",
        "is_chosen = is_taken | is_first",
        "next_ = mul(goal, goes_on)",
        "aim = reward + next_",
        "squares = apart ** 2",
        "bent = 1.5 ** q_2",
        "kept = tf.where(is_chosen, squares, bent)",
        "at_least = maximum(kept, 0.2)",
        "weight = power(turn, 2)",
    ),
}


def test_operators_are_written_where_they_mean_the_call(backend: str) -> None:
    source = emit(compile_step(load(SPEC), backend))
    train = source.split("def train", 1)[1].split("\ndef ", 1)[0]
    for line in WRITTEN[backend]:
        assert f"    {line}\n" in train or f"    {line}  #" in train, line


def test_tensorflows_own_minimum_is_called_where_no_gradient_passes() -> None:
    source = emit(compile_step(load(SPEC.replace("at_least, weight, least]", "at_least, weight]")), "tensorflow"))
    assert "least = tf.minimum(q_1, q_2)" in source
