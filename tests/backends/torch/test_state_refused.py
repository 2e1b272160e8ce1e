"""A state that does not fit is refused with every name that does not, and the step stays as it was."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, build
from runtime.state import State
from tests.backends.torch import keepers
from tests.backends.torch.test_state import contents, make, run


def refusal(step: Step, state: State) -> list[str]:
    """Return what a step that refuses a state says of it; the step must be unchanged."""
    before, counters = contents(step), step.state().counters
    with pytest.raises(SpecError, match="GS264") as raised:
        step.restore(state)
    assert {each.code for each in raised.value.diagnostics} == {"GS264"}
    assert contents(step) == before
    assert step.state().counters == counters
    return [each.message for each in raised.value.diagnostics]


def test_a_state_of_another_optimizer_is_refused_with_all_that_is_missing_and_all_that_is_not_expected():
    step, other = make("adam"), make("momentum")
    run(other, 0, 1)
    found = refusal(step, other.state())
    adam = "optimizers.net.exp_avg.0.weight, optimizers.net.exp_avg.0.bias, optimizers.net.exp_avg.2.weight and 5 more"
    sgd = "optimizers.net.momentum_buffer.0.weight, optimizers.net.momentum_buffer.0.bias, "
    sgd += "optimizers.net.momentum_buffer.2.weight and 1 more"
    assert found == [f"the state has what the step lacks: {sgd}", f"the state lacks what the step has: {adam}"]


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("models.net.0.bias", np.zeros(4, "f"), "the state has another shape than the step: {} is [4], expected [5]"),
        ("models.net.0.bias", np.zeros(5), "the state has another type than the step: {} is float64, expected float32"),
        ("models.net.4.bias", np.zeros(5), "the state has what the step lacks: {}"),
        ("models.net.0.bias", None, "the state lacks what the step has: {}"),
        ("optimizers.net.step.0.bias", None, "the state lacks what the step has: {}"),
    ],
)
def test_an_array_that_does_not_fit_is_told(name, array, message):
    step = make("nadam")
    run(step, 0, 1)
    arrays = {**step.state().arrays, name: array}
    state = State(
        arrays={key: each for key, each in arrays.items() if each is not None}, counters=step.state().counters
    )
    assert refusal(step, state) == [message.format(name)]


@pytest.mark.parametrize(
    ("section", "value", "message"),
    [
        ("applied", {}, "the state lacks what the step has: applied.net"),
        ("applied", {"net": 1, "b": 1}, "the state has what the step lacks: applied.b"),
        (
            "steps",
            {"train": 1, "eval": -1},
            "the state has another value than the step: steps.eval is -1, expected a count",
        ),
        ("steps", 3, "the state has another value than the step: steps is 3, expected a mapping"),
        ("averaged", 3, "the state has another value than the step: averaged is 3, expected a list of names"),
        ("applied", {"net": True}, "the state has another value than the step: applied.net is True, expected a count"),
        ("extra", {"net": None}, "the state has what the step lacks: extra"),
    ],
)
def test_a_count_that_does_not_fit_is_told(section, value, message):
    step = make("swap")
    run(step, 0, 1)
    state = step.state()
    assert refusal(step, State(arrays=state.arrays, counters={**state.counters, section: value})) == [message]


def test_updates_without_a_count_are_told():
    step = make("swap")
    run(step, 0, 1)
    counters = {name: each for name, each in step.state().counters.items() if name != "applied"}
    (message, *_) = refusal(step, State(arrays=step.state().arrays, counters=counters))
    assert message == "the state lacks what the step has: applied.net"


def test_slots_of_a_parameter_that_the_optimizer_does_not_have_are_refused():
    step = make("nadam")
    run(step, 0, 1)
    state = step.state()
    slots = {**state.counters["optimizers"]["net"], "odd": {"7.bias": 1.0}}
    changed = State(arrays=state.arrays, counters={**state.counters, "optimizers": {"net": slots}})
    assert refusal(step, changed) == ["the state has what the step lacks: optimizers.net.7.bias"]


def test_code_of_the_user_that_refuses_its_state_leaves_everything_as_it_was(monkeypatch):
    step = make("extra")
    run(step, 0, 1)
    state = step.state()
    run(step, 1, 3)
    monkeypatch.setattr(keepers.Remembering, "set_extra_state", keepers.Refusing.set_extra_state)
    assert refusal(step, state) == ["the state of extra.net was refused: ValueError: never"]


def test_what_other_code_of_the_user_had_taken_already_is_taken_back():
    models = [
        f"{name}: {{class: '{keepers.__name__}:{kind}'}}" for name, kind in (("a", "Remembering"), ("b", "Refusing"))
    ]
    ops = "p: {forward: a, inputs: x}\n  q: {forward: b, inputs: x}\n"
    spec = (
        f"graphspec: 1\nname: n\ninputs: {{x: {{shape: [batch, 4]}}}}\nmodels: {{{', '.join(models)}}}\nops:\n  {ops}"
    )
    step = build(compile_step(load(spec + "outputs: [p, q]\n")), device="cpu", allow=[keepers.__name__])
    step({"x": np.zeros((2, 4), "f")})
    state = step.state()
    step({"x": np.zeros((2, 4), "f")})
    assert refusal(step, state) == ["the state of extra.b was refused: ValueError: never"]
    assert step.models["a"].calls == 2


def test_what_a_checkpoint_cannot_keep_is_told_with_its_place(monkeypatch):
    step = make("extra")
    monkeypatch.setattr(keepers.Remembering, "get_extra_state", keepers.Hoarding.get_extra_state)
    with pytest.raises(
        SpecError, match=r"a checkpoint cannot keep extra\.net\.calls: found a value of type set"
    ) as raised:
        step.state()
    assert [each.code for each in raised.value.diagnostics] == ["GS267"]
