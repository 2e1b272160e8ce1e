"""Where updates stand: which of them must wait, under every order policy."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from compiler import compile_step
from graphspec.loading import load
from tests.compiler.conftest import APART, PROGRAMS, compiled, compiled_document, deferred, events, graph_of, program

POLICIES = ("fewest", "listed", "latest", "memory")


def listed_first(name: str, update: str) -> str:
    """Return a program with one of its updates listed before all other ops."""
    text = (PROGRAMS / f"{name}.yaml").read_text(encoding="utf-8")
    line = re.search(rf"^  {update}: .*\n", text, re.MULTILINE).group()
    return text.replace(line, "").replace("ops:\n", f"ops:\n{line}")


@pytest.mark.parametrize(
    ("name", "first", "waiting"),
    [
        ("generator_first", "step_g", set()),
        ("simultaneous_gan", "step_d", {"step_d"}),
        ("autoencoder", "step_decoder", {"step_decoder"}),
        ("autoencoder", "step_encoder", set()),
        ("independent", "step_a", set()),
        ("sac_simultaneous", "step_critic", {"step_critic"}),
        ("sac_simultaneous", "step_policy", set()),
        ("dcgan", "step_d", set()),
    ],
)
def test_in_listed_order_exactly_the_updates_wait_that_exhaustive_search_found(name, first, waiting):
    source = listed_first(name, first)
    assert deferred(compiled_document(source, order="listed", settings=APART)) == waiting
    assert deferred(compiled_document(source, order="fewest", settings=APART)) == set()


def test_three_independent_models_keep_no_graph():
    plan = program("independent", order="listed")
    assert graph_of(plan).flags.retained == {}
    assert [event for event in events(plan) if "step" in event] == [
        f"{kind} step_{name}" for name in "abc" for kind in ("gradient", "apply")
    ]


@pytest.mark.parametrize("order", ["fewest", "listed", "memory"])
@pytest.mark.parametrize("first", ["step_to_a", "step_to_b"])
def test_separate_translators_defer_exactly_one_update_in_every_order(order, first):
    plan = compiled_document(listed_first("cyclegan_separate", first), order=order)
    assert len(deferred(plan)) == 1
    assert deferred(plan) <= {"step_to_a", "step_to_b"}


def test_one_update_of_both_translators_defers_nothing():
    assert deferred(program("cyclegan", order="listed")) == set()


@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.yaml")))
def test_tensorflow_never_has_to_wait_in_a_published_program(name):
    plan = program(name, backend="tensorflow", order="listed")
    assert [function for function in plan.graphs if deferred(plan, function)] == []


def test_the_listed_order_is_the_order_of_the_gradients():
    plan = program("autoencoder", order="listed", settings=APART)
    assert [event for event in events(plan) if "step" in event] == [
        "gradient step_decoder",
        "gradient step_encoder",
        "apply step_decoder",
        "apply step_encoder",
    ]


def test_the_fewest_order_takes_the_gradient_first_that_the_other_update_would_wait_for():
    assert [event for event in events(program("autoencoder", settings=APART)) if "step" in event] == [
        "gradient step_encoder",
        "apply step_encoder",
        "gradient step_decoder",
        "apply step_decoder",
    ]


def test_ties_are_broken_by_the_listing():
    plan = compiled_document(listed_first("independent", "step_c"))
    assert [event for event in events(plan) if event.startswith("apply")] == [
        "apply step_c",
        "apply step_a",
        "apply step_b",
    ]


def test_latest_puts_every_write_behind_every_gradient():
    sequence = events(program("cyclegan_separate", order="latest"))
    last = max(index for index, event in enumerate(sequence) if event.startswith("gradient"))
    assert min(index for index, event in enumerate(sequence) if event.startswith("apply")) > last


def test_latest_still_writes_before_what_must_see_the_write():
    sequence = events(program("dcgan", order="latest"))
    assert sequence.index("apply step_d") < sequence.index("forward judged")


def test_latest_defers_what_could_have_stood_earlier_and_says_so():
    plan = program("independent", order="latest")
    assert deferred(plan) == {"step_a", "step_b"}
    decision = next(one for one in graph_of(plan).decisions if one.code == "DEFER")
    assert decision.text == "apply step_a is deferred: the order `latest` puts every write as late as it may"
    assert [(why.edge, why.op) for why in decision.because] == [("order", "step_a")]


def test_memory_takes_independent_chains_one_after_the_other():
    sequence = events(program("independent", order="memory"))
    assert sequence.index("apply step_a") < sequence.index("forward from_b") < sequence.index("apply step_b")


def test_memory_finishes_a_graph_before_it_starts_the_next():
    ops = """
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: fa}
  lb: {loss: mse, inputs: [fb, y]}
  fc: {forward: c, inputs: x}
  lc: {loss: mse, inputs: [fc, y]}
  step_b: {update: b, loss: lb}
  step_c: {update: c, loss: lc}
  step_a: {update: a, loss: lb}
"""
    gradients = [event for event in events(compiled(ops, order="memory")) if event.startswith("gradient")]
    assert gradients in (
        ["gradient step_c", "gradient step_b", "gradient step_a"],
        ["gradient step_c", "gradient step_a", "gradient step_b"],
        ["gradient step_b", "gradient step_a", "gradient step_c"],
        ["gradient step_a", "gradient step_b", "gradient step_c"],
    )


def test_a_deferral_names_what_it_waits_for_and_why():
    plan = program("simultaneous_gan", order="listed")
    decision = next(one for one in graph_of(plan).decisions if one.code == "DEFER")
    assert decision.text == (
        "apply step_d is deferred after gradient step_g: "
        "gradient step_g still reads discriminator.params@0 through on_fake (simultaneous_gan.yaml:12:3)"
    )
    reason = decision.because[0]
    assert (reason.edge, reason.op, reason.cell) == ("backward-war", "step_g", "discriminator.params@0")
    assert (reason.through, reason.place) == (("on_fake",), "simultaneous_gan.yaml:12:3")


def test_two_stale_updates_of_one_model_wait_once_where_one_order_allows_it():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
  other: {forward: a, inputs: y, after: []}
  lb: {loss: mse, inputs: [other, y]}
  twice: {update: a, loss: lb, after: step_a}
""")
    assert deferred(plan) == {"twice"}


def test_an_update_of_several_given_gradients_counts_from_the_last_of_them():
    plan = compiled(
        """
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  ga: {gradient: la, wrt: a}
  fc: {forward: c, inputs: x}
  lc: {loss: mse, inputs: [fc, y]}
  fb: {forward: b, inputs: x}
  judged: {forward: c, inputs: fb, after: step_c}
  lb: {loss: mse, inputs: [judged, y]}
  gb: {gradient: lb, wrt: b}
  step: {update: [a, b], gradients: [ga, gb]}
  step_c: {update: c, loss: lc}
""",
        order="listed",
    )
    assert deferred(plan) == set()


def test_a_forward_that_must_see_the_old_weights_does_not_stand_between_gradient_and_write():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
  old: {forward: a, inputs: y}
outputs: [old]""")
    sequence = events(plan)
    assert sequence.index("apply step_a") == sequence.index("gradient step_a") + 1
    assert sequence.index("forward old") < sequence.index("apply step_a")
    assert deferred(plan) == set()


def test_defer_end_puts_a_write_at_the_end():
    ops = """
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la, defer: end}
  fb: {forward: b, inputs: x}
  lb: {loss: mse, inputs: [fb, y]}
  step_b: {update: b, loss: lb}
"""
    assert events(compiled(ops))[-2:] == ["apply step_b", "apply step_a"]
    assert deferred(compiled(ops)) == {"step_a"}


@pytest.mark.parametrize("never", ["step_to_a", "step_to_b"])
def test_fewest_spares_an_update_that_says_never(never):
    source = (PROGRAMS / "cyclegan_separate.yaml").read_text(encoding="utf-8")
    line = re.search(rf"^  {never}: .*\n", source, re.MULTILINE).group()
    plan = compiled_document(source.replace(line, line.replace("}", ", defer: never}")))
    assert deferred(plan) == {"step_to_a", "step_to_b"} - {never}


@pytest.mark.parametrize("order", POLICIES)
def test_the_same_plan_comes_out_every_time(order):
    plans = {str(program("td3", order=order)) for _ in range(2)}
    assert len(plans) == 1


def test_an_unknown_policy_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no order policy 'fewst': known are .*did you mean 'fewest'"):
        program("dcgan", order="fewst")


def test_more_updates_than_the_table_holds_are_ordered_greedily_without_a_deferral_that_can_be_spared():
    lines = ["  f0: {forward: m0, inputs: x}"]
    lines += [f"  f{index}: {{forward: m{index}, inputs: f{index - 1}, after: []}}" for index in range(1, 14)]
    lines += ["  l: {loss: mse, inputs: [f13, x]}"]
    lines += [f"  u{index}: {{update: m{index}, loss: l}}" for index in reversed(range(14))]
    models = [f"  m{index}: {{layers: [{{linear: 4}}], optimizer: sgd}}" for index in range(14)]
    head = "graphspec: 1\nname: chain\njoin_gradients: false\ninputs: {x: {shape: [batch, 4]}}\nmodels:\n"
    spec = load("\n".join([head + "\n".join(models), "ops:", *lines]) + "\n")
    assert deferred(compile_step(spec)) == set()
    assert len(deferred(compile_step(spec, order="listed"))) == 13


def test_what_a_graph_knows_of_its_nodes_is_found_anew_where_they_change():
    graph = graph_of(program("autoencoder"))
    listed, known = [*graph.nodes], (graph.producers, graph.listing, graph.position)
    assert known == (
        {value: name for name, node in graph.nodes.items() for value in node.provides},
        {name: listed.index(name) for name in listed},
        {name: graph.sequence.index(name) for name in graph.sequence},
    )
    fewer = {name: graph.nodes[name] for name in reversed(listed[1:])}
    other = replace(graph, nodes=fewer, sequence=tuple(reversed(graph.sequence)))
    assert not {*graph.nodes[listed[0]].provides} & other.producers.keys()
    assert [*other.listing] == [*fewer]
    assert [*other.position] == [*reversed(graph.sequence)]
    assert (graph.producers, graph.listing, graph.position) == known
