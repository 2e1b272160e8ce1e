"""Pairs of steps whose difference is known from their meaning, and the general properties of a difference."""

from __future__ import annotations

import json

import pytest

from compiler import compile_step
from compiler.plan.diff import compare_plans, export_difference, find_moves, format_difference
from graphspec import load
from graphspec.write.render import render
from tests.compiler.conftest import compiled_document
from tests.compiler.random_steps import clocked_step, random_step, shuffled

SPEC = """graphspec: 1
name: gan
inputs: {real: {shape: [batch, 4]}}
models:
  generator: {layers: [{linear: 4}], optimizer: adam}
  discriminator: {layers: [{linear: 1}], optimizer: adam}
ops:
  z: {random: normal, shape: [batch, 2]}
  fake: {forward: generator, inputs: z}
  on_real: {forward: discriminator, inputs: real}
  on_fake: {forward: discriminator, inputs: fake}
  d_real: {loss: bce_with_logits, inputs: [on_real, 1.0]}
  d_fake: {loss: bce_with_logits, inputs: [on_fake, 0.0]}
  d_loss: {call: add, inputs: [d_real, d_fake]}
  step_d: {update: discriminator, loss: d_loss}
  judged: {forward: discriminator, inputs: fake, after: step_d}
  g_loss: {loss: bce_with_logits, inputs: [judged, 1.0]}
  step_g: {update: generator, loss: g_loss}
outputs: [d_loss, g_loss]
"""
SHARED = SPEC.replace("  judged: {forward: discriminator, inputs: fake, after: step_d}\n", "")
SHARED = SHARED.replace("[judged, 1.0]", "[on_fake, 1.0]")


def difference(old, new):
    return compare_plans(compile_step(load(old)), compile_step(load(new)))


def train(found):
    return next(change for change in found.functions if change.mode == "train")


def test_without_after_the_generator_is_judged_by_the_old_discriminator():
    change = train(difference(SPEC, SPEC.replace(", after: step_d", "")))
    (only,) = change.altered
    assert (only.op, only.aspect) == ("judged", "reads")
    assert (only.before, only.after) == ("discriminator.params@1", "discriminator.params@0")
    assert only.why == "as at the start of the step: no `after` puts it after step_d"
    assert not change.rows


def test_the_other_way_round_after_is_the_reason():
    found = difference(SPEC.replace(", after: step_d", ""), SPEC)
    assert train(found).altered[0].why == "it comes after step_d"
    assert "judged is declared `after: step_d`" in format_difference(found)


def test_what_moved_is_told_with_the_hazard_that_asks_for_it():
    moves = {move.label: move for move in train(difference(SPEC, SPEC.replace(", after: step_d", ""))).moved}
    assert moves["gradient step_g"].before == ("apply step_d",)
    assert moves["gradient step_g"].reasons == ("gradient step_g still reads discriminator.params@0 through judged",)


def test_one_shared_call_in_place_of_two_retains_the_graph():
    change = train(difference(SPEC, SHARED))
    assert [row.op for row in change.rows.vanished] == ["judged"]
    assert change.rows.appeared == ()
    assert [each.code for each in change.decisions.appeared] == ["RETAIN"]
    assert {each.code for each in change.decisions.vanished} == {"DETACH", "FREEZE"}


def test_a_stop_makes_the_detaching_needless():
    stopped = SPEC.replace(
        "on_fake: {forward: discriminator, inputs: fake}", "on_fake: {forward: discriminator, inputs: still}"
    )
    stopped = stopped.replace("  on_real:", "  still: {call: stop, inputs: fake}\n  on_real:")
    change = train(difference(SPEC, stopped))
    assert [row.op for row in change.rows.appeared] == ["still"]
    assert ("on_fake", "call") in {(each.op, each.aspect) for each in change.altered}
    assert [each.code for each in change.decisions.vanished] == ["DETACH"]


def test_an_average_appears_with_the_version_it_takes():
    averaged = SPEC.replace("outputs:", "  mean: {ema: generator, decay: 0.9}\noutputs:")
    change = train(difference(SPEC, averaged))
    (only,) = change.rows.appeared
    assert (only.kind, only.op) == ("blend", "mean")
    assert "generator.params@1" in only.cells
    assert not change.moved


def test_an_update_that_skips_steps_adds_a_function():
    found = difference(SPEC, SPEC.replace("loss: g_loss}", "loss: g_loss, every: 5}"))
    assert [each.writes for each in found.whole.appeared] == [("step_d",)]
    assert [change.was for change in found.functions if change.mode == "train"] == ["train_step"]
    assert "is new: a train step that writes step_d" in format_difference(found)


def test_a_warning_that_appears_is_told():
    found = difference(SPEC, SPEC.replace("outputs:", "  unused: {call: mean, inputs: real}\noutputs:"))
    assert [each.code for each in found.warnings.appeared] == ["W-DEAD"]
    assert difference(
        SPEC.replace("outputs:", "  unused: {call: mean, inputs: real}\noutputs:"), SPEC
    ).warnings.vanished


def test_a_hyperparameter_leaves_the_schedule_as_it_is():
    found = difference(SPEC, SPEC.replace("optimizer: adam", "optimizer: {name: adam, lr: 0.1}"))
    assert not found
    assert format_difference(found) == "the schedule is the same: no instruction, decision or warning is different\n"


def test_lines_and_comments_above_change_nothing():
    assert not difference(SHARED, "# a remark\n\n\n" + SHARED)
    assert not difference(SHARED, render(load(SHARED)))


@pytest.mark.parametrize("seed", range(0, 36, 3))
def test_a_step_does_not_differ_from_itself(seed):
    plan = compiled_document(json.dumps(random_step(seed)) + "\n")
    assert not compare_plans(plan, compiled_document(json.dumps(random_step(seed), indent=1) + "\n"))


def compiled_pair(seed):
    return tuple(
        compile_step(load(json.dumps(document) + "\n")) for document in (random_step(seed), clocked_step(seed))
    )


@pytest.mark.parametrize("seed", [1, 2, 4, 7, 8])
def test_what_appears_one_way_vanishes_the_other(seed):
    old, new = compiled_pair(seed)
    there, back = compare_plans(old, new), compare_plans(new, old)
    assert set(there.whole.appeared) == set(back.whole.vanished)
    for one, other in zip(there.functions, back.functions, strict=True):
        assert set(one.rows.appeared) == set(other.rows.vanished)
        assert set(one.decisions.vanished) == set(other.decisions.appeared)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 6, 7, 8, 9, 10, 11])
def test_putting_the_moved_back_gives_the_old_order(seed):
    document = random_step(seed)
    old, new = (compile_step(load(json.dumps(each) + "\n")) for each in (document, shuffled(document, seed)))
    before, after = old.graphs["train_step"], new.graphs["train_step"]
    moved = {move.label for move in find_moves(before, after)}
    stayed = [[name for name in graph.sequence if graph.nodes[name].label not in moved] for graph in (before, after)]
    assert stayed[0] == stayed[1]


def test_json_has_the_same_parts_as_the_text():
    found = export_difference(difference(SPEC, SHARED))
    (first, *_) = found["functions"]
    assert [row["op"] for row in first["instructions"]["vanished"]] == ["judged"]
    assert first["decisions"]["appeared"][0]["code"] == "RETAIN"
    assert json.loads(json.dumps(found)) == found
