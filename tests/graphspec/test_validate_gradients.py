"""Gradient sets stand where sets are wanted and nowhere else, and cover the models they are used for."""

from __future__ import annotations

import pytest

GRADIENT = "g: {gradient: err, wrt: net}\n"


@pytest.mark.parametrize(
    "line",
    [
        "a: {update: net, gradients: g}",
        "a: {transform: clip_norm, inputs: g, args: {norm: 1}}\nb: {update: net, gradients: a}",
        "a: {call: add, inputs: [g, g]}\nb: {update: net, gradients: a}",
        "a: {call: mul, inputs: [g, 0.5]}\nb: {update: net, gradients: a}",
        "a: {call: sub, inputs: [g, g]}\nb: {update: net, gradients: a}",
        "a: {transform: pcgrad, inputs: [g, g, g]}\nb: {update: net, gradients: a}",
        "a: {transform: my.mod:fn, inputs: [g, g]}\nb: {update: net, gradients: a}",
    ],
)
def test_sets_flow_through_transforms_and_sums_into_updates(small, find, line):
    assert find(small(ops=GRADIENT + line)).codes == ()


def test_the_listing_order_of_ops_on_sets_does_not_matter(small, find):
    lines = "b: {update: net, gradients: a2}\na2: {call: add, inputs: [a1, a1]}\na1: {call: mul, inputs: [g, 2.0]}\n"
    assert find(small(ops=lines + GRADIENT)).codes == ()


@pytest.mark.parametrize(
    "line",
    [
        "a: {update: net, gradients: «err»}",
        "a: {transform: clip_norm, inputs: «out», args: {norm: 1}}",
        "a: {forward: other, inputs: «g»}",
        "a: {call: relu, inputs: «g»}",
        "a: {loss: mse, inputs: [«g», out]}",
        "a: {update: net, loss: «g»}",
        "a: {call: sub, inputs: [g, «1.0»]}\nb: {update: net, gradients: a}",
        "a: {call: add, inputs: [«1.0», g]}\nb: {update: net, gradients: a}",
    ],
)
def test_a_tensor_is_no_set_and_a_set_no_tensor(small, find, line):
    found = find(small(ops=GRADIENT + line))
    assert found.codes == ("GS117",)
    assert found.places == found.marks


def test_a_set_cannot_be_returned(small, find):
    found = find(small(ops=GRADIENT, more="outputs: [«g»]\n"))
    assert found.codes == ("GS117",)


def test_the_gradient_of_a_value_is_a_tensor(small, find):
    ops = "s: {call: sum, inputs: out}\ng: {gradient: s, wrt: x}\nn: {call: norm, inputs: g, args: {axis: 1}}"
    assert find(small(ops=ops)).codes == ()


def test_models_give_one_set_and_values_a_tensor_each(small, find):
    ops = "g: {gradient: err, wrt: [net, x, other], outputs: [set, gx]}\na: {call: norm, inputs: gx}\n"
    assert find(small(ops=ops + "b: {update: [net, other], gradients: set}")).codes == ()


def test_grad_outputs_let_any_value_be_differentiated(small, find):
    ops = "g: {gradient: out, wrt: x, grad_outputs: out}"
    assert find(small(ops=ops)).codes == ()


def test_an_update_needs_a_set_over_each_of_its_models(small, find):
    found = find(small(ops=GRADIENT + "a: {update: [net, «other»], gradients: g}"))
    assert found.codes == ("GS122",)
    assert found.places == found.marks
    assert "no set in its `gradients` covers it" in found.diagnostics[0].message


def test_two_sets_over_one_model_are_ambiguous(small, find):
    ops = GRADIENT + "h: {gradient: err, wrt: net}\na: {update: «net», gradients: [g, h]}"
    found = find(small(ops=ops))
    assert found.codes == ("GS122",)
    assert "`g` and `h` all cover it" in found.diagnostics[0].message


def test_sets_over_different_models_are_not_joined(small, find):
    ops = GRADIENT + "h: {gradient: err, wrt: other}\na: {call: add, inputs: «[g, h]»}"
    found = find(small(ops=ops))
    assert found.codes == ("GS122",)
    assert found.places == found.marks
