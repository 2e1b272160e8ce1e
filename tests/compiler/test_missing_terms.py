"""Terms that are not there in every step of their update are warned of."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import SpecError, load

SPEC = """
graphspec: 1
name: terms
inputs: {x: {shape: [batch, 3]}, y: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  fit: {loss: mse, inputs: [out, y]}
  extra: {loss: mse, inputs: [out, 0.0], EXTRA}
  aside: {loss: huber, inputs: [out, 0.0], dataset: two}
  loss: {call: add, inputs: [fit, extra]}
  step: {update: net, loss: loss, STEP}
"""


def warnings_of(extra: str, step: str) -> dict[str, str]:
    plan = compile_step(load(SPEC.replace("EXTRA", extra).replace("STEP", step).lstrip()))
    return {each.code: each.message for each in plan.warnings if each.code in ("W-LAZY", "W-DATASET")}


@pytest.mark.parametrize(
    ("extra", "step"),
    [
        ("every: 4", "every: 1"),
        ("every: 4, lazy: none", "every: 2"),
        ("weight: 2.0", "every: 2"),
        ("every: 4, lazy: none", "every: 4"),
        ("every: 4, lazy: scale", "every: 4"),
        ("every: 4, lazy: scale", "every: 2"),
    ],
)
def test_a_term_that_counts_as_it_is_there_needs_no_warning(extra, step):
    assert "W-LAZY" not in warnings_of(extra, step)


def test_a_lazy_term_counts_steps_where_its_update_counts_others():
    assert (
        "counts 4 times, as a term of every 4 steps, but 'step' runs only in every 2 steps"
        in warnings_of("every: 4", "every: 2")["W-LAZY"]
    )


def test_so_does_one_whose_update_has_its_clock():
    assert (
        "counts 4 times, as a term of every 4 steps, but 'step' never runs without it"
        in warnings_of("every: 4", "every: 4")["W-LAZY"]
    )


def test_an_update_that_rests_for_one_of_its_terms_is_told():
    found = warnings_of("dataset: one", "every: 1")["W-DATASET"]
    assert found == "'step' does not fire on batches of 'two', where its term 'extra' is absent, although 'fit' is not"


FACTORS = {
    "two losses": "{call: mul, inputs: [fit, extra]}",
    "a quotient": "{call: div, inputs: [fit, extra]}",
    "inside a sum": "{call: add, inputs: [factor, fit]}",
}


@pytest.mark.parametrize("loss", FACTORS.values(), ids=FACTORS)
def test_so_is_one_that_rests_for_a_factor(loss):
    text = SPEC.replace("{call: add, inputs: [fit, extra]}", loss)
    text = text.replace("  aside:", "  factor: {call: mul, inputs: [fit, extra]}\n  aside:")
    plan = compile_step(load(text.replace("EXTRA", "dataset: one").replace("STEP", "every: 1").lstrip()))
    (found,) = (each for each in plan.warnings if each.code == "W-DATASET")
    assert (
        found.message
        == "'step' does not fire on batches of 'two', where its term 'extra' is absent, although 'fit' is not"
    )
    assert found.help == "write `dataset` on 'step' if you mean this, else remove `dataset` from 'extra'"


def test_one_loss_of_a_value_of_one_data_set_is_what_it_is():
    text = SPEC.replace("loss: {call: add, inputs: [fit, extra]}", "loss: {call: square, inputs: extra}")
    plan = compile_step(load(text.replace("EXTRA", "dataset: one").replace("STEP", "every: 1").lstrip()))
    assert "W-DATASET" not in {each.code for each in plan.warnings}


@pytest.mark.parametrize(("extra", "step"), [("dataset: one", "dataset: one"), ("weight: 2.0", "every: 1")])
def test_an_update_that_says_its_data_sets_or_runs_on_all_is_not(extra, step):
    assert warnings_of(extra, step) == {}


PENALIZED = """
graphspec: 1
name: penalized
inputs: {x: {shape: [batch, 3]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  slope: {gradient: "sum(out)", wrt: x, mode: MODE}
  penalty: {loss: mse, inputs: [slope, 0.0], every: 4}
  step: {update: net, loss: "mse(out, 0.0) + penalty"}
outputs: [penalty]
"""


@pytest.mark.parametrize(("mode", "codes"), [("train", []), ("[train, eval]", ["W-EVAL"]), ("[train, infer]", [])])
def test_a_lazy_loss_is_told_only_where_an_evaluation_computes_it(mode, codes):
    plan = compile_step(load(PENALIZED.replace("MODE", mode)))
    assert [each.code for each in plan.warnings] == codes


@pytest.mark.parametrize(("outputs", "column"), [("[penalty]", 11), ("[out, penalty]", 16), ("penalty", 10)])
def test_a_lazy_loss_is_told_at_the_outputs_that_have_evaluations_return_it(outputs, column):
    text = PENALIZED.replace("MODE", "[train, eval]").replace("outputs: [penalty]", f"outputs: {outputs}")
    (found,) = compile_step(load(text)).warnings
    assert found.span is not None
    assert (found.span.line, found.span.column) == (text.count("\n", 0, text.index("outputs:")) + 1, column)
    assert "write `mode: train` on 'penalty' (<text>:9:3)" in found.help


def test_a_lazy_value_that_is_no_loss_is_told_how_a_sum_does_without_it():
    text = PENALIZED.replace("{loss: mse, inputs: [slope, 0.0], every: 4}", '{expr: "mean(slope**2)", every: 4}')
    with pytest.raises(SpecError, match="write a `loss` op with `every`"):
        compile_step(load(text.replace("MODE", "train")))
