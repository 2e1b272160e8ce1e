"""Every kind of ordering constraint: there where it must be, and nowhere else."""

from __future__ import annotations

import pytest

from compiler import Plan
from tests.compiler.conftest import codes, compiled, events, find_instruction, graph_of, hazards, problems, reads

SHARED = """
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: fa}
  l: {loss: mse, inputs: [fb, y]}
  step_b: {update: b, loss: l}
  step_a: {update: a, loss: l}
"""
"""One loss through both models: the gradient of a reads the weights of b."""


def why(plan: Plan, kind: str, after: str) -> list[str]:
    """Return the reasons of the edges of a kind that end at a node."""
    return [edge.why for edge in graph_of(plan).edges if edge.hazard.value == kind and edge.after == after]


def test_data_runs_from_producer_to_consumer():
    assert {("fa", "fb"), ("fb", "l"), ("l", "step_b.gradient"), ("step_b.gradient", "step_b")} <= hazards(
        compiled(SHARED), "data"
    )


def test_declared_edges_are_those_of_after_and_of_every_with_a_name():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
  late: {forward: b, inputs: y, after: step_a}
  follow: {ema: a, into: slow_a, decay: 0.9, every: step_a}
outputs: [late]""")
    assert hazards(plan, "declared") == {("step_a", "late"), ("step_a", "follow")}
    assert why(plan, "declared", "late") == ["late is declared `after: step_a`"]


def test_the_read_of_a_version_follows_its_write():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
  early: {forward: a, inputs: y}
  late: {forward: a, inputs: y, after: step_a}
outputs: [early, late]""")
    assert hazards(plan, "raw") == {("step_a", "late")}
    assert why(plan, "raw", "late") == ["forward late reads a.params@1"]


def test_the_read_of_a_version_precedes_the_next_write():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
  early: {forward: a, inputs: y}
  late: {forward: a, inputs: y, after: step_a}
outputs: [early, late]""")
    assert hazards(plan, "war") == {("fa", "step_a"), ("early", "step_a")}


def test_the_writes_of_one_cell_follow_each_other():
    plan = compiled("""
  first: {forward: n, inputs: x}
  second: {forward: n, inputs: y}
  both: {call: add, inputs: [first, second]}
  l: {loss: mse, inputs: [both, y]}
  step: {update: n, loss: l}
""")
    assert ("first", "second") in hazards(plan, "waw")


def test_a_pending_gradient_holds_back_the_writes_of_every_model_on_its_path():
    plan = compiled(SHARED)
    assert hazards(plan, "backward-war") == {
        ("step_a.gradient", "step_a"),
        ("step_a.gradient", "step_b"),
        ("step_b.gradient", "step_b"),
    }
    assert "gradient step_a still reads b.params@0 through fb" in why(plan, "backward-war", "step_b")[1]


def test_the_reason_of_a_kept_cell_names_version_forward_and_place():
    reasons = [edge for edge in graph_of(compiled(SHARED)).hazards if edge.hazard.value == "backward-war"]
    crossing = next(edge for edge in reasons if (edge.before, edge.after) == ("step_a.gradient", "step_b"))
    assert (str(crossing.cell), crossing.through) == ("b.params@0", ("fb",))
    assert crossing.why == "gradient step_a still reads b.params@0 through fb (<text>:15:3)"


def test_tensorflow_keeps_values_and_so_holds_no_write_back():
    assert hazards(compiled(SHARED, backend="tensorflow"), "backward-war") == set()
    assert hazards(compiled(SHARED), "data") == hazards(compiled(SHARED, backend="tensorflow"), "data")


def test_a_gradient_is_held_against_the_next_write_only_of_the_version_it_reads():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
  again: {forward: a, inputs: y, after: step_a}
  lb: {loss: mse, inputs: [again, y]}
  twice: {update: a, loss: lb}
""")
    assert hazards(plan, "backward-war") == {("step_a.gradient", "step_a"), ("twice.gradient", "twice")}


def test_a_snapshot_takes_the_hold_of_its_forward_away():
    ops = SHARED.replace("inputs: fa}", "inputs: fa, snapshot: true}")
    plan = compiled(ops, order="listed")
    assert ("step_a.gradient", "step_b") not in hazards(plan, "backward-war")
    assert events(plan)[3:5] == ["gradient step_b", "apply step_b"]
    assert find_instruction(plan, "forward fb")["snapshot"] == "all"


def test_an_average_is_a_writer_like_any_other():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  judged: {forward: slow_a, inputs: fa}
  la: {loss: mse, inputs: [judged, y]}
  step_a: {update: a, loss: la}
  follow: {ema: a, into: slow_a, decay: 0.9}
""")
    assert ("step_a.gradient", "follow") in hazards(plan, "backward-war")
    assert ("judged", "follow") in hazards(plan, "war")
    assert ("step_a", "follow") in hazards(plan, "implied")


def test_statistics_read_in_eval_mode_on_a_path_are_held_until_the_gradient_ran():
    plan = compiled("""
  calm: {forward: n, inputs: x, train: false}
  l: {loss: mse, inputs: [calm, y]}
  step: {update: n, loss: l}
  moving: {forward: n, inputs: y}
outputs: [moving]""")
    assert hazards(plan, "buffer-war") == {("step.gradient", "moving")}
    assert events(plan).index("gradient step") < events(plan).index("forward moving")


def test_statistics_read_in_eval_mode_off_every_path_hold_nothing_back():
    plan = compiled("""
  calm: {forward: n, inputs: x, train: false}
  moving: {forward: n, inputs: y}
  l: {loss: mse, inputs: [moving, y]}
  step: {update: n, loss: l}
outputs: [calm]""")
    assert hazards(plan, "buffer-war") == set()
    assert ("calm", "moving") in hazards(plan, "war")


def test_a_train_mode_forward_is_not_disturbed_by_the_next_one():
    plan = compiled("""
  first: {forward: n, inputs: x}
  second: {forward: n, inputs: y}
  l: {loss: mse, inputs: [first, y]}
  step: {update: n, loss: l}
outputs: [second]""")
    assert hazards(plan, "buffer-war") == set()


def test_a_copy_of_statistics_waits_for_every_gradient_through_the_model_it_writes():
    plan = compiled("""
  seen: {forward: slow_n, inputs: x}
  fn: {forward: n, inputs: seen}
  fa: {forward: a, inputs: x}
  through: {forward: slow_n, inputs: fa}
  ln: {loss: mse, inputs: [fn, y]}
  la: {loss: mse, inputs: [through, y]}
  step_n: {update: n, loss: ln}
  step_a: {update: a, loss: la}
  follow: {copy: n, into: slow_n}
""")
    assert hazards(plan, "buffer-war") == {("step_a.gradient", "follow")}


def test_a_circle_through_statistics_is_broken_by_clones_and_is_no_error():
    plan = compiled("""
  calm: {forward: n, inputs: x, train: false}
  moving: {forward: n, inputs: calm}
  l: {loss: mse, inputs: [moving, y]}
  step: {update: n, loss: l}
""")
    assert graph_of(plan).snapshots == {"calm": "buffers"}
    assert find_instruction(plan, "forward calm")["snapshot"] == "buffers"
    assert find_instruction(plan, "forward moving")["snapshot"] == "none"


def test_no_clone_is_made_where_the_gradient_can_come_first():
    plan = compiled("""
  calm: {forward: n, inputs: x, train: false}
  l: {loss: mse, inputs: [calm, y]}
  step: {update: n, loss: l}
  moving: {forward: n, inputs: y}
outputs: [moving]""")
    assert graph_of(plan).snapshots == {}


def test_tensorflow_needs_no_clones():
    plan = compiled(
        """
  calm: {forward: n, inputs: x, train: false}
  moving: {forward: n, inputs: calm}
  l: {loss: mse, inputs: [moving, y]}
  step: {update: n, loss: l}
""",
        backend="tensorflow",
    )
    assert graph_of(plan).snapshots == {}


TWO_VERSIONS = """
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
  again: {forward: a, inputs: y, after: step_a}
  both: {call: add, inputs: [fa, again]}
  fb: {forward: b, inputs: both}
  lb: {loss: mse, inputs: [fb, y]}
  twice: {update: a, loss: lb, after: step_a}
"""
"""The second gradient runs through the weights before and after the first step."""


def test_two_live_versions_of_one_model_are_an_error_on_pytorch_only():
    assert codes(TWO_VERSIONS) == ["E-TWO-VERSIONS", "W-MIXED"]
    assert codes(TWO_VERSIONS, backend="tensorflow") == ["W-MIXED"]


def test_two_live_versions_are_told_with_the_reason_of_every_edge():
    found = problems(TWO_VERSIONS)[0]
    assert "apply step_a -> forward again -> evaluate both" in found.message
    assert found.notes[0] == "apply step_a before forward again: again is declared `after: step_a`"
    assert found.notes[-1].startswith(
        "gradient twice before apply step_a: gradient twice still reads a.params@0 through fa"
    )
    assert len(found.notes) == found.message.count("->")


def test_both_remedies_of_two_live_versions_help():
    snapshot = TWO_VERSIONS.replace("fa: {forward: a, inputs: x}", "fa: {forward: a, inputs: x, snapshot: true}")
    assert codes(snapshot) == ["W-MIXED"]
    ordered = TWO_VERSIONS.replace("inputs: [fa, again]", "inputs: [late, again]") + (
        "  late: {forward: a, inputs: x, after: step_a}\n"
    )
    assert codes(ordered) == []


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_the_numbers_of_a_kept_version_do_not_depend_on_the_backend(backend):
    plan = compiled(SHARED, backend=backend, order="listed")
    assert reads(plan, "fb") == ["b.params@0"]
    assert find_instruction(plan, "apply step_b")["writes"][0] == "b.params@1"
