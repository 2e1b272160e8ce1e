"""Which version of a model every op sees: the writes in its causal past, and no others."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import load
from tests.compiler.conftest import compiled, find_instruction, problems, reads

BASE = """
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
"""
"""The first half of most steps below: a is called, judged and stepped."""


def after_base(ops: str, *, outputs: str = "late", order: str = "fewest", backend: str = "torch"):
    """Compile the first half with more ops behind it."""
    return compiled(f"{BASE}{ops}\noutputs: [{outputs}]", order=order, backend=backend)


def test_a_forward_without_after_reads_the_weights_of_the_start_wherever_it_is_listed():
    plan = after_base("  late: {forward: a, inputs: y}")
    assert reads(plan, "late") == ["a.params@0"]


def test_after_an_update_a_forward_reads_what_it_wrote():
    plan = after_base("  late: {forward: a, inputs: y, after: step_a}")
    assert reads(plan, "late") == ["a.params@1"]


def test_what_is_computed_from_a_forward_inherits_its_past():
    plan = after_base("""
  first: {forward: b, inputs: x, after: step_a}
  late: {forward: a, inputs: first}
""")
    assert reads(plan, "late") == ["a.params@1"]


def test_after_reaches_through_the_update_that_it_names():
    plan = after_base("""
  fb: {forward: b, inputs: x}
  lb: {loss: mse, inputs: [fb, y]}
  step_b: {update: b, loss: lb, after: step_a}
  late: {forward: a, inputs: y, after: step_b}
""")
    assert reads(plan, "late") == ["a.params@1"]


def test_after_on_an_update_orders_its_write_and_not_its_gradient():
    plan = after_base("""
  fb: {forward: b, inputs: fa}
  lb: {loss: mse, inputs: [fb, y]}
  step_b: {update: b, loss: lb, after: step_a}
  late: {forward: a, inputs: fb}
""")
    assert reads(plan, "fb") == ["b.params@0"]
    assert reads(plan, "late") == ["a.params@0"]


def test_losses_are_taken_at_the_start_of_the_step_when_nothing_says_otherwise():
    plan = after_base("""
  fb: {forward: b, inputs: fa}
  lb: {loss: mse, inputs: [fb, y]}
  step_b: {update: b, loss: lb}
  late: {call: add, inputs: [la, lb]}
""")
    assert {op: reads(plan, op) for op in ("fa", "fb")} == {"fa": ["a.params@0"], "fb": ["b.params@0"]}


def test_two_ordered_updates_make_two_versions():
    plan = after_base("""
  again: {forward: a, inputs: y, after: step_a}
  lb: {loss: mse, inputs: [again, y]}
  twice: {update: a, loss: lb}
  late: {forward: a, inputs: y, after: twice}
""")
    assert find_instruction(plan, "apply twice")["writes"] == ["a.params@2", "a.optimizer@2"]
    assert reads(plan, "late") == ["a.params@2"]


def test_ordered_updates_are_ordered_wherever_they_are_listed():
    plan = compiled("""
  again: {forward: a, inputs: y, after: step_a}
  lb: {loss: mse, inputs: [again, y]}
  twice: {update: a, loss: lb}
  step_a: {update: a, loss: la}
  la: {loss: mse, inputs: [fa, y]}
  fa: {forward: a, inputs: x}
""")
    assert find_instruction(plan, "apply twice")["writes"][0] == "a.params@2"


def test_an_op_absent_from_the_mode_passes_its_predecessors_on():
    plan = after_base("""
  only_eval: {forward: b, inputs: x, after: step_a, mode: eval}
  late: {forward: a, inputs: y, after: only_eval}
""")
    assert reads(plan, "late") == ["a.params@1"]


def test_an_update_absent_from_the_mode_is_void():
    plan = after_base("  late: {forward: a, inputs: y, after: step_a}")
    assert reads(plan, "late", mode="eval") == ["a.params@0"]


def test_an_op_that_does_not_fire_passes_its_predecessors_on():
    plan = compiled(f"""{BASE}
  fb: {{forward: b, inputs: x}}
  lb: {{loss: mse, inputs: [fb, y]}}
  step_b: {{update: b, loss: lb, after: step_a, every: 2}}
  late: {{forward: a, inputs: y, after: step_b}}
outputs: [late]""")
    versions = [one["reads"] for f in plan.to_json()["functions"] for one in f["instructions"] if one["op"] == "late"]
    assert versions == [["a.params@1"], ["a.params@1"]]


def test_an_update_that_does_not_fire_is_the_identity():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la, every: 2}
  late: {forward: a, inputs: y, after: step_a}
outputs: [late]""")
    versions = [one["reads"] for f in plan.to_json()["functions"] for one in f["instructions"] if one["op"] == "late"]
    assert versions == [["a.params@0"], ["a.params@1"]]


@pytest.mark.parametrize("follower", ["ema: a, into: slow_a, decay: 0.9", "copy: a, into: slow_a"])
def test_an_average_or_copy_comes_after_every_writer_of_its_source_by_itself(follower):
    plan = after_base(f"  follow: {{{follower}}}", outputs="la")
    kind = "blend" if follower.startswith("ema") else "assign"
    assert "a.params@1" in reads(plan, "follow", kind=kind)


def test_an_average_of_an_average_follows_it():
    plan = after_base(
        "  one: {ema: a, into: slow_a, decay: 0.9}\n  two: {ema: slow_a, into: slower_a, decay: 0.9}", outputs="la"
    )
    assert "slow_a.params@1" in reads(plan, "two", kind="blend")


def test_a_hidden_average_is_a_model_of_the_ops_name():
    plan = after_base("  shadow: {ema: a, decay: 0.9}\n  late: {forward: shadow, inputs: y, after: shadow}")
    assert reads(plan, "late") == ["shadow.params@1"]


def test_what_comes_after_an_average_sees_all_its_source_has_seen():
    plan = after_base("  follow: {ema: a, into: slow_a, decay: 0.9}\n  late: {forward: a, inputs: y, after: follow}")
    assert reads(plan, "late") == ["a.params@1"]


def test_train_mode_forwards_of_one_model_run_in_listed_order():
    plan = compiled("""
  second: {forward: n, inputs: y}
  first: {forward: n, inputs: x}
  l: {loss: mse, inputs: [first, second]}
  step: {update: n, loss: l}
""")
    assert find_instruction(plan, "forward second")["writes"] == ["n.buffers@1"]
    assert find_instruction(plan, "forward first")["writes"] == ["n.buffers@2"]


def test_a_train_mode_forward_waits_for_those_in_its_past_and_not_for_the_listing():
    plan = compiled("""
  late: {forward: n, inputs: y, after: step}
  first: {forward: n, inputs: x}
  l: {loss: mse, inputs: [first, y]}
  step: {update: n, loss: l}
outputs: [late]""")
    assert find_instruction(plan, "forward first")["writes"] == ["n.buffers@1"]
    assert find_instruction(plan, "forward late")["writes"] == ["n.buffers@2"]


def test_the_order_of_train_mode_forwards_gives_no_version_of_the_weights():
    plan = compiled("""
  first: {forward: n, inputs: x}
  l: {loss: mse, inputs: [first, y]}
  step: {update: n, loss: l}
  other: {forward: n, inputs: y}
outputs: [other]""")
    assert reads(plan, "other") == ["n.params@0", "n.buffers@1"]


def test_an_eval_mode_forward_reads_the_statistics_of_its_past_only():
    plan = compiled("""
  first: {forward: n, inputs: x}
  calm: {forward: n, inputs: x, train: false}
  behind: {forward: n, inputs: first, train: false}
  l: {loss: mse, inputs: [first, y]}
  step: {update: n, loss: l}
outputs: [calm, behind]""")
    assert reads(plan, "calm") == ["n.params@0", "n.buffers@0"]
    assert reads(plan, "behind") == ["n.params@0", "n.buffers@1"]


def test_averaged_buffers_are_those_of_the_last_train_mode_forward():
    plan = compiled("""
  first: {forward: n, inputs: x}
  second: {forward: n, inputs: y}
  l: {loss: mse, inputs: [first, y]}
  step: {update: n, loss: l}
  follow: {ema: n, into: slow_n, decay: 0.9, buffers: copy}
outputs: [second]""")
    assert {"n.params@1", "n.buffers@2"} <= set(reads(plan, "follow", kind="blend"))


def test_an_average_that_ignores_buffers_still_comes_after_all_train_mode_forwards_of_its_source():
    plan = compiled("""
  first: {forward: n, inputs: x}
  l: {loss: mse, inputs: [first, y]}
  step: {update: n, loss: l}
  second: {forward: n, inputs: y}
  follow: {ema: n, into: slow_n, decay: 0.9, buffers: ignore}
  late: {forward: n, inputs: x, train: false, after: follow}
outputs: [second, late]""")
    assert reads(plan, "late") == ["n.params@1", "n.buffers@2"]


def test_models_updated_together_are_stepped_at_one_version():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: fa}
  l: {loss: mse, inputs: [fb, y]}
  step: {update: [a, b], loss: l}
""")
    assert find_instruction(plan, "apply step")["writes"] == [
        "a.params@1",
        "b.params@1",
        "a.optimizer@1",
        "b.optimizer@1",
    ]


def test_tied_weights_are_one_cell_that_both_models_read():
    classes = """\
graphspec: 1
name: tied
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 4]}}
models:
  a: {class: "zoo:A", traits: {buffers: false, rng: false, batch_coupled: false}}
  b: {class: "zoo:B", traits: {buffers: false, rng: false, batch_coupled: false, ties: [a.weight]}}
"""
    ops = """
  fa: {forward: a, inputs: x}
  l: {loss: mse, inputs: [fa, y]}
  step: {update: a, loss: l, optimizer: sgd}
  late: {forward: b, inputs: x, after: step}
outputs: [late]"""
    assert reads(compiled(ops, prelude=classes), "late") == ["b.params@0", "tied(a, b)@1"]


@pytest.mark.parametrize("order", ["fewest", "listed", "latest", "memory"])
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_versions_depend_on_neither_policy_nor_backend(order, backend):
    ops = "  late: {forward: a, inputs: y, after: step_a}\n  early: {forward: a, inputs: y}"
    plan = after_base(ops, outputs="early, late", order=order, backend=backend)
    assert (reads(plan, "early"), reads(plan, "late")) == (["a.params@0"], ["a.params@1"])


def test_a_value_that_is_not_computed_in_a_mode_takes_its_users_out_of_it():
    ops = """
  fa: {forward: a, inputs: x, mode: train}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
outputs: [la]"""
    assert problems(ops) == []
    assert [one["op"] for one in compiled(ops).to_json("eval")["functions"][0]["instructions"]] == ["outputs"]


def test_a_forward_that_only_evaluates_writes_no_statistics_that_an_average_must_follow():
    plan = compile_step(
        load("""
graphspec: 1
name: shown
inputs: {x: {shape: [batch, 4]}}
models: {net: {layers: [{linear: 4}, batch_norm], optimizer: sgd}, slow: {like: net}}
ops:
  out: {forward: net, inputs: x}
  far: {loss: mse, inputs: [out, x]}
  step: {update: net, loss: far}
  follow: {ema: net, into: slow, decay: 0.99, buffers: copy}
  shown: {forward: net, inputs: x, mode: eval, after: follow}
outputs: [far, shown]
""")
    )
    (follow,) = (each for each in plan.to_json()["functions"][0]["instructions"] if each["op"] == "follow")
    assert "net.buffers@1" in follow["reads"]
    (shown,) = (each for each in plan.to_json("eval")["functions"][0]["instructions"] if each["op"] == "shown")
    assert shown["reads"] == ["net.params@0", "net.buffers@0"]
    assert "writes" not in shown
