"""The names that PyTorch gives options of calls and losses: read, and rendered under the names of the tables."""

from __future__ import annotations

import pytest

from graphspec import SpecError, dump, load

SPEC = """
graphspec: 1
name: names
inputs: {x: {shape: [batch, 4, 5]}, y: {shape: [batch, 4], dtype: int64}}
ops:
  m: {call: mean, inputs: x, args: {dim: 1, keepdim: true}}
  s: {call: softmax, inputs: x, args: {dim: -1}}
  p: {call: permute, inputs: x, args: {dims: [1, 0, 2]}}
  fit: {loss: cross_entropy, inputs: [x, y], args: {dim: -1}}
  mine: {call: "pkg.mod:fn", inputs: x, args: {dim: 1}}
outputs: [m, s, p, fit, mine]
"""


def test_both_names_are_one_option_and_render_as_one() -> None:
    own = SPEC.replace("dim: -1", "axis: -1").replace("{dim: 1, keepdim", "{axis: 1, keepdims")
    assert dump(load(SPEC)) == dump(load(own)) == dump(load(dump(load(SPEC))))


def test_arguments_of_a_function_of_ones_own_keep_their_names() -> None:
    assert "inputs: x, args: {dim: 1}}" in dump(load(SPEC))


@pytest.mark.parametrize("args", ["{dim: 1, «axis»: 1}", "{keepdims: true, «keepdim»: true}"])
def test_an_option_is_written_once(args: str) -> None:
    text = SPEC.replace("{dim: 1, keepdim: true}", args.replace("«", "").replace("»", ""))
    with pytest.raises(SpecError, match="repeats another key") as raised:
        load(text)
    (found,) = raised.value.diagnostics
    assert found.code == "GS053"
    line = text.splitlines()[found.span.line - 1]
    assert line[found.span.column - 1 :].startswith(args.partition("«")[2].partition("»")[0])
