"""Numbers of ops that follow schedules: in the plan, in ticks of their clocks, and what cannot be counted."""

from __future__ import annotations

import re

import jsonschema
import pytest

from compiler import Pace, Plan, compile_step
from compiler.plan.schema import plan_schema
from graphspec.diagnostics import SpecError
from graphspec.loading import load

SPEC = """
graphspec: 1
name: numbers
inputs: {{x: {{shape: [batch, 3]}}}}
models:
  net: {{layers: [{{linear: 3}}], optimizer: {{name: sgd, lr: 0.1}}}}
ops:
  out: {{forward: net, inputs: x}}
  {loss}
  step: {{update: net, loss: fit{clip}}}
  {more}
"""
WEIGHED = "fit: {loss: mse, inputs: [out, x], weight: {schedule: linear, from: 1, over: 2 epochs}}"
CLIP = ", clip: {norm: {schedule: linear, from: 1, to: 0.5, over: 2 epochs}}"


def plan_of(loss: str = WEIGHED, clip: str = "", more: str = "", *, pace: Pace | None = None) -> Plan:
    """Compile a step at a pace."""
    spec = load(SPEC.format(loss=loss, clip=clip, more=more))
    return compile_step(spec, pace=pace or Pace(epoch=22, batch=64, run=100))


@pytest.mark.parametrize(
    ("clip", "line"),
    [
        ("", "fit.weight: linear from 1 to 0 over 44 steps (counts train steps, from 0)"),
        (
            CLIP,
            "step.clip.norm: linear from 1 to 0.5 over 44 updates "
            "(counts updates applied by the optimizer of net, from 0)",
        ),
        (f"{CLIP}, every: 2", "step.clip.norm: linear from 1 to 0.5 over 22 updates"),
    ],
)
def test_lengths_are_counted_by_the_clock_of_the_place(clip: str, line: str) -> None:
    assert line in str(plan_of(clip=clip))


def test_the_json_lists_them_by_op_and_field() -> None:
    plan = plan_of(more="beta: {schedule: constant, value: 2}\n  seen: {metric: mean, inputs: beta}")
    whole = plan.to_json()
    jsonschema.validate(whole, plan_schema())
    found = whole["schedules"]
    assert {(each["op"], each.get("option"), each["kind"]) for each in found} == {
        ("fit", "weight", "linear"),
        ("beta", None, "constant"),
    }


@pytest.mark.parametrize(("loss", "clip"), [(WEIGHED, ""), ("fit: {loss: mse, inputs: [out, x]}", CLIP)])
def test_a_length_that_nobody_knows_is_told_at_its_place(loss: str, clip: str) -> None:
    with pytest.raises(SpecError, match="cannot be counted in") as caught:
        plan_of(loss, clip, pace=Pace())
    (problem,) = caught.value.diagnostics
    lines = SPEC.format(loss=loss, clip=clip, more="").split("\n")
    assert (problem.code, problem.span is not None) == ("E-PACE", True)
    assert problem.span.column == lines[problem.span.line - 1].index("2 epochs") + 1


def test_updates_cannot_be_counted_in_steps() -> None:
    with pytest.raises(SpecError, match=re.escape("it is not known whose updates are meant")):
        plan_of("fit: {loss: mse, inputs: [out, x], weight: {schedule: linear, from: 1, over: 9 updates}}")


def test_a_clip_waits_for_the_updates_before_its_own() -> None:
    more = f"other: {{loss: mse, inputs: [out, 0.5]}}\n  last: {{update: net, loss: other, after: step{CLIP}}}"
    plan = plan_of(more=more)
    order = [
        (each.op, str(next(iter(each.reads), ""))) for each in plan.program.mode("train").functions[0].instructions
    ]
    assert order.index(("step", "net.params@0")) < order.index(("last", "net.optimizer@1"))


def test_no_instruction_depends_on_a_number_of_a_field() -> None:
    scheduled = plan_of().graphs["train_step"].nodes
    plain = plan_of(WEIGHED.replace("{schedule: linear, from: 1, over: 2 epochs}", "0.5")).graphs["train_step"].nodes
    assert {name: node.uses for name, node in scheduled.items()} == {name: node.uses for name, node in plain.items()}
