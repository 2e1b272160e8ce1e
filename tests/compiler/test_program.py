"""What a program declares besides its instructions: models, optimizers, averages, and what was observed."""

from __future__ import annotations

import pytest

from compiler import Observations, Observed, compile_step
from compiler.facts.models import describe_models
from graphspec.loading import load
from tests.compiler.conftest import compiled, document, find_instruction, program

STEP_A = """
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
"""
UNSEEN = """\
graphspec: 1
name: unseen
inputs: {x: {}, y: {}}
models:
  a: {class: "zoo:A", optimizer: sgd}
  slow_a: {like: a}
"""


def test_a_likeness_is_declared_after_what_it_is_like():
    prelude = document("  z: {call: neg, inputs: x}").split("ops:")[0]
    swapped = prelude.replace("  slow_a: {like: a}\n", "").replace("models:\n", "models:\n  slow_a: {like: a}\n")
    followed = STEP_A + "  follow: {ema: a, into: slow_a, decay: 0.9}\n"
    models = [model.name for model in compiled(followed, prelude=swapped).program.models]
    assert models.index("a") < models.index("slow_a")


def test_an_average_without_a_target_declares_its_hidden_model():
    shadow = compiled(STEP_A + "  shadow: {ema: a, decay: 0.9}\n").program.model("shadow")
    assert (shadow.like, shadow.initial, shadow.trained) == ("a", "copy", False)


def test_a_fresh_likeness_draws_weights_of_its_own():
    declared = program("td3").program
    assert (declared.model("critic_2").like, declared.model("critic_2").initial) == ("critic_1", "own")
    assert declared.model("critic_1_slow").initial == "copy"


def test_models_that_updates_write_are_trained():
    trained = {model.name for model in program("td3").program.models if model.trained}
    assert trained == {"actor", "critic_1", "critic_2"}


def test_only_optimizers_that_some_update_uses_are_declared():
    optimizers = {one.name: one.models for one in compiled(STEP_A).program.optimizers}
    assert optimizers == {"a": ("a",)}


def test_an_update_with_an_optimizer_of_its_own_has_one_cell_for_all_its_models():
    plan = program("byol")
    assert [(one.name, one.models) for one in plan.program.optimizers] == [("step", ("online", "predictor"))]
    assert "step.optimizer@1" in find_instruction(plan, "apply step")["writes"]


def test_an_update_of_several_models_steps_each_with_its_own_optimizer():
    ops = STEP_A.replace("inputs: [fa, y]", "inputs: [fb, y]").replace("update: a", "update: [a, b]")
    plan = compiled(ops + "  fb: {forward: b, inputs: fa}\n")
    assert find_instruction(plan, "apply step_a")["optimizers"] == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "decay"),
    [
        ("decay: 0.99", 0.99),
        ("tau: 0.005", 0.995),
        ("half_life: 500 updates", 2 ** (-1 / 500)),
        ("decay: 0.99, every: 10", 0.99),
        ("tau: 0.005, every: 10", 0.995),
        ("half_life: 500 updates, every: 10", 2 ** (-10 / 500)),
        ("half_life: 500 updates, every: 10, interval_correction: none", 2 ** (-1 / 500)),
        ("decay: 0.99, every: 10, interval_correction: compound", 0.99**10),
    ],
)
def test_an_average_keeps_what_its_rate_and_interval_say(given, decay):
    plan = compiled(STEP_A + f"  follow: {{ema: a, into: slow_a, {given}}}\n")
    functions = range(len(plan.to_json()["functions"]))
    firing = next(i for i in functions if "follow" in plan.to_json()["functions"][i]["active"])
    assert find_instruction(plan, "blend follow", function=firing)["decay"] == pytest.approx(decay, rel=1e-12)


def test_what_was_observed_takes_the_place_of_what_was_assumed():
    spec = load(document(STEP_A + "  follow: {ema: a, into: slow_a, decay: 0.9}\n", UNSEEN))
    seen = Observations(models={"a": Observed(buffers=False, rng=False, batch_coupled=False)})
    plan = compile_step(spec, observed=seen)
    assert (plan.warnings, plan.notes) == ((), ())
    assert plan.to_json()["functions"][0]["instructions"][0]["reads"] == ["a.params@0"]


def test_observed_buffers_are_written_by_forwards_in_train_mode():
    seen = Observations(models={"a": Observed(buffers=True, rng=False, batch_coupled=True)})
    plan = compile_step(load(document(STEP_A, UNSEEN)), observed=seen)
    assert find_instruction(plan, "forward fa")["writes"] == ["a.buffers@1"]


def test_declared_traits_are_not_assumed():
    declared = UNSEEN.replace('zoo:A",', 'zoo:A", traits: {buffers: false, rng: true},')
    assert compiled(STEP_A, prelude=declared).notes[0].endswith("traits: batch_coupled, no recomputed forwards")


def test_layers_are_known_exactly():
    facts = describe_models(load(document(STEP_A)), None)
    assert (facts["a"].buffers, facts["n"].buffers, facts["slow_n"].buffers) == (False, True, True)
    assert all(not known.assumed for known in facts.values())


def test_a_shared_optimizer_steps_given_gradient_sets_joined():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: fa}
  la: {loss: mse, inputs: [fb, y]}
  ga: {gradient: la, wrt: a}
  gb: {gradient: la, wrt: b}
  step: {update: [a, b], gradients: [ga, gb], clip: {norm: 1.0}, optimizer: sgd}
""")
    joined, clipped = (one for one in plan.to_json()["functions"][0]["instructions"] if one["kind"] == "transform")
    assert (joined["function"], joined["inputs"]) == ("join", ["ga", "gb"])
    assert (clipped["function"], clipped["inputs"]) == ("clip_norm", joined["outputs"])
    assert find_instruction(plan, "apply step")["inputs"] == clipped["outputs"]


def test_sums_of_gradient_sets_are_sets_that_updates_apply():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  lb: {loss: l1, inputs: [fa, y]}
  ga: {gradient: la, wrt: a}
  gb: {gradient: lb, wrt: a}
  both: {call: add, inputs: [ga, gb]}
  step: {update: a, gradients: both}
""")
    assert find_instruction(plan, "apply step")["inputs"] == ["both"]
    assert find_instruction(plan, "apply step")["writes"] == ["a.params@1", "a.optimizer@1"]
