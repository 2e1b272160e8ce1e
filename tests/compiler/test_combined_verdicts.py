"""The verdicts of updates that are skipped together are one value: what plans, orders and emitted code make of it."""

from __future__ import annotations

import pytest

from compiler import Plan
from runtime.api import emit
from tests.compiler.conftest import PRELUDE, compiled

SCALED = PRELUDE + "precision: {loss_scale: dynamic}\n"
THREE = """
fa: {forward: a, inputs: x}
fb: {forward: b, inputs: x}
fc: {forward: c, inputs: x}
la: {loss: mse, inputs: [fa, y]}
lb: {loss: mse, inputs: [fb, y]}
lc: {loss: mse, inputs: [fc, y]}
step_a: {update: a, loss: la}
step_b: {update: b, loss: lb}
step_c: {update: c, loss: lc}
"""


def many(updates: int) -> str:
    """Return a document of as many models, each with one update, under a loss scale."""
    names = range(updates)
    models = "".join(f"  m{at}: {{layers: [{{linear: 1}}], optimizer: sgd}}\n" for at in names)
    ops = "".join(
        f"f{at}: {{forward: m{at}, inputs: x}}\nl{at}: {{loss: mse, inputs: [f{at}, 0.0]}}\n"
        f"u{at}: {{update: m{at}, loss: l{at}}}\n"
        for at in names
    )
    prelude = "graphspec: 1\nname: many\ninputs: {x: {shape: [batch, 2]}}\nprecision: {loss_scale: dynamic}\n"
    return f"{prelude}models:\n{models}", ops


def lines_of(plan: Plan) -> list[str]:
    """Return the lines of a plan's text."""
    return str(plan).splitlines()


@pytest.mark.parametrize("order", ["fewest", "listed", "memory", "latest"])
def test_forwards_and_gradients_are_in_the_order_they_have_without_a_loss_scale(order):
    plain, scaled = (compiled(THREE, prelude=prelude, order=order) for prelude in (PRELUDE, SCALED))
    working = [
        [name for name in graph.sequence if graph.nodes[name].called or graph.nodes[name].derivative]
        for graph in (plain.graphs["train_step"], scaled.graphs["train_step"])
    ]
    assert working[0] == working[1]


def test_a_deferral_names_the_verdict_that_is_known_last():
    decisions = compiled(THREE, prelude=SCALED, order="listed").graphs["train_step"].decisions
    why = "takes place only if the gradients of step_a, step_b and step_c are finite"
    assert [each.text for each in decisions if each.code == "DEFER"] == [
        f"apply step_a is deferred after verdict step_c: apply step_a {why}",
        f"apply step_b is deferred after verdict step_c: apply step_b {why}",
    ]


def test_a_large_group_is_counted_and_not_listed_at_each_update():
    prelude, ops = many(7)
    plan = compiled(ops, prelude=prelude)
    said = [line for line in lines_of(plan) if line.startswith("  DEFER")]
    assert len(said) == 6
    assert all("if the gradients of all 7 updates of the group of u0 are finite" in line for line in said)
    listed = [line for line in lines_of(plan) if "u0.finite and u1.finite" in line]
    assert [line.split()[1] for line in listed] == ["all_finite"]


def test_the_text_under_a_loss_scale_grows_with_the_updates():
    sizes = [len(str(compiled(ops, prelude=prelude))) for prelude, ops in (many(20), many(40))]
    windowed = [
        len(str(compiled(ops.replace("update: m", "accumulate: 2, update: m"), prelude=prelude)))
        for prelude, ops in (many(20), many(40))
    ]
    assert sizes[1] < 2.2 * sizes[0]
    assert windowed[1] < 2.2 * windowed[0]


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_code_is_emitted_for_a_group_of_hundreds(backend):
    prelude, ops = many(400)
    source = emit(compiled(ops, prelude=prelude, backend=backend))
    compile(source, "many", "exec")
    assert source.count("u399_finite") < 8  # once where it is made, in the conjunction, and in the loss scale


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_code_is_emitted_for_an_average_that_follows_hundreds_of_updates(backend):
    ops = "f: {forward: a, inputs: x}\nl: {loss: mse, inputs: [f, y]}\nu0: {update: a, loss: l, on_overflow: own}\n"
    for at in range(1, 400):
        ops += f"u{at}: {{update: a, loss: l, after: u{at - 1}, on_overflow: own}}\n"
    ops += "slow: {ema: a, into: slow_a, decay: 0.9}\n"
    compile(emit(compiled(ops, prelude=SCALED, backend=backend)), "followed", "exec")


def test_iterations_with_two_updates_are_folded():
    ops = """
loop: {repeat: 4, ops: {
  fa: {forward: a, inputs: x},
  fb: {forward: b, inputs: fa},
  la: {loss: mse, inputs: [fb, y]},
  lb: {loss: mse, inputs: [fb, x]},
  step_a: {update: a, loss: la},
  step_b: {update: b, loss: lb},
}}
"""
    found = [line.split(None, 2)[2] for line in lines_of(compiled(ops, prelude=SCALED)) if " repeat " in line]
    assert [line.split("  ")[0] for line in found] == ["iterations 2 to 4 of loop: the same as the first"]


def test_an_op_that_is_called_like_a_group_keeps_its_own_verdict():
    ops = THREE.replace("step_c", "step_a.group").replace("loss: lc", "loss: lc, after: [step_a], on_overflow: own")
    graph = compiled(ops, prelude=SCALED).graphs["train_step"]
    assert graph.commits["step_a"] == graph.commits["step_b"] == (("step_a#group.finite",),)
    assert graph.commits["step_a.group"] == (("step_a.group.finite",),)


def test_what_holds_a_group_is_one_sentence():
    text = str(compiled(THREE.replace("loss: lc", "loss: lc, on_overflow: own"), prelude=SCALED))
    assert text.split("\n\noverflow\n")[1].splitlines()[1:3] == [
        "  step_a and step_b are held if gradients of step_a or step_b are not finite (one group)",
        "  step_c is held if gradients of step_c are not finite",
    ]
    windows = str(compiled(THREE.replace("loss: l", "accumulate: 2, loss: l"), prelude=SCALED))
    assert windows.split("\n\noverflow\n")[1].splitlines()[1:2] == [
        "  step_a and step_b and step_c leave a step out of their windows if gradients of step_a or step_b or step_c "
        "are not finite; each is held if no step is left or what it accumulated is not finite"
    ]


def test_an_average_is_explained_with_the_verdicts_it_depends_on():
    plan = compiled(THREE + "slow: {ema: a, into: slow_a, decay: 0.9}\n", prelude=SCALED)
    combined = "  all_finite step_a#group.finite = step_a.finite and step_b.finite and step_c.finite"
    assert combined in plan.explain("slow").splitlines()
