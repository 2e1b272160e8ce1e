"""A state of other clocks is taken up: what was counted gives way to what the clocks of the spec can have counted."""

from __future__ import annotations

import numpy as np

from tests.features.steps import build_step

SPEC = """
graphspec: 1
name: two averages
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  cost: {loss: mse, inputs: [out, x]}
  step: {update: net, loss: cost}
  often: {ema: net, decay: 0.9, every: 2}
  seldom: {ema: net, decay: 0.9, every: 4}
"""
BATCH = {"x": np.ones((3, 2), "float32")}


def test_averages_of_a_restored_state_fire_in_the_steps_of_their_own_clocks(backend: str) -> None:
    first = build_step(SPEC, backend, ["ops.often.every=3"])
    for _ in range(5):
        first(BATCH)
    second = build_step(SPEC, backend)
    second.restore(first.state())
    fired = []
    for _ in range(8):
        second(BATCH)
        fired.append([name for name in ("often", "seldom") if name in second.report.fired])
    assert fired == [["often"], [], ["often", "seldom"], [], ["often"], [], ["often", "seldom"], []]


def test_a_state_of_the_same_clocks_is_taken_up_as_it_is(backend: str) -> None:
    first, second = build_step(SPEC, backend), build_step(SPEC, backend)
    for _ in range(3):
        first(BATCH)
    second.restore(first.state())
    assert second.state().counters == first.state().counters
