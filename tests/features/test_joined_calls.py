"""Calls of a model become one call on the rows of all, where it treats every row alone and gradients do not differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from compiler import Plan, compile_step
from graphspec import load
from runtime import emit
from runtime.data.inspection import find_labels
from tests.features.steps import build_step, weights

CRITIC = "[{linear: 6}, tanh, {linear: 1}]"
GAN = """
graphspec: 1
name: gan
inputs: {real: {shape: [batch, 3]}, z: {shape: [batch, 2]}}
models:
  generator: {layers: [{linear: 5}, tanh, {linear: 3}], optimizer: {name: adam, lr: 0.01}}
  critic: {layers: CRITIC, optimizer: {name: adam, lr: 0.02}}
ops:
  fake: {forward: generator, inputs: z}
  on_real: {forward: critic, inputs: real}
  on_fake: {forward: critic, inputs: fake}
  c_loss: {expr: "bce_with_logits(on_real, 1.0) + 0.5 * bce_with_logits(on_fake, 0.0)"}
  step_c: {update: critic, loss: c_loss}
  judged: {forward: critic, inputs: fake, after: step_c}
  g_loss: {loss: bce_with_logits, inputs: [judged, 1.0]}
  step_g: {update: generator, loss: g_loss}
outputs: [c_loss, g_loss, on_fake]
"""
TWO = """
graphspec: 1
name: two
inputs: {a: {shape: [batch, 4]}, b: {shape: [batch, 4]}}
models: {net: {layers: LAYERS, optimizer: {name: sgd, lr: 0.1}}}
ops:
  one: {forward: net, inputs: a}
  other: {forward: net, inputs: b}
  loss: {expr: "mse(one, 1.0) + 2 * mse(other, 0.0)"}
  step: {update: net, loss: loss}
"""
STOPPED = '  other_stopped: {expr: "stop(other)"}\n'
FIRST = "  fit: {loss: mse, inputs: [one, 0.5]}\n  first: {update: net, loss: fit}\n"
CROSSED = """
graphspec: 1
name: crossed
inputs: {a: {shape: [batch, 4]}}
models: {p: {layers: LAYERS}, q: {layers: LAYERS}}
ops:
  p_first: {forward: p, inputs: a}
  q_first: {forward: q, inputs: a}
  from_q: {call: stop, inputs: q_first}
  from_p: {call: stop, inputs: p_first}
  p_later: {forward: p, inputs: from_q}
  q_later: {forward: q, inputs: from_p}
  loss: {expr: "mse(p_first, 1.0) + mse(q_first, 0.5) + mse(p_later, 0.0) + mse(q_later, 2.0)"}
  step: {update: [p, q], loss: loss, optimizer: {name: sgd, lr: 0.1}}
outputs: [loss]
"""
PLAIN = "[{linear: 6}, tanh, {linear: 4}]"


def read(text: str, layers: str = PLAIN) -> str:
    """Return a spec with the layers of its model filled in."""
    return text.replace("CRITIC", CRITIC).replace("LAYERS", layers)


def compiled(text: str, *settings: str) -> Plan:
    """Return the plan of a spec."""
    return compile_step(load(read(text), settings))


def find_joined(plan: Plan) -> set[str]:
    """Return the calls that are joined in train mode, as `one+other`."""
    instructions = [each for function in plan.program.mode("train").functions for each in function.instructions]
    return {"+".join(each.ops) for each in instructions if each.called and len(each.ops) > 1}


def draw(rows: int, *sizes: int) -> list[np.ndarray]:
    """Return arrays of normal numbers, each with some rows."""
    noise = np.random.default_rng(7)
    return [noise.normal(size=(rows, size)) for size in sizes]


def test_a_loop_by_hand_with_two_calls_gives_the_same(backend: str) -> None:
    """The hand-written step calls its critic for real and for generated rows apart: equal to the order of sums."""
    step = build_step(read(GAN), backend)
    assert find_joined(compile_step(load(read(GAN)), backend)) == {"on_real+on_fake"}
    start = {name: torch.tensor(value) for name, value in weights(step).items()}
    tensors = {name: value.clone().requires_grad_() for name, value in start.items()}

    def call(model: str, x: torch.Tensor) -> torch.Tensor:
        """Return what a model makes of some rows."""
        hidden = torch.tanh(x @ tensors[f"{model}.0.weight"].T + tensors[f"{model}.0.bias"])
        return hidden @ tensors[f"{model}.2.weight"].T + tensors[f"{model}.2.bias"]

    def pick(model: str) -> list[torch.Tensor]:
        """Return the weights of a model."""
        return [value for name, value in tensors.items() if name.startswith(model)]

    rules = {"critic": torch.optim.Adam(pick("critic"), 0.02), "generator": torch.optim.Adam(pick("generator"), 0.01)}
    for number in range(4):
        real, z = (values + number for values in draw(5, 3, 2))
        fake = call("generator", torch.tensor(z))
        judged = call("critic", fake.detach())
        c_loss = softplus(-call("critic", torch.tensor(real))).mean() + 0.5 * softplus(judged).mean()
        for value, gradient in zip(pick("critic"), torch.autograd.grad(c_loss, pick("critic")), strict=True):
            value.grad = gradient
        rules["critic"].step()
        score = call("critic", fake)
        g_loss = binary_cross_entropy_with_logits(score, torch.ones_like(score))
        for value, gradient in zip(pick("generator"), torch.autograd.grad(g_loss, pick("generator")), strict=True):
            value.grad = gradient
        rules["generator"].step()
        found = step({"real": real, "z": z})
        np.testing.assert_allclose(np.asarray(found["c_loss"]), c_loss.detach().numpy(), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(found["g_loss"]), g_loss.detach().numpy(), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(found["on_fake"]), judged.detach().numpy(), rtol=1e-11)
    for name, value in weights(step).items():
        np.testing.assert_allclose(value, tensors[name].detach().numpy(), rtol=1e-11, atol=1e-13, err_msg=name)


def test_the_plan_says_which_calls_are_one_and_why() -> None:
    """The decision is listed, both ops are explained by the one line, and the emitted code calls the model once."""
    plan = compiled(GAN)
    assert "MERGE        on_real and on_fake are one call of critic, on the rows of both" in plan.text()
    for op in ("on_real", "on_fake"):
        assert "on_real, on_fake = critic(concat(real, fake))" in plan.explain(op)
    train = emit(plan).split("def eval_step")[0]
    assert "on_real, on_fake = critic(torch.cat([real, fake.detach()])).split(len(real))" in train
    assert train.count("critic(") == 2  # and once more for the generator


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        (TWO, "[{linear: 6}, batch_norm, {linear: 4}]"),
        (TWO, "[{linear: 6}, {dropout: 0.5}, {linear: 4}]"),
        (TWO, "[{linear: 6}, {softmax: {axis: 0}}, {linear: 4}]"),
        (TWO, "[{linear: 4}, tanh]"),
        (TWO, "[{linear: 40000}, tanh, {linear: 4}]"),
        (TWO.replace("inputs: b}", "inputs: one}"), PLAIN),
        (TWO.replace("b: {shape: [batch, 4]}", "b: {shape: [rows, 4]}"), PLAIN),
        (TWO.replace("mse(one, 1.0) + 2 * mse(other, 0.0)", "mse(one, other_stopped)") + STOPPED, PLAIN),
        (TWO.replace("inputs: b}", "inputs: b, after: first}").replace("mse(one, 1.0) + ", "") + FIRST, PLAIN),
        (TWO + "  bent: {gradient: loss, wrt: [a]}\noutputs: [bent]\n", PLAIN),
        (TWO + "join_calls: false\n", PLAIN),
    ],
    ids=[
        "statistics", "draws", "softmax over rows", "one layer", "large results", "one after the other", "other rows",
        "no gradient", "an update between", "a gradient by one input", "asked not to",
    ],
)  # fmt: skip
def test_calls_stay_apart(text: str, layers: str) -> None:
    """Each of these differs in a point that matters from two calls that are joined."""
    assert find_joined(compile_step(load(read(TWO)))) == {"one+other"}
    assert find_joined(compile_step(load(read(text, layers)))) == set()


def test_two_pairs_that_wait_for_each_other_are_not_both_joined() -> None:
    """Each pair has a call that needs one of the other pair: joined both, each would wait for the other."""
    plan = compiled(CROSSED)
    assert len(find_joined(plan)) == 1
    (a,) = draw(3, 4)
    joined, apart = (build_step(read(CROSSED), "torch", [f"join_calls={each}"]) for each in ("true", "false"))
    for _ in range(3):
        found = [np.asarray(step({"a": a})["loss"]) for step in (joined, apart)]
        np.testing.assert_allclose(*found, rtol=1e-12)


@pytest.mark.parametrize("count", [2, 3])
def test_micro_batches_join_their_own_calls(backend: str, count: int) -> None:
    """Calls of one micro-batch are joined, those of several are not; the step is that of the whole batch."""
    settings = [f"micro_batches={count}"]
    assert find_joined(compile_step(load(read(GAN), settings), backend)) == {"on_real+on_fake"}
    parted, whole = build_step(read(GAN), backend, settings), build_step(read(GAN), backend, ["join_calls=false"])
    for number in range(3):
        real, z = (values * (number + 1) for values in draw(7, 3, 2))
        one, other = (step({"real": real, "z": z}) for step in (parted, whole))
        for name in ("c_loss", "g_loss", "on_fake"):
            np.testing.assert_allclose(np.asarray(one[name]), np.asarray(other[name]), rtol=1e-11)
    for name, value in weights(whole).items():
        np.testing.assert_allclose(weights(parted)[name], value, rtol=1e-11, atol=1e-13, err_msg=name)


TABLE = """
graphspec: 1
name: two
inputs: {a: {shape: [batch, 2], dtype: int64}, b: {shape: [batch, 2], dtype: int64}}
models:
  net:
    layers: [{embedding: {count: 7, size: 4, sparse: true}}, flatten, {linear: 6}, tanh, {linear: 4}]
    optimizer: {name: adagrad, lr: 0.1}
ops:
  one: {forward: net, inputs: a, mode: train}
  other: {forward: net, inputs: b, mode: train}
  loss: {expr: "mse(one, 1.0) + 2 * mse(other, 0.0)", mode: train}
  step: {update: net, loss: loss}
outputs: [loss]
"""


def test_gradients_of_a_table_are_rows_of_both_calls(backend: str) -> None:
    """A table's sparse gradient has the rows that either call looked up, each once."""
    assert find_joined(compile_step(load(TABLE), backend)) == {"one+other"}
    joined, apart = (build_step(TABLE, backend, [f"join_calls={each}"]) for each in ("true", "false"))
    for number in range(4):
        indices = np.random.default_rng(number).integers(0, 7, (2, 3, 2))
        for step in (joined, apart):
            step({"a": indices[0], "b": indices[1]})
    for name, value in weights(apart).items():
        np.testing.assert_allclose(weights(joined)[name], value, rtol=1e-12, atol=1e-14, err_msg=name)


def test_indices_of_every_call_are_checked() -> None:
    """What `check_data` knows of a table holds for the inputs of all of its calls."""
    found = {label.input: (label.count, label.use) for label in find_labels(compiled(TABLE))}
    named = {"a": "one", "b": "other"}
    assert found == {name: (7, f"the indices of an embedding in '{op}'") for name, op in named.items()}


def test_rows_that_differ_are_cut_where_they_meet() -> None:
    """The emitted file does not check its batch: of two inputs with other numbers of rows each gets its own results."""
    found: list[torch.Tensor] = []
    for each in ("true", "false"):
        names: dict[str, Any] = {}
        exec(emit(compiled(GAN, f"join_calls={each}")), names)
        names["build"](dtype=torch.float64)
        real, z = torch.tensor(draw(6, 3)[0]), torch.tensor(draw(4, 2)[0])
        found.append(names["train_step"]({"real": real, "z": z})["on_fake"])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-14)
    assert len(found[0]) == 4


GATHERED = """
graphspec: 1
name: gathered
inputs: {a: {shape: [batch, 4]}, b: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: 5}, tanh, {linear: 3}], optimizer: {name: sgd, lr: 0.1}}
  head: {layers: [{linear: 3}], optimizer: {name: sgd, lr: 0.1}}
ops:
  one: {forward: net, inputs: a}
  other: {forward: net, inputs: b}
  top: {forward: head, inputs: one}
  all_other: {call: all_gather, inputs: other}
  loss: {expr: "mean(square(top * all_other))"}
  step: {update: [net, head], loss: loss}
  by_one: {gradient: loss, wrt: one}
  slope: {gradient: loss, wrt: all_other}
outputs: [slope, by_one]
"""


def test_a_gradient_by_gathered_rows_of_a_joined_call_does_not_run_through_the_others() -> None:
    assert find_joined(compiled(GATHERED)) == {"one+other"}
    step = build_step(GATHERED, "torch")
    before = {name: torch.tensor(value) for name, value in weights(step).items()}
    a, b = (np.random.default_rng(seed).normal(size=(5, 4)) for seed in (0, 1))
    slope = step({"a": a, "b": b})["slope"]  # taken after the head was overwritten
    hidden = (torch.tanh(torch.tensor(x) @ before["net.0.weight"].T + before["net.0.bias"]) for x in (a, b))
    one, other = (x @ before["net.2.weight"].T + before["net.2.bias"] for x in hidden)
    top = one @ before["head.0.weight"].T + before["head.0.bias"]
    torch.testing.assert_close(slope, 2 * top.square() * other / other.numel(), rtol=1e-12, atol=1e-14)
