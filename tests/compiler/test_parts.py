"""Plans of repeated and chosen parts: shown once, counted before they are made, and named by iteration."""

from __future__ import annotations

import re

import pytest

from compiler import compile_step
from graphspec import SpecError, load

REPEATED = """
graphspec: 1
name: repeated
inputs: {x: {shape: [batch, 3]}}
models: {net: {layers: [{linear: 3}], optimizer: sgd}}
ops:
  several:
    repeat: 5
    ops:
      out: {forward: net, inputs: x}
      fit: {loss: mse, inputs: [out, x]}
      step: {update: net, loss: fit}
  last: {forward: net, inputs: x, after: several}
outputs: [last]
"""


def test_the_text_shows_one_iteration_and_the_versions_of_the_others():
    plan = compile_step(load(REPEATED))
    text = plan.text()
    assert "several.1.out = net(x)" in text
    assert not re.search(r"several\.[2-4]\.", text.split("\n", 2)[2])
    assert re.search(r" 5  repeat    iterations 2 to 5 of several: the same as the first +net.params@1 -> @5", text)
    assert re.search(r"21  forward   last = net\(x\) +net.params@5", text)
    assert "(writes: several.1.step to several.5.step)" in text


@pytest.mark.parametrize(
    ("every", "repeats", "folds"),
    [
        (
            2,
            9,
            [("iterations 3 to 9 of several: the same as 1 to 2, in turn", "net.params@2 -> @9, late.params@1 -> @4")],
        ),
        (
            3,
            9,
            [
                ("iteration 2 of several: the same as the first", "net.params@1 -> @2"),
                (
                    "iterations 4 to 9 of several: the same as 1 to 3, in turn",
                    "net.params@3 -> @9, late.params@1 -> @3",
                ),
            ],
        ),
        (
            4,
            6,
            [
                ("iterations 2 to 3 of several: the same as the first", "net.params@1 -> @3"),
                ("iterations 5 to 6 of several: the same as the first", "net.params@4 -> @6"),
            ],
        ),
    ],
)
def test_iterations_that_take_turns_are_shown_once_each(every, repeats, folds):
    average = f"      average: {{ema: net, into: late, decay: 0.5, every: {every}}}\n  last: {{"
    text = REPEATED.replace("repeat: 5", f"repeat: {repeats}").replace("  last: {", average)
    text = text.replace("models: {net:", "models: {late: {like: net}, net:")
    shown = compile_step(load(text)).text().split("train_step_2")[0]
    assert re.findall(r"repeat +(.*?)  +(.*)", shown) == folds
    assert shown.count("blend ") == 1


def test_the_published_plan_has_every_instruction():
    (function,) = compile_step(load(REPEATED)).to_json()["functions"]
    kinds = [each["kind"] for each in function["instructions"] if each["op"] == "several.4.step"]
    assert [kind for kind in kinds if kind != "release"] == ["gradient", "apply"]


def test_the_page_and_the_picture_show_it_once():
    plan = compile_step(load(REPEATED))
    for shown in (plan.svg(), plan.html()):
        drawn = shown.split("<script")[0]
        assert "iterations 2 to 5 of several" in drawn
        assert "several.3.out" not in drawn
    assert '<span class="number">5-20</span>' in plan.html()


def test_an_explanation_names_the_iteration():
    said = compile_step(load(REPEATED)).explain("several.3.out")
    assert said.startswith("several.3.out: forward, iteration 3 of 5 of several")
    assert "reads net.params@2: it comes after several.1.step, several.2.step" in said


def test_iterations_that_differ_are_all_shown():
    text = REPEATED.replace("  last: {", "  between: {forward: net, inputs: x, after: several.2.step}\n  last: {")
    shown = compile_step(load(text.replace("outputs: [last]", "outputs: [last, between]"))).text()
    assert "between = net(x)" in shown
    assert "net.params@2" in shown


def test_updates_wait_in_an_iteration_as_they_do_alone():
    text = REPEATED.replace(
        "step: {update: net, loss: fit}", "step: {update: net, loss: fit}\n      late: {update: other, loss: fit}"
    )
    text = text.replace("models: {net:", "models: {other: {layers: [{linear: 3}], optimizer: sgd}, net:")
    text = text.replace(
        "out: {forward: net, inputs: x}", "first: {forward: other, inputs: x}\n      out: {forward: net, inputs: first}"
    )
    text = text.replace("name: repeated\n", "name: repeated\njoin_gradients: false\n")
    plan = compile_step(load(text), order="listed")
    waiting = [each.subject for each in plan.graphs["train_step"].decisions if each.code == "DEFER"]
    assert waiting == [f"several.{number}.step" for number in range(1, 6)]
    assert compile_step(load(text), "tensorflow", "listed").text().count("DEFER") == 0


def test_too_many_alternatives_are_counted_before_they_are_made():
    ops = "\n".join(
        f'  a{number}: {{sometimes: 0.5, ops: {{b: {{expr: "x + {number}"}}}}, else: {{b: x}}}}' for number in range(20)
    )
    outputs = ", ".join(f"a{number}.b" for number in range(20))
    text = f"graphspec: 1\nname: many\ninputs: {{x: {{shape: [batch, 3]}}}}\nops:\n{ops}\noutputs: [{outputs}]\n"
    with pytest.raises(SpecError) as raised:
        compile_step(load(text))
    assert {each.code for each in raised.value.diagnostics} == {"GS061"}
    assert "20 choices would need 1,048,576 functions" in raised.value.diagnostics[0].message


def test_alternatives_name_the_functions_that_they_are_in():
    text = """
graphspec: 1
name: chosen
inputs: {x: {shape: [batch, 3]}}
ops:
  views: {choose: [{p: 0.5, ops: {seen: {expr: "-x"}}}, {p: 0.5, ops: {seen: {expr: "x * 2"}}}], outputs: [seen]}
outputs: [views.seen]
"""
    text = compile_step(load(text)).text("eval")
    assert "(writes: nothing; with views.1)" in text
    assert "(writes: nothing; with views.2)" in text


def test_the_number_of_stacked_iterations_is_free_where_it_changes():
    text = REPEATED.replace("repeat: 5", "outputs: [fit]\n    repeat: {schedule: piecewise, at: {0: 1, 3: 4}}")
    plan = compile_step(load(text.replace("outputs: [last]", "outputs: [several.fit]")))
    assert str(plan.types["several.fit"]) == "[iterations] float32"
    assert sorted({len(each.active) for each in plan.program.mode("train").functions}) == [1, 4]


def test_rows_are_not_cut_for_iterations_and_for_micro_batches_at_once():
    text = REPEATED.replace("repeat: 5", "repeat: 5\n    batch: split").replace("ops:\n", "micro_batches: 2\nops:\n", 1)
    with pytest.raises(SpecError) as raised:
        compile_step(load(text))
    assert {(each.code, each.span.line) for each in raised.value.diagnostics} == {("E-MICRO", 8)}
    assert compile_step(load(text.replace("batch: split", "batch: next"))).warnings == ()
