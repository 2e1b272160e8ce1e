"""Names in ops that hold others: what is offered there, where it is declared, and how it is renamed."""

from __future__ import annotations

import pytest

SPEC = """graphspec: 1
name: held
inputs: {x: {shape: [batch, 3]}}
models: {net: {layers: [{linear: 3}], optimizer: sgd}}
ops:
  seen: {expr: "x * 2"}
  critic:
    repeat: 2
    outputs: [fit]
    ops:
      out: {forward: net, inputs: seen}
      fit: {loss: mse, inputs: [out, x]}
      step: {update: net, loss: fit}
  views:
    choose:
      - {p: 0.5, ops: {turned: {expr: "-x"}}}
      - {p: 0.5, ops: {turned: {expr: "x * 3"}}}
    outputs: [turned]
  both: {call: mean, inputs: critic.fit}
outputs: [both, views.turned]
"""
NAME = "held.yaml"


@pytest.mark.parametrize(
    ("before", "after", "expected", "not_expected"),
    [
        ("inputs: [out, x]}", "inputs: [|, x]}", {"out", "seen", "x"}, {"turned"}),
        ("loss: fit}", "loss: |}", {"fit", "seen"}, set()),
        ("forward: net, inputs: seen", "forward: |, inputs: seen", {"net"}, {"seen"}),
        ("inputs: critic.fit", "inputs: |", {"critic.fit", "views.turned", "seen"}, {"out", "fit"}),
        ("    repeat: 2\n", "    repeat: 2\n    |\n", {"batch", "after"}, {"choose"}),
    ],
)
def test_what_may_stand_there(editor, before, after, expected, not_expected):
    assert editor.check(NAME, SPEC) == []
    found = {*editor.complete(NAME, SPEC.replace(before, after, 1))}
    assert expected <= found
    assert found.isdisjoint(not_expected)
    editor.close(NAME)


def test_an_op_inside_is_described_as_in_the_first_iteration(editor):
    editor.write(NAME, SPEC)
    assert "critic.1.out = net(seen)" in editor.hover(NAME, "out: {forward", 1)
    editor.close(NAME)
