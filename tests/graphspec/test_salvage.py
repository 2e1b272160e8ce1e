"""A document with wrong fields is still held to the rules, and nothing is held against what could not be read."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from graphspec import SpecError
from graphspec.expand.includes import include_files
from graphspec.loading import STANDARD, read_spec
from graphspec.read.source import read_document

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_wrong_field_does_not_hide_a_wrong_reference_elsewhere(small, find):
    found = find(small(ops="a: {forward: net, inputs: x, «trian»: true}\nb: {update: «nett», loss: err}"))
    assert found.codes == ("GS040", "GS103")
    assert found.places == found.marks


def test_a_wrong_field_does_not_hide_a_wrong_reference_beside_it(small, find):
    found = find(small(ops="a: {forward: «nett», inputs: «z», «trian»: true}"))
    assert found.codes == ("GS103", "GS104", "GS040")
    assert found.places == found.marks


def test_values_of_a_malformed_op_are_not_called_undeclared(small, find):
    ops = "a: {forward: other, inputs: x, outputs: [mu, {h: {tap: l}}], «trian»: true}\nb: {call: add, inputs: [mu, h]}"
    assert find(small(ops=ops)).codes == ("GS040",)


def test_a_kindless_op_is_not_called_undeclared(small, find):
    assert find(small(ops="a: {«foward»: net}\nb: {call: relu, inputs: a}")).codes == ("GS051",)


def test_a_malformed_model_is_not_called_undeclared_or_without_optimizer(small, find):
    models = "«m»: {class: a:B, layers: [relu]}\nn: {like: m, optimizer: «adm»}"
    ops = "a: {forward: m, inputs: x}\nb: {update: [m, n], loss: err}\nc: {gradient: err, wrt: m}"
    assert find(small(models=models, ops=f"{ops}\nd: {{update: m, gradients: c}}")).codes == ("GS053", "GS043")


def test_a_malformed_input_is_not_called_undeclared(small, find):
    text = small(ops="a: {random: normal, shape: [batch]}").replace("dtype: int64", "dtype: «int»")
    assert find(text).codes == ("GS043",)


def test_one_wrong_layer_does_not_hide_another(small, find):
    models = "m: {layers: [«3», {«lineer»: 4}, {residual: [«7», {«rellu»: {}}]}]}"
    found = find(small(models=models))
    assert found.codes == ("GS055", "GS115", "GS055", "GS115")
    assert found.places == found.marks


def test_an_unreadable_section_makes_no_names_undeclared(find, small):
    text = small().replace("models:\n", "models: «3»\n«modles»:\n")
    found = find(text)
    assert found.codes == ("GS041", "GS040")
    assert found.places == found.marks


def test_wrong_top_level_fields_do_not_hide_what_is_wrong_below(small, find):
    text = small(ops="a: {forward: «nett», inputs: x}", more="«sed»: 3\n").replace("graphspec: 1", "graphspec: «2»")
    found = find(text)
    assert found.codes == ("GS043", "GS103", "GS040")
    assert found.places == found.marks


def test_a_wrong_run_key_does_not_hide_a_wrong_image(small, find):
    found = find(small(more="run: {«stpes»: 3, images: {value: «picture»}}\n"))
    assert found.codes == ("GS040", "GS104")
    assert found.places == found.marks


EXPRESSIONS = (
    'a: {expr: "x « + »"}\nb: {call: mul, inputs: [a, x]}\nc: {update: net, loss: b, start: 3}',
    'a: {expr: "split(x, sections=2«;» axis=1)", outputs: [left, right]}\nb: {call: mul, inputs: [left, right]}',
    'a: {update: net, loss: "mse(out, x«;» 1)"}\nb: {call: add, inputs: [err, 1], after: a}',
    'a: {expr: "x * («1 / 0»)"}\nb: {expr: "a + 1"}',
    'a: {expr: "«2 * 3»"}\nb: {call: add, inputs: [x, a]}',
    'a: {repeat: 2, ops: {c: {expr: "x «^» 2"}, d: {call: neg, inputs: c}}}',
    'a: {expr: "x + 1", «call»: add, inputs: [x, 1]}\nb: {call: neg, inputs: a}',
    'a: {expr: "x + 1", «inputs»: x}\nb: {call: neg, inputs: a}',
)


@pytest.mark.parametrize("ops", EXPRESSIONS)
def test_an_unreadable_expression_hides_nothing_and_nothing_is_held_against_its_value(small, find, ops):
    assert len(find(small(ops=ops)).codes) == 1
    found = find(small(models="m: {layers: [«rellu»]}", ops=f"{ops}\ne: {{forward: net, inputs: «z», «trian»: true}}"))
    assert sorted(found.codes)[:1] + sorted(found.codes)[-1:] == ["GS040", "GS115"]
    assert len(found.codes) == 4
    assert "GS104" in found.codes


def test_in_a_block_too(small, find):
    blocks = 'blocks:\n  fade: {inputs: [at], outputs: [dim], ops: {dim: {expr: "at «^» 2"}, end: {expr: "dim + 1"}}}\n'
    ops = "a: {use: fade, inputs: x}\nb: {use: fade, inputs: a.dim}\nc: {forward: «nett», inputs: b.dim}"
    assert find(small(ops=ops, more=blocks)).codes == ("GS103", "GS068")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_every_expression_of_an_example_can_be_missing(path):
    text = path.read_text(encoding="utf-8")
    spots = [found.end() for found in re.finditer(r'\b(?:expr|loss|gradient): "[^"]+(?=")', text)]
    broken = "".join(f"{text[start:end]} + " for start, end in pairwise([0, *spots])) + text[[0, *spots][-1] :]
    if spots:
        with pytest.raises(SpecError) as raised:
            read_spec(include_files(read_document(broken, name=path.name), path, None, STANDARD))
        assert [each.code for each in raised.value.diagnostics] == ["GS068"] * len(spots)


INDENTED = """graphspec: 1
name: indented
inputs:
  x: {shape: [batch, 8]}
models:
  net:
    layers: [relu, {linear: 8}]
    optimizer: adam
  other:
    like: net
    optimizer: {name: sgd, lr: 0.1}
ops:
  out:
    forward: net
    inputs: x
  again: {forward: other, inputs: out}
  err: {expr: "mse(again, x)"}
  fit:
    update: [net, other]
    loss: err
run:
  steps: 3
  log_every: 1
"""
MOVES = {
    "    optimizer: adam": 2, "    optimizer: {name: sgd, lr: 0.1}": 2, "    inputs: x": 2, "    loss: err": 2,
    "  log_every: 1": 0, "  again: {forward": 4,
}  # fmt: skip
"""Lines, and to which column they slip."""


@pytest.mark.parametrize("line", MOVES)
def test_a_key_one_level_off_is_all_that_is_wrong(find, line):
    key, _, rest = line.strip().partition(":")
    assert find(INDENTED).codes == ()
    found = find(INDENTED.replace(line, f"{' ' * MOVES[line]}«{key}»:{rest}", 1))
    assert found.codes == ("GS040",)
    assert found.places == found.marks
    assert found.diagnostics[0].label == f"indented too {'much' if MOVES[line] > 2 else 'little'}"


def test_names_of_fields_are_names_of_ops_too(small, find):
    assert find(small(ops="loss: {loss: mse, inputs: [out, out]}\nvalue: {expr: 'out + 1'}")).codes == ()
