"""What is inferred about the autograd graph, and for how long values and graphs live."""

from __future__ import annotations

import pytest

from compiler import Plan
from tests.compiler.conftest import APART, compiled, decided, find_instruction, graph_of, program

PENALTY = """
  fake: {forward: a, inputs: x}
  on_fake: {forward: b, inputs: fake}
  score: {call: sum, inputs: on_fake}
  slope: {gradient: score, wrt: fake, stop: STOP}
  l: {loss: mse, inputs: [slope, 1.0]}
  plain: {loss: mse, inputs: [on_fake, y]}
  total: {call: add, inputs: TERMS}
  step: {update: b, loss: total}
"""


def flags_of(plan: Plan, event: str) -> tuple[bool, bool]:
    """Return retain_graph and create_graph of a gradient."""
    instruction = find_instruction(plan, event)
    return instruction["retain_graph"], instruction["create_graph"]


def test_a_graph_is_kept_exactly_for_a_later_gradient_through_it():
    plan = program("autoencoder", settings=APART)
    assert flags_of(plan, "gradient step_encoder") == (True, False)
    assert flags_of(plan, "gradient step_decoder") == (False, False)


def test_graphs_that_share_only_values_are_not_kept():
    plan = program("dcgan")
    assert flags_of(plan, "gradient step_d") == (False, False)
    assert flags_of(plan, "gradient step_g") == (False, False)


def test_a_shared_call_keeps_the_graph_of_the_first_gradient_alone():
    plan = program("simultaneous_gan")
    assert flags_of(plan, "gradient step_g") == (True, False)
    assert flags_of(plan, "gradient step_d") == (False, False)


def test_a_kept_graph_is_told_with_the_ops_it_is_kept_for():
    decision = next(one for one in graph_of(program("autoencoder", settings=APART)).decisions if one.code == "RETAIN")
    assert (
        decision.text == "gradient step_encoder keeps its graph: gradient step_decoder runs through rebuilt, loss too"
    )
    assert (decision.because[0].op, decision.because[0].through) == ("step_decoder", ("rebuilt", "loss"))


def test_a_gradient_that_is_differentiated_again_is_recorded():
    ops = PENALTY.replace("STOP", "false").replace("TERMS", "[plain, l]")
    assert flags_of(compiled(ops), "gradient slope") == (True, True)
    assert decided(compiled(ops), "CREATE_GRAPH") == {"slope"}


def test_a_stopped_gradient_is_not_recorded():
    ops = PENALTY.replace("STOP", "true").replace("TERMS", "[plain, plain]") + "outputs: [l]\n"
    assert flags_of(compiled(ops), "gradient slope") == (True, False)


def test_adversarial_noise_under_stop_needs_no_second_derivative():
    assert flags_of(program("fgsm"), "gradient slope") == (True, False)


def test_a_forward_without_gradient_runs_without_a_graph():
    plan = program("td3")
    quiet = {"planned", "next_1", "next_2"}
    assert quiet <= decided(plan, "NO_GRAD", "train_step_1")
    assert not any(find_instruction(plan, f"forward {op}")["graph"] for op in quiet)


def test_only_the_weights_that_nobody_differentiates_are_frozen():
    plan = program("td3")
    judged = find_instruction(plan, "forward worth", function=1)
    assert (judged["graph"], judged["frozen"]) == (True, True)
    assert decided(plan, "FREEZE", "train_step_2") == {"worth"}


def test_a_forward_that_serves_its_own_update_too_is_not_frozen():
    assert decided(program("simultaneous_gan"), "FREEZE") == set()


def test_a_fake_image_enters_the_discriminators_loss_detached():
    plan = program("dcgan")
    assert find_instruction(plan, "forward on_real")["joined"] == ["on_real", "on_fake"]
    assert find_instruction(plan, "forward on_real")["detached"] == ["fake"]
    assert find_instruction(plan, "forward judged")["detached"] == []


def test_a_value_is_not_detached_where_any_gradient_passes():
    assert find_instruction(program("simultaneous_gan"), "forward on_fake")["detached"] == []


def test_a_target_with_a_graph_of_its_own_enters_a_loss_detached():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  lb: {loss: mse, inputs: [fb, fa]}
  step_a: {update: a, loss: la}
  step_b: {update: b, loss: lb}
""")
    assert find_instruction(plan, "evaluate lb")["detached"] == ["fa"]


def test_nothing_is_recorded_in_a_mode_without_gradients():
    instructions = program("dcgan").to_json("eval")["functions"][0]["instructions"]
    assert {one["graph"] for one in instructions if "graph" in one} == {False}


@pytest.mark.parametrize("name", ["dcgan", "td3", "wgan_gp", "sac", "cyclegan_separate", "fgsm"])
def test_every_value_is_forgotten_right_after_its_last_use_and_never_before(name):
    for function in program(name).to_json()["functions"]:
        alive: dict[str, int] = {}
        last_use: dict[str, int] = {}
        released: dict[str, int] = {}
        for position, one in enumerate(function["instructions"]):
            used = [
                *one.get("inputs", []),
                one.get("loss"),
                *one.get("targets", []),
                *(one["values"] if one["kind"] == "emit" else []),
            ]
            last_use |= {value: position for value in used if value in alive}
            released |= dict.fromkeys(one["values"], position) if one["kind"] == "release" else {}
            alive |= dict.fromkeys(one.get("outputs", []), position)
        returned = set(function["instructions"][-1]["values"])
        assert set(released) == set(alive) - returned
        assert all(last_use.get(value, alive[value]) < position for value, position in released.items())
        between = [(value, last_use.get(value, alive[value]), position) for value, position in released.items()]
        kinds = [one["kind"] for one in function["instructions"]]
        assert all(set(kinds[use + 1 : position]) <= {"release"} for _, use, position in between)
