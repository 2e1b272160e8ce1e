"""Specs that need no two versions at once are not refused for it, and those that do are told by the right code."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import SpecError, load
from tests.oracle.legality import find_circle

STATISTICS = """
graphspec: 1
name: statistics
micro_batches: 2
inputs: {x: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: 4}, batch_norm], optimizer: sgd}
  other: {layers: [{linear: 4}]}
ops:
  first: {forward: net, inputs: x}
  fit: {loss: mse, inputs: [first, 1.0]}
  step: {update: net, loss: fit}
  aside: {forward: net, inputs: x}
  between: {forward: other, inputs: x, after: step}
  again: {forward: net, inputs: between}
outputs: [fit, aside, again]
""".lstrip()
WINDOW = """
graphspec: 1
name: all-behind-a-window
precision: {loss_scale: dynamic}
inputs: {x: {shape: [batch, 4]}}
models: {a: {layers: [{linear: 4}], optimizer: sgd}, b: {layers: [{linear: 4}], optimizer: sgd}}
ops:
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, 0.0]}
  step_a: {update: a, loss: la, accumulate: 2}
  again: {forward: a, inputs: x, after: step_a}
  fb: {forward: b, inputs: again}
  lb: {loss: mse, inputs: [fb, 0.0]}
  step_b: {update: b, loss: lb, on_overflow: all}
""".lstrip()


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_statistics_of_micro_batches_are_written_in_stretches_between_updates(backend):
    plan = compile_step(load(STATISTICS), backend)
    runs = [f"{name}#{part}" for name in ("first", "aside", "again") for part in (1, 2)]
    sequence = [name for name in plan.graphs["train_step"].sequence if name in runs]
    assert sequence == ["first#1", "aside#1", "first#2", "aside#2", "again#1", "again#2"]
    assert find_circle(load(STATISTICS)) == ()


def test_statistics_that_are_listed_the_other_way_round_have_no_order_with_parts_or_without():
    late, early = "  aside: {forward: net, inputs: x}\n", "  first: {forward: net, inputs: x}\n"
    turned = STATISTICS.replace(late, "").replace("outputs:", f"{late}outputs:")
    assert early in turned
    for text in (turned, turned.replace("micro_batches: 2\n", "")):
        with pytest.raises(SpecError, match="E-TWO-VERSIONS"):
            compile_step(load(text))
        assert find_circle(load(text))


def test_a_group_of_all_behind_a_window_is_told_by_its_scope():
    with pytest.raises(SpecError, match=r"E-SKIP-SCOPE.*'step_a' happens before the gradient of 'step_b'") as raised:
        compile_step(load(WINDOW))
    assert {each.code for each in raised.value.diagnostics if each.severity == "error"} == {"E-SKIP-SCOPE"}
    compile_step(load(WINDOW.replace("on_overflow: all", "on_overflow: group")))


SLOPES = """
graphspec: 1
name: slopes
precision: {loss_scale: dynamic}
inputs: {x: {shape: [batch, 4]}}
models: {a: {layers: [{linear: 4}], optimizer: sgd, regularizer: {l2: 0.1}}}
ops:
  out: {forward: a, inputs: x}
  fit: {loss: mse, inputs: [out, 0.0]}
  first: {update: a, loss: fit, accumulate: 2}
  second: {update: a, loss: fit, after: first}
""".lstrip()
SHARED = """
graphspec: 1
name: shared
precision: {loss_scale: dynamic}
inputs: {x: {shape: [batch, 4]}}
models: {a: {layers: [{linear: 4}], optimizer: sgd}, b: {layers: [{linear: 4}], optimizer: sgd}}
ops:
  out: {forward: a, inputs: x}
  far: {forward: b, inputs: out}
  near_loss: {loss: mse, inputs: [out, 0.0]}
  far_loss: {loss: mse, inputs: [far, 0.0]}
  whole: {update: a, loss: near_loss, shared: sum}
  part: {update: [a, b], loss: far_loss, optimizer: sgd, accumulate: 2, every: whole}
""".lstrip()


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (SLOPES, SLOPES.replace("accumulate: 2", "accumulate: 2, on_overflow: own")),
        (SLOPES, SLOPES.replace("after: first", "after: first, on_overflow: own")),
        (SLOPES, SLOPES.replace(", regularizer: {l2: 0.1}", "")),
        (SHARED, SHARED.replace(", every: whole", "")),
        (SHARED, SHARED.replace("precision: {loss_scale: dynamic}\n", "")),
    ],
)
def test_a_window_does_not_wait_for_what_is_told_by_the_window(text, other):
    assert find_circle(load(text))
    with pytest.raises(SpecError, match="E-TWO-VERSIONS"):
        compile_step(load(text))
    assert find_circle(load(other)) == ()
    compile_step(load(other))


OWN = "write `on_overflow: own` on 'first': it is then skipped for its own gradients alone"
STEPS = "count steps in place of updates of 'whole', which the check may skip: `every: 2` on 'part'"


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize(
    ("text", "advice", "advised"),
    [
        (SLOPES, OWN, SLOPES.replace("accumulate: 2", "accumulate: 2, on_overflow: own")),
        (SHARED, STEPS, SHARED.replace("every: whole", "every: 2")),
    ],
)
def test_the_advice_for_a_circle_through_a_check_breaks_it(text, advice, advised, backend):
    with pytest.raises(SpecError, match="E-TWO-VERSIONS") as raised:
        compile_step(load(text), backend)
    assert {each.help for each in raised.value.diagnostics if each.code == "E-TWO-VERSIONS"} == {advice}
    compile_step(load(advised), backend)
    assert find_circle(load(advised)) == ()
