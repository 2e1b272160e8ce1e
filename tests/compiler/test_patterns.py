"""Patterns of parameters: what plans show of them, and every way in which one is of no use."""

from __future__ import annotations

import jsonschema
import pytest

from compiler import compile_step
from compiler.plan.schema import plan_schema
from graphspec import SpecError, load

SPEC = """
graphspec: 1
name: patterns
inputs: {x: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: 4}, tanh, {linear: 4}], optimizer: OPTIMIZER, FIELDS}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, x]}
  step: {update: net, loss: loss}
"""


def plan_of(fields, optimizer="sgd", backend="torch"):
    return compile_step(load(SPEC.replace("FIELDS", fields).replace("OPTIMIZER", optimizer)), backend)


def test_a_plan_tells_who_is_in_which_group():
    plan = plan_of("groups: [{match: bias$, weight_decay: 0}, {match: ^0.weight, frozen: true}]")
    assert "net: 0.bias, 2.bias: weight_decay 0 (match: bias$)" in plan.text()
    assert "net: 0.weight: frozen (match: ^0.weight)" in plan.text()
    assert [row["parameters"] for row in plan.to_json()["groups"]] == [["0.bias", "2.bias"], ["0.weight"]]
    assert plan.to_json("eval")["groups"] == []


def test_of_a_class_only_the_built_step_knows():
    text = SPEC.replace("layers: [{linear: 4}, tanh, {linear: 4}]", "class: a:B").replace("OPTIMIZER", "sgd")
    plan = compile_step(load(text.replace("FIELDS", "groups: [{match: bias$, lr_scale: 2}]")))
    assert "net: what the class calls so: lr times 2 (match: bias$)" in plan.text()
    assert plan.to_json()["groups"][0]["parameters"] is None


def test_a_plan_tells_penalties_and_constraints():
    plan = plan_of(
        "regularizer: {l1: 0.1, l2: 0.5}, constraint: [{clip: [-1, 1]}, {max_norm: 2, axis: 1, match: weight}]"
    )
    instructions = {each["kind"]: each for each in plan.to_json()["functions"][0]["instructions"]}
    transform, apply = instructions["transform"], instructions["apply"]
    assert transform["penalties"] == ["l1 0.1 + l2 0.5 of net"]
    assert transform["reads"] == ["net.params@0"]
    assert apply["constraints"] == ["net to clip [-1, 1]", "net to max_norm 2 over 1 (match: weight)"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            "groups: [{match: bais$, lr_scale: 2}]",
            "fits 'bais.': its parameters are 0.weight, 0.bias, 2.weight, 2.bias",
        ),
        ("groups: [{match: bias, lr_scale: 2}, {match: ^0, frozen: true}]", "'0.bias' of model 'net' is in two groups"),
        ("groups: [{match: ., frozen: true}]", "freeze all of its parameters, but 'step' updates it"),
        ("constraint: {max_norm: 1, match: wieght}", "no parameter of model 'net' fits 'wieght'"),
        ("regularizer: {l2: 1, match: ^1}", "no parameter of model 'net' fits '.1'"),
        (
            "groups: [{match: bias, frozen: true}], constraint: {clip: [0, 1], match: bias}",
            "its stepped parameters are",
        ),
    ],
)
def test_a_pattern_of_no_use_is_an_error(fields, message):
    with pytest.raises(SpecError, match=message) as caught:
        plan_of(fields)
    assert {each.code for each in caught.value.diagnostics} == {"E-MATCH"}


def test_the_nearest_names_are_told():
    with pytest.raises(SpecError) as caught:
        plan_of("groups: [{match: 2.wieght, lr_scale: 2}]")
    assert caught.value.diagnostics[0].label == "did you mean '2.weight' or '0.weight'?"


def test_an_optimizer_of_keras_has_no_groups():
    fields = "groups: [{match: bias, lr_scale: 2}]"
    with pytest.raises(SpecError, match=r"E-BACKEND.*it has one rate and one decay for all parameters"):
        plan_of(fields, "{class: a:B}", "tensorflow")
    assert plan_of(fields, "{class: a:B}").program.optimizers[0].builtin is False
    assert plan_of("groups: [{match: bias, frozen: true}]", "{class: a:B}", "tensorflow").notes == ()


def test_a_function_for_another_backend_is_none():
    with pytest.raises(
        SpecError, match=r"E-BACKEND.*the constraint of model 'net' has no function for the backend 'torch'"
    ):
        plan_of("constraint: {function: {tensorflow: a:b}}")


def test_what_is_said_of_a_model_that_nothing_updates_is_noted():
    text = SPEC.replace("OPTIMIZER, FIELDS", "sgd").replace("ops:", "  idle: {like: net, constraint: unit_norm}\nops:")
    text = text.replace(
        "  step:", "  seen: {forward: idle, inputs: x}\n  away: {loss: mse, inputs: [seen, out]}\n  step:"
    )
    assert "no update steps model 'idle', which makes `constraint` of no effect" in compile_step(load(text)).notes


def test_a_window_that_sees_to_gradients_which_nothing_looks_at_is_noted():
    text = SPEC.replace("OPTIMIZER, FIELDS", "sgd")
    setting = "ops.step.accumulate={steps: 2, on_nonfinite: window}"
    note = "nothing checks the gradients of 'step' (`on_overflow`): `on_nonfinite` has no effect"
    assert note in compile_step(load(text, (setting,))).notes
    assert note not in compile_step(load(text, (setting, "ops.step.on_overflow=own"))).notes
    assert note not in compile_step(load(text, ("ops.step.accumulate=2",))).notes


MOVING = "{schedule: linear, from: 2, to: 1, over: 10}"


def test_a_plan_tells_the_schedules_of_groups_penalties_and_constraints() -> None:
    fields = "groups: [{match: bias, lr_scale: MOVING}], regularizer: {l2: MOVING}, constraint: {max_norm: MOVING}"
    fields = fields.replace("MOVING", MOVING)
    text = plan_of(fields).text()
    told = "linear from 2 to 1 over 10 updates"
    assert f"lr times {told} (match: bias)" in text
    assert f"net.groups.0.lr_scale: {told} (counts updates applied, from 0)" in text
    for place in ("regularizer.0.l2", "constraint.0.max_norm"):
        assert f"step.net.{place}: {told} (counts updates applied by the optimizer of net, from 0)" in text


def test_a_scheduled_group_is_written_out_in_words() -> None:
    plan = plan_of(f"groups: [{{match: bias, weight_decay: {MOVING}}}]")
    document = plan.to_json()
    jsonschema.validate(document, plan_schema())
    (group,) = document["groups"]
    assert (group["lr_scale"], group["weight_decay"]) == (1.0, "linear from 2 to 1 over 10 updates")
    assert [each["option"] for each in document["schedules"]] == ["groups.0.weight_decay"]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ("groups: [{match: bias, lr_scale: MOVING}]", "`2 epochs` of a schedule"),
        ("regularizer: [{l1: 1}, {l2: MOVING}]", "`2 epochs` of a schedule"),
        ("constraint: {clip: [MOVING, 3]}", "`2 epochs` of a schedule"),
    ],
)
def test_lengths_that_nobody_can_count_are_refused_at_their_place(fields: str, place: str) -> None:
    with pytest.raises(SpecError, match="E-PACE") as raised:
        plan_of(fields.replace("MOVING", MOVING.replace("10", "2 epochs")))
    (problem,) = raised.value.diagnostics
    assert place in problem.message
    assert problem.span is not None


@pytest.mark.parametrize(
    ("run", "unread"),
    [
        ("run: {steps: 5}", {"test": "`stepgraph eval` does", "held": "`stepgraph eval --data held` does"}),
        ("run: {eval: 5}", {"held": "`stepgraph eval --data held` does"}),
        ("run: {eval: {data: held}}", {"test": "`stepgraph eval --data test` does"}),
        ("run: {eval: 5, images: {value: shown, data: held}}", {}),
    ],
)
def test_a_set_of_data_that_no_run_reads_is_noted(run, unread):
    text = """
graphspec: 1
name: sets
inputs: {x: {shape: [batch, 1, 4, 4]}}
models: {net: {layers: [flatten, {linear: 16}, {reshape: [1, 4, 4]}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, x]}
  step: {update: net, loss: loss}
  far: {metric: mean, inputs: out}
  shown: {call: neg, inputs: out, mode: infer}
outputs: [loss, far, shown]
data:
  train: {source: npz, path: a.npz, batch: 8}
  test: {source: npz, path: b.npz, batch: 8}
  held: {source: npz, path: c.npz, batch: 8}
"""
    notes = compile_step(load(text + run)).notes
    assert len(notes) == len(unread)
    for note, (role, command) in zip(notes, unread.items(), strict=True):
        assert note.startswith(f"a run does not read data '{role}', only {command}")
