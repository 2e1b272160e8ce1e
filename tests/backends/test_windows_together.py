"""Windows beside other updates: groups, shared storages, and what is told of a step."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from tests.features.paced import build_paced
from tests.features.steps import build_step, weights

BACKENDS = pytest.mark.parametrize("backend", ["torch", "tensorflow"])
CHAIN = """
graphspec: 1
name: chain
inputs: {p: {shape: [batch]}, q: {shape: [batch]}}
models:
  d: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
  g: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
ops:
  first: {forward: d}
  dp: {call: mul, inputs: [p, first]}
  d_loss: {call: mean, inputs: dp}
  step_d: {update: d, loss: d_loss, accumulate: 2}
  judged: {forward: d, after: step_d}
  made: {forward: g}
  both: {call: add, inputs: [judged, made]}
  gq: {call: mul, inputs: [q, both]}
  g_loss: {call: mean, inputs: gq}
  step_g: {update: g, loss: g_loss}
precision: {loss_scale: {initial: 4.0}}
"""


@BACKENDS
def test_what_comes_after_a_window_is_a_group_of_its_own_in_every_step(backend: str) -> None:
    """DCGAN with accumulation: a gradient of the second that overflows costs the first nothing, full window or not."""
    step = build_step(CHAIN, backend)
    found = []
    for p, q in ((1.0, np.inf), (3.0, 1.0), (5.0, 1.0), (7.0, np.inf)):
        step({"p": np.full(1, p), "q": np.full(1, q)})
        found.append(tuple(float(weights(step)[f"{name}.value"]) for name in "dg"))
    assert found == [(0.0, 0.0), (-2.0, -1.0), (-2.0, -2.0), (-8.0, -2.0)]


CLOCKED = """
graphspec: 1
name: clocked
inputs: {p: {shape: [batch]}}
models:
  a: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
  b: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
ops:
  va: {forward: a}
  vb: {forward: b}
  pa: {call: mul, inputs: [p, va]}
  l: {call: mean, inputs: pa}
  k: {call: mul, inputs: [vb, 2.0]}
  s: {update: a, loss: l, every: 2, on_overflow: own}
  t: {update: b, loss: k}
"""


@BACKENDS
def test_a_report_tells_nothing_of_gradients_that_an_earlier_step_looked_at(backend: str) -> None:
    step = build_step(CLOCKED, backend)
    told = []
    for p in (1.0, np.inf, 1.0, 1.0):
        step({"p": np.full(1, p)})
        told.append((step.report.fired, step.report.held, step.report.updates["s"].nonfinite))
    assert told == [(("t",), (), None), (("t",), ("s",), "a.value"), (("t",), (), None), (("s", "t"), (), None)]


SHARED = """
graphspec: 1
name: shared
inputs: {p: {shape: [batch]}, q: {shape: [batch]}}
models:
  body: {parameter: {shape: [], init: 0.0}}
  left: {parameter: {shape: [], init: 0.0}}
  right: {parameter: {shape: [], init: 0.0}}
ops:
  vb: {forward: body}
  vl: {forward: left}
  vr: {forward: right}
  sl: {call: add, inputs: [vb, vl]}
  sr: {call: add, inputs: [vb, vr]}
  ml: {call: mul, inputs: [p, sl]}
  mr: {call: mul, inputs: [q, sr]}
  ll: {call: mean, inputs: ml}
  lr: {call: mean, inputs: mr}
  ul: {update: [body, left], loss: ll, optimizer: {name: sgd, lr: 1.0}, shared: sum, LEFT}
  ur: {update: [body, right], loss: lr, optimizer: {name: sgd, lr: 1.0}, RIGHT}
"""


@BACKENDS
def test_what_a_held_update_would_share_is_not_shared(backend: str) -> None:
    text = SHARED.replace("LEFT", "accumulate: 2, on_overflow: group").replace("RIGHT", "on_overflow: group")
    step = build_step(text, backend)
    for p, q in ((1.0, 100.0), (np.inf, 10.0)):
        step({"p": np.full(1, p), "q": np.full(1, q)})
    assert step.report.held == ("ul", "ur")
    assert {name: float(value) for name, value in weights(step).items()} == {
        "body.value": 0.0,
        "left.value": 0.0,
        "right.value": -100.0,
    }


@BACKENDS
def test_a_window_that_an_epoch_ends_alone_shares_nothing_and_is_applied(backend: str) -> None:
    window = "every: 2, accumulate: {steps: 2, on_epoch_end: flush}"
    step = build_paced(SHARED.replace("LEFT", window).replace("RIGHT", "every: 2"), backend, epoch=3)
    for p, q in ((1.0, 1.0), (2.0, 10.0), (3.0, 1.0)):
        step({"p": np.full(1, p), "q": np.full(1, q)})
    found = {name: float(value) for name, value in weights(step).items()}
    assert found == {"body.value": -2.0, "left.value": -2.0, "right.value": -10.0}


def test_the_generator_of_a_gan_that_accumulates_waits_for_no_window() -> None:
    plan = compile_step(load(CHAIN), "torch")
    assert [each.code for graph in plan.graphs.values() for each in graph.decisions if each.code == "DEFER"] == []
