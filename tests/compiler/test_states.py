"""States: which version an op reads, what an assignment waits for, and what is wrong before anything runs."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import load
from tests.compiler.conftest import PRELUDE, document, problems, reads

STATE = PRELUDE + "state: {center: {shape: [4]}, queue: {shape: [6, 4]}, seen: {shape: [], dtype: int64}}\n"
BASE = """
  fa: {forward: a, inputs: x}
  aside: {call: sub, inputs: [fa, center]}
  la: {loss: mse, inputs: [aside, y]}
  step_a: {update: a, loss: la}
  mean: {call: mean, inputs: fa, args: {axis: 0}}
  move: {assign: center, value: mean}
"""


def plan_of(ops: str, *, backend: str = "torch", order: str = "fewest"):
    """Compile a step with states, and return its plan."""
    return compile_step(load(document(BASE + ops, STATE)), backend, order)


def sequence_of(plan) -> list[str]:
    """Return the instructions of the train step as `kind op`."""
    return [f"{each['kind']} {each['op']}" for each in plan.to_json()["functions"][0]["instructions"]]


def test_without_after_a_state_is_what_the_step_before_left():
    plan = plan_of("  late: {call: neg, inputs: center}\noutputs: [late]")
    assert reads(plan, "late", kind="evaluate") == reads(plan, "aside", kind="evaluate") == ["center.state@0"]


def test_after_an_assignment_a_state_is_what_it_wrote():
    plan = plan_of("  late: {call: neg, inputs: center, after: move}\noutputs: [late]")
    assert reads(plan, "late", kind="evaluate") == ["center.state@1"]


def test_an_output_is_the_state_that_the_step_leaves():
    plan = plan_of("  reset: {assign: center, value: 0.0, after: move}\noutputs: [la, center]")
    (emit,) = (each for each in plan.to_json()["functions"][0]["instructions"] if each["kind"] == "emit")
    assert (emit["values"], emit["reads"]) == (["la", "center"], ["center.state@2"])


@pytest.mark.parametrize("order", ["fewest", "listed", "memory", "latest"])
def test_an_assignment_comes_after_all_who_read_what_the_state_was(order):
    found = sequence_of(plan_of("  late: {call: neg, inputs: center}\noutputs: [late]", order=order))
    assert max(found.index("evaluate aside"), found.index("evaluate late")) < found.index("store move")


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_an_assignment_waits_for_no_gradient(backend):
    plan = plan_of("  far: {call: neg, inputs: y}", backend=backend)
    waits = [edge for edge in plan.graphs["train_step"].edges if edge.after == "move"]
    assert {edge.hazard.value for edge in waits} == {"data", "war"}
    assert all(plan.graphs["train_step"].nodes[edge.before].derivative is None for edge in waits)


def test_an_assignment_is_no_update_that_could_be_deferred():
    plan = plan_of("  count: {assign: seen, value: 3}", order="latest")
    assert {each["subject"] for each in plan.to_json()["decisions"] if each["code"] == "DEFER"} == {"step_a"}
    assert "follows its gradient" not in plan.explain("move")


def test_an_assignment_of_nothing_but_a_number_stands_first():
    found = sequence_of(plan_of("  count: {assign: seen, value: 3}"))
    assert found[0] == "store count"


def test_an_assignment_counts_steps_and_not_writes_of_what_it_reads():
    plan = plan_of("  twin: {assign: queue, value: queue, every: 3}")
    (gate,) = plan.program.mode("train").gates
    assert (gate.op, gate.clock, gate.every) == ("twin", "steps", 3)


def test_every_with_an_update_follows_it():
    plan = compile_step(load(document(BASE.replace("value: mean}", "value: mean, every: step_a}"), STATE)))
    found = sequence_of(plan)
    assert found.index("apply step_a") < found.index("store move")


def test_two_assignments_need_an_order():
    found = problems(BASE + "  reset: {assign: center, value: 0.0}", prelude=STATE)
    (found,) = [each for each in found if each.severity == "error"]
    assert found.code == "E-UNORDERED-WRITES"
    assert found.help == "write `after: move` on 'reset'"


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("push: {assign: queue, value: fa}", "shape [batch, 4] into 'queue', which is of shape [6, 4]"),
        ("push: {assign: queue, value: center}", "shape [4] into 'queue', which is of shape [6, 4]"),
        ("count: {assign: seen, value: la}", "dtype float32 into 'seen', which is of dtype int64"),
    ],
)
def test_a_value_that_cannot_be_a_state_is_told_before_anything_runs(op, message):
    (found,) = [each for each in problems(f"{BASE}  {op}", prelude=STATE) if each.code == "E-SHAPE"]
    assert message in found.message


@pytest.mark.parametrize(
    ("args", "fits"),
    [
        ("start: 0, stop: 6", True),
        ("start: -6", True),
        ("start: 1, stop: 6", False),
        ("start: -7", False),
        ("start: -8", True),
    ],
)
def test_the_newest_rows_of_a_queue_are_known_to_be_as_many_as_it_has(args, fits):
    queue = f"""
  longer: {{call: concat, inputs: [fa, queue], args: {{axis: 0}}}}
  newest: {{call: slice, inputs: longer, args: {{axis: 0, {args}}}}}
  push: {{assign: queue, value: newest}}
"""
    found = [each for each in problems(BASE.rstrip() + queue, prelude=STATE) if each.code == "E-SHAPE"]
    assert (not found) == fits


def test_a_state_that_no_op_uses_is_not_built():
    plan = plan_of("  count: {assign: seen, value: 3}")
    assert [state.name for state in plan.program.states] == ["center", "seen"]
    assert "no op uses state 'queue': it is not built" in plan.notes
    assert not any("center" in note for note in plan.notes)


def test_no_gradient_reaches_what_only_reads_a_state():
    lone = "  guess: {call: neg, inputs: center}\n  l: {loss: mse, inputs: [guess, 1.0]}\n  s: {update: a, loss: l}\n"
    codes = {each.code for each in problems(lone, prelude=STATE)}
    assert codes == {"E-NO-GRADIENT"}
