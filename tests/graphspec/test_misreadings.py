"""What is said of PyTorch in expressions: each remedy, followed, is accepted, and names only functions there are."""

from __future__ import annotations

import re

import pytest

from compiler import compile_step
from graphspec import SpecError, load
from graphspec.expand.formulas import SIGNATURES
from graphspec.read import arithmetic, misreadings

SPEC = """graphspec: 1
name: methods
inputs:
  x: {shape: [batch, 4]}
  y: {shape: [batch, 4]}
  w: {shape: [4, 4]}
  label: {shape: [batch], dtype: int64}
  place: {shape: [batch, 2], dtype: int64}
models: {net: {layers: [{linear: 4}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  fit: {update: net, loss: "mse(out, y)"}
"""
GIVEN = {
    **{name: "y" for name, here in misreadings._CALLED.items() if SIGNATURES[here][0] != 1},
    **dict.fromkeys(("bmm", "dot", "mm"), "w"),
    "binary_cross_entropy": "sigmoid(y)",
    "nll_loss": "label",
    "gather": "1, place",
    "masked_fill": "x > 0, 0.0",
    "clamp": "0, 1",
    "clip_by_value": "-1.0, 1.0",
}
"""The arguments that methods of `x` need."""
CALLS = [
    *(f"x.{name}({GIVEN.get(name, '')})" for name in (*misreadings._CALLED, *misreadings._WRITTEN)),
    *(f"x.{name}()" for name in (*misreadings._SHAPED, *sorted(misreadings._NEEDLESS))),
    *(f"x.{name}" for name in ("T", "mT", "data")),
    *("x.view(-1)", "x.view(2, -1)", "x.reshape((2, -1))", "x.permute(1, 0)", "x.expand(-1, 4)", "x.transpose(0, 1)"),
    *("x.mean(1)", "x.sum(dim=1, keepdim=True)", "(x + y).mean(-1)", "x.norm(2, 1)", "x.clamp_(0, 1)", "x.relu_()"),
    *("(x + y).rsqrt()", "(x > 0).float()", "F.leaky_relu(x, 0.2)", "x.clamp_min(0.5)", "torch.cat([x, y], 1)"),
    *("torch.nn.functional.mse_loss(x, y)", "F.one_hot(label, 3)", "torch.stack((x, y), dim=0)", "tf.reduce_mean(x)"),
    *("F.cross_entropy(x, label)", "torch.where(x > 0, x, 0.0)", "np.exp(-x)", "F.pad(x, (1, 1))", "x.roll(1, 0)"),
]


def find_help(expression):
    """Return what the only problem of an expression says to do."""
    with pytest.raises(SpecError) as raised:
        load(f'{SPEC}  told: {{expr: "{expression}"}}\n')
    (found,) = raised.value.diagnostics
    assert found.code == "GS068"
    return found.help


@pytest.mark.parametrize("expression", CALLS)
def test_what_is_said_can_be_followed(expression):
    help = find_help(expression)
    written = re.search("write `([^`]+)`", help)
    if written is None:
        assert help == f"leave `{expression.removeprefix('x')}` out"
    else:
        compile_step(load(f'{SPEC}  told: {{expr: "{written[1]}"}}\noutputs: [told]\n'))


@pytest.mark.parametrize("name", [*misreadings._ADVICE, "frobnicate", "round", "topq", "float32"])
def test_no_function_is_named_that_there_is_not(name):
    help = find_help(f"x.{name}(1)")
    assert set(re.findall(r"(\w+)\(", help)) <= SIGNATURES.keys()
    assert re.search(rf"write `{name}\b", help) is None


@pytest.mark.parametrize(("written", "said"), [("math.sqrt(n)", "write `sqrt(n)`"), ("math.tanh(n)", "no function")])
def test_the_functions_of_numbers_are_others(written, said):
    with pytest.raises(SpecError) as raised:
        load(f'{SPEC}vars: {{n: 2, m: "${{= {written}}}"}}\n')
    (found,) = raised.value.diagnostics
    assert said in found.help
    assert set(re.findall(r"(\w+)\(", found.help)) <= arithmetic.FUNCTIONS.keys()


def test_a_loss_with_rows_is_told_to_be_made_a_number_where_it_is_written():
    text = SPEC.replace("mse(out, y)", "out - 1")
    with pytest.raises(SpecError) as raised:
        compile_step(load(text))
    (found,) = raised.value.diagnostics
    remedy = 'loss: "mean(out - 1)"'
    assert f"`{remedy}`" in found.help
    compile_step(load(text.replace('loss: "out - 1"', remedy)))
