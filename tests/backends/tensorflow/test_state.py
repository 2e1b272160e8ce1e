"""A state holds all that training changes: a new build goes on with it bit for bit, and what does not fit is told."""

from __future__ import annotations

import functools
import json
from typing import get_args

import numpy as np
import pytest
import tensorflow as tf

from compiler import Plan, compile_step
from graphspec import SpecError, load
from graphspec.declare.optimizers import OptimizerName
from runtime import Step, build
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.engine.contents import BY_TREE
from runtime.state import State
from tests.backends.tensorflow import keepers, users

KEEPERS, USERS = keepers.__name__, users.__name__
OPS = """
  y: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [y, t], mode: train}
  learn: {update: net, loss: loss}
"""


def net(rule: str, layers: str = "{linear: 5}, tanh, {linear: 3}") -> str:
    """Return a model of layers with an optimizer."""
    return f"net: {{layers: [{layers}], optimizer: {{{rule}}}}}"


ADAM = net("name: adam, lr: 0.1")
CASES = {
    "momentum": (net("name: sgd, lr: 0.1, momentum: 0.9, dampening: 0.1"), OPS, "native"),
    "nadam": (net("name: nadam, lr: {schedule: linear, from: 0.1, to: 0.0, over: 9, clock: steps}"), OPS, "native"),
    "keras": (net("class: 'keras.optimizers:Nadam', lr: {schedule: cosine, from: 0.1, to: 0, over: 9}"), OPS, "native"),
    "class": (f"net: {{class: '{USERS}:Stateful', optimizer: {{name: adam, lr: 0.1}}}}", OPS, "native"),
    "dropout": (net("name: adam, lr: 0.1", "{linear: 5}, batch_norm, {dropout: 0.5}, {linear: 3}"), OPS, "portable"),
    "gates": (
        f"{ADAM}\n  far: {{like: net}}",
        OPS.replace("loss: loss}", "loss: loss, every: 2, start: 2 steps, until: 7 steps}")
        + "  follow: {ema: net, into: far, decay: 0.5, every: 2}\n"
        + "  shadow: {ema: net, decay: 0.5, use: {eval: swap}}\n",
        "native",
    ),
    "metrics": (
        ADAM,
        OPS
        + "  level: {metric: mean, inputs: y, reset: 4 steps}\n  whole: {metric: mean, inputs: y, reset: never}\n"
        + f"  hits: {{metric: '{KEEPERS}:Hits', inputs: [y, t], args: {{threshold: 0.5}}}}\n"
        + f"  same: {{metric: '{KEEPERS}:Mean', inputs: y}}\n",
        "native",
    ),
}
EACH = pytest.mark.parametrize("case", CASES)


def make(case: str) -> Step:
    """Return a new build of a case."""
    return build(plan_of(*CASES[case]), device="cpu", seed=3, allow=[USERS, KEEPERS, "keras"])


@functools.cache
def plan_of(models: str, ops: str, rng: str = "native", backend: str = "tensorflow") -> Plan:
    """Return the plan of some models and ops."""
    inputs = "{x: {shape: [batch, 4]}, t: {shape: [batch, 3]}}"
    text = f"graphspec: 1\nname: test\nrng: {rng}\ninputs: {inputs}\nmodels:\n  {models}\nops:{ops}"
    return compile_step(load(text), backend)


def run(step: Step, start: int, stop: int) -> list[bytes]:
    """Return, to the last bit, all outputs of some steps, each of which is evaluated as well."""
    found = []
    for number in range(start, stop):
        random = np.random.default_rng(number)
        batch = {name: random.normal(size=(5 + number % 3, width)).astype("f") for name, width in (("x", 4), ("t", 3))}
        for mode in ("train", "eval"):
            found += [step.numpy(value).tobytes() for value in step(batch, mode=mode).values()]
    return found


def contents(step: Step) -> dict[str, bytes]:
    """Return all variables, to the last bit."""
    return {name: step.numpy(value).tobytes() for name, value in step.tensors().items()}


def carried(state: State) -> State:
    """Return a state as a checkpoint gives it back: plain data as JSON says it, arrays that nobody may write to."""
    arrays = {name: array.copy() for name, array in state.arrays.items()}
    for array in arrays.values():
        array.flags.writeable = False
    return State(arrays=arrays, counters=json.loads(json.dumps(state.counters, allow_nan=False)))


@pytest.mark.sample(3)
@EACH
def test_a_new_build_that_is_given_the_state_goes_on_as_if_it_had_never_stopped(case):
    stopped, resumed = make(case), make(case)
    start = carried(stopped.state())
    whole = run(stopped, 0, 6)
    stopped.restore(start)
    first = run(stopped, 0, 3)
    assert whole[: len(first)] == first
    resumed.restore(carried(stopped.state()))
    assert run(resumed, 3, 6) == run(stopped, 3, 6) == whole[len(first) :]
    assert contents(resumed) == contents(stopped)


def test_the_state_is_a_copy_that_later_steps_leave_alone():
    step = make("momentum")
    state = step.state()
    before = {name: array.copy() for name, array in state.arrays.items()}
    run(step, 0, 2)
    assert all(np.array_equal(array, before[name]) for name, array in state.arrays.items())


def test_what_one_of_keras_optimizers_keeps_is_named_as_its_attributes_are():
    step = make("keras")
    run(step, 0, 2)
    arrays = step.state().arrays
    kept = {name.removeprefix("optimizers.net.") for name in arrays if name.startswith("optimizers")}
    names = [f"{slot}.{name}" for slot in ("momentums", "velocities") for name in parameters()]
    assert kept == {"iterations", "u_product", *names}
    assert arrays["optimizers.net.iterations"] == 2


def parameters():
    """Return the names of the parameters of a net of two linear layers."""
    return ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_types_that_a_checkpoint_lacks_come_back_exactly():
    plan = plan_of(f"net: {{class: '{KEEPERS}:Odd', optimizer: {{name: sgd, lr: 0.1}}}}", OPS)
    step, other = (build(plan, device="cpu", allow=[KEEPERS]) for _ in range(2))
    step.models["net"].turn.assign([7 - 1j, 0.5j])
    step.models["net"].small.assign(tf.cast([-3.0, 0.125], tf.bfloat16))
    state = step.state()
    assert state.arrays["models.net.small"].dtype == state.arrays["models.net.turn"].dtype == np.float32
    other.restore(state)
    assert other.models["net"].turn.numpy().tolist() == [7 - 1j, 0.5j]
    assert other.models["net"].small.numpy().tolist() == [-3.0, 0.125]


def test_a_metric_that_does_not_tell_its_state_is_a_note():
    hits = f"  hits: {{metric: '{KEEPERS}:Silent', inputs: [y, t], args: {{threshold: 0.5}}, mode: eval}}\n"
    step = build(plan_of(ADAM, OPS + hits), device="cpu", allow=[KEEPERS])
    note = "metric 'hits' has no state_dict and load_state_dict: it starts from zero when a run is resumed"
    assert note in step.notes


def refusal(step: Step, state: State) -> list[str]:
    """Return what a step that refuses a state says of it; the step must be unchanged."""
    before, counters = contents(step), step.state().counters
    with pytest.raises(SpecError, match="GS264") as raised:
        step.restore(state)
    assert contents(step) == before
    assert step.state().counters == counters
    return [line for each in raised.value.diagnostics for line in (each.message, *each.notes)]


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("models.net.0.bias", np.zeros(4, "f"), "the state has another shape than the step: {} is [4], expected [5]"),
        ("models.net.0.bias", np.zeros(5), "the state has another type than the step: {} is float64, expected float32"),
        ("models.net.4.bias", np.zeros(5), "the state has what the step lacks: {}"),
        ("models.net.0.bias", None, "the state lacks what the step has: {}"),
        (
            "optimizers.net.exp_avg.0.bias",
            np.zeros(4, "f"),
            "the state has another shape than the step: {} is [4], expected [5]",
        ),
        ("optimizers.net.exp_avg.0.bias", None, "the state lacks what the step has: {}"),
        ("optimizers.net.step.0.bias", None, "the state lacks what the step has: {}"),
    ],
)
def test_an_array_that_does_not_fit_is_told(name, array, message):
    step = make("nadam")
    run(step, 0, 1)
    state = step.state()
    arrays = {key: each for key, each in {**state.arrays, name: array}.items() if each is not None}
    (found,) = refusal(step, State(arrays=arrays, counters=state.counters))
    assert found == message.format(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"exp_avg": None}, "the state lacks what the step has: optimizers.net.exp_avg.0.weight, "),
        ({"odd": {"0.bias": 1.0}}, "the state has what the step lacks: optimizers.net.odd.0.bias"),
        ({"odd": {"7.bias": 1.0}}, "the state has what the step lacks: optimizers.net.7.bias, "),
    ],
)
def test_slots_that_do_not_fit_are_told(change, message):
    step = make("nadam")
    run(step, 0, 1)
    state = step.state()
    slots = {**state.counters["optimizers"]["net"], **change}
    kept = {name: each for name, each in slots.items() if each is not None}
    gone = "optimizers.net.exp_avg." if None in change.values() else "no name"
    arrays = {name: each for name, each in state.arrays.items() if not name.startswith(gone)}
    found = refusal(step, State(arrays=arrays, counters={**state.counters, "optimizers": {"net": kept}}))
    assert found[0].startswith(message)


def test_what_a_class_of_torch_keeps_is_refused_with_the_reason():
    step = make("nadam")
    run(step, 0, 1)
    state = step.state()
    groups = {"net": {"groups": [{"pace": 0.5}], "loose": {}, "more": {}, "host": None}}
    changed = State(arrays=state.arrays, counters={**state.counters, "groups": groups}, backend="torch")
    message, note = refusal(step, changed)
    assert message.endswith("groups.net was refused: ValueError: groups: pace was changed by a class of PyTorch")
    assert note.startswith("the state was saved under torch, the step runs under tensorflow: ")


def test_a_state_with_what_only_torch_has_is_told_as_one_of_torch():
    step = make("momentum")
    state = step.state()
    extra = State(arrays=state.arrays, counters={**state.counters, "extra": {"net": 3}}, backend="torch")
    message, note = refusal(step, extra)
    assert message == "the state has what the step lacks: extra"
    assert note.endswith(
        "built-in models, optimizers and metrics fit both; what a framework's or user's class keeps does not"
    )


def test_code_of_the_user_that_refuses_its_state_leaves_everything_as_it_was():
    metrics = "".join(
        f"  {name}: {{metric: '{KEEPERS}:{kind}', inputs: [y, t], args: {{threshold: 0.5}}, reset: never}}\n"
        for name, kind in (("first", "Hits"), ("second", "Refusing"))
    )
    step = build(plan_of(ADAM, OPS + metrics), device="cpu", allow=[KEEPERS])
    run(step, 0, 1)
    state = step.state()
    run(step, 1, 2)
    assert refusal(step, state) == ["the state of metrics.train.second was refused: ValueError: never"]


def test_the_rules_that_are_kept_in_one_tree_are_those_that_torch_leaves_to_its_own_classes():
    assert {*get_args(OptimizerName)} - {*TORCH.direct} == BY_TREE
