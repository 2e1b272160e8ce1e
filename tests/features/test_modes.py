"""`mode` says in which modes an op runs: one, several, or all but one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step

pytestmark = pytest.mark.row("A3")

SPEC = """
graphspec: 1
name: modes
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
ops:
  y: {forward: net, inputs: x}
  always: {call: mean, inputs: y}
  training: {call: sum, inputs: y, mode: train}
  judging: {call: max, inputs: y, mode: [eval, test]}
  apart: {call: min, inputs: y, mode: "!eval"}
  cost: {loss: mse, inputs: [y, x], mode: train}
  step: {update: net, loss: cost}
outputs: [always, training, judging, apart]
"""


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("train", {"always", "training", "apart"}),
        ("eval", {"always", "judging"}),
        ("test", {"always", "judging", "apart"}),
        ("infer", {"always", "apart"}),
    ],
)
def test_a_mode_returns_what_runs_in_it(mode: str, expected: set[str], backend: str) -> None:
    step = build_step(SPEC, backend)
    assert set(step({"x": np.ones((3, 2))}, mode)) == expected


@pytest.mark.parametrize("word", ["!eval", "!infer", "!train"])
def test_all_but_one_mode_names_every_mode(word: str, backend: str) -> None:
    spec = SPEC.replace("judging: {call: max, inputs: y, mode: [eval, test]}", "judging: {call: max, inputs: y}")
    step = build_step(spec.replace('mode: "!eval"', f'mode: "{word}"'), backend)
    for mode in ("train", "eval", "test", "infer"):
        assert ("apart" in step({"x": np.ones((3, 2))}, mode)) == (mode != word[1:])
