"""P(g): which ops lie on a differentiable path from a gradient's targets to its loss."""

from __future__ import annotations

from tests.compiler.conftest import PRELUDE, compiled, graph_of, program


def path(ops: str, gradient: str) -> set[str]:
    """Return P(g) of one gradient of a step written as text."""
    return set(graph_of(compiled(ops, prelude=f"{PRELUDE}join_calls: false\n")).paths[gradient].nodes)


def test_the_path_of_a_discriminator_leaves_the_generator_out():
    paths = graph_of(program("dcgan")).paths
    assert paths["step_d.gradient"].nodes == {"on_real", "d_real", "d_fake", "d_loss"}  # one call


def test_the_path_of_a_generator_runs_through_the_discriminator_that_judges_it():
    assert graph_of(program("dcgan")).paths["step_g.gradient"].nodes == {"fake", "judged", "g_loss"}


def test_what_lies_before_the_target_is_not_on_the_path():
    assert path(
        """
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: fa}
  l: {loss: mse, inputs: [fb, y]}
  step: {update: b, loss: l}
""",
        "step.gradient",
    ) == {"fb", "l"}


def test_stop_on_a_forward_ends_the_path():
    ops = """
  fa: {forward: a, inputs: x, stop: STOP}
  fb: {forward: b, inputs: fa}
  fc: {forward: c, inputs: fb}
  direct: {forward: a, inputs: y}
  both: {call: add, inputs: [fc, direct]}
  l: {loss: mse, inputs: [both, y]}
  step: {update: a, loss: l}
"""
    assert path(ops.replace("STOP", "true"), "step.gradient") == {"direct", "both", "l"}
    assert path(ops.replace("STOP", "false"), "step.gradient") == {"fa", "fb", "fc", "direct", "both", "l"}


def test_stop_as_a_call_and_calls_without_derivative_end_the_path():
    for call in ("stop", "argmax"):
        ops = f"""
  fa: {{forward: a, inputs: x}}
  cut: {{call: {call}, inputs: fa}}
  both: {{call: mul, inputs: [fa, cut]}}
  l: {{loss: mse, inputs: [both, y]}}
  step: {{update: a, loss: l}}
"""
        assert path(ops, "step.gradient") == {"fa", "both", "l"}


def test_a_gradient_with_respect_to_a_value_starts_where_the_value_is_used():
    assert path(
        """
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: fa}
  l: {loss: mse, inputs: [fb, y]}
  slope: {gradient: l, wrt: fa}
outputs: [slope]""",
        "slope",
    ) == {"fb", "l"}


def test_a_gradient_with_respect_to_an_input_reaches_all_that_is_made_from_it():
    assert path(
        """
  fa: {forward: a, inputs: x}
  other: {forward: c, inputs: y}
  both: {call: add, inputs: [fa, other]}
  l: {loss: mse, inputs: [both, y]}
  slope: {gradient: l, wrt: x}
outputs: [slope]""",
        "slope",
    ) == {"fa", "both", "l"}


def test_a_second_derivative_brings_the_whole_inner_path():
    paths = graph_of(program("wgan_gp"), "train_step_1").paths
    assert paths["slope"].nodes == {"on_between", "score"}
    inner = {"slope", "on_between", "score", "steepness", "penalty"}
    assert paths["step_critic.gradient"].nodes >= inner


def test_the_inner_path_belongs_to_the_outer_one_even_where_it_runs_through_other_models():
    assert path(
        """
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: fa}
  score: {call: sum, inputs: fb}
  slope: {gradient: score, wrt: x}
  l: {loss: mse, inputs: [slope, 1.0]}
  step: {update: b, loss: l}
""",
        "step.gradient",
    ) == {"fa", "fb", "score", "slope", "l"}


def test_a_stopped_gradient_is_a_constant():
    paths = graph_of(program("fgsm")).paths
    assert paths["step.gradient"].nodes == {"clean", "clean_loss", "scores", "hard_loss", "loss"}


def test_a_model_whose_call_is_not_on_the_path_is_not_read_by_the_gradient():
    plan = compiled("""
  fb: {forward: b, inputs: x}
  fa: {forward: a, inputs: fb}
  la: {loss: mse, inputs: [fa, y]}
  lb: {loss: mse, inputs: [fb, y]}
  step_b: {update: b, loss: lb}
  step_a: {update: a, loss: la}
""")
    kept = {(edge.before, edge.after) for edge in graph_of(plan).hazards if edge.hazard.value == "backward-war"}
    assert ("step_a.gradient", "step_b") not in kept
    assert ("step_b.gradient", "step_b") in kept


def test_a_metric_passes_no_gradient():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  seen: {metric: mean, inputs: fa}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
""")
    assert "seen" not in graph_of(plan).paths["step_a.gradient"].nodes
