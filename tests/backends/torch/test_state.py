"""A state holds all that training changes: a new build that is given it goes on bit for bit."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch

from compiler import Plan, compile_step
from graphspec import load
from runtime import Step, build
from runtime.state import State
from tests.backends.torch import keepers

USERS = keepers.__name__
PLAIN = "{layers: [{linear: 5}, tanh, {linear: 3}], optimizer: {%s}}"
OPS = """
  y: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [y, t], mode: train}
  learn: {update: net, loss: loss}
"""
OPTIMIZERS = {
    "sgd": "name: sgd, lr: 0.1",
    "momentum": "name: sgd, lr: 0.1, momentum: 0.9, dampening: 0.1",
    "momentum in lists": "name: sgd, lr: 0.1, momentum: 0.9, nesterov: true, fused: false",
    "momentum inside": "name: sgd, lr: 0.1, momentum: 0.9, momentum_form: lr_inside",
    "adam": "name: adam, lr: 0.1",
    "adam in lists": "name: adam, lr: 0.1, fused: false",
    "adamw": "name: adamw, lr: 0.1, weight_decay: 0.1",
    "adagrad": "name: adagrad, lr: 0.1, lr_decay: 0.1",
    "lion": "name: lion, lr: 0.01",
    "rmsprop": "name: rmsprop, lr: 0.01, momentum: 0.5",
    "nadam": "name: nadam, lr: 0.01",
    "adamax": "name: adamax, lr: 0.01",
    "adadelta": "name: adadelta, lr: 0.5",
    "user": f"class: '{USERS}:Signs', lr: 0.1",
    "torch": "class: 'torch.optim:SGD', lr: 0.1, momentum: 0.9",
    "schedule": "name: adam, lr: {schedule: cosine, from: 0.1, to: 0.0, over: 9}",
    "clock": "name: nadam, lr: {schedule: linear, from: 0.1, to: 0.0, over: 9, clock: steps}",
}
NET = PLAIN % "name: adam, lr: 0.1"
DRAWS = """
  y: {forward: net, inputs: x}
  noise: {random: normal, like: t}
  target: {call: add, inputs: [t, noise]}
  loss: {loss: mse, inputs: [y, target]}
  learn: {update: net, loss: loss}
"""
FEATURES = {
    "statistics": (f"net: {NET[:10]}{{linear: 4}}, batch_norm, {NET[10:]}", OPS),
    "dropout": (f"net: {NET[:10]}{{linear: 4}}, {{dropout: 0.5}}, {NET[10:]}", DRAWS),
    "average": (f"net: {NET}", OPS + "  shadow: {ema: net, decay: 0.5, every: 2}\n"),
    "swap": (
        f"net: {NET}",
        OPS + "  shadow: {ema: net, decay: 0.5, use: {eval: swap}}\n  seen: {metric: mean, inputs: y}\n",
    ),
    "gates": (
        f"net: {NET}\n  far: {{like: net}}",
        OPS.replace("loss: loss}", "loss: loss, every: 2, start: 2 steps, until: 7 steps}")
        + "  follow: {ema: net, into: far, decay: 0.5, every: 2}\n",
    ),
    "tied": (f"net: {{class: '{USERS}:Tied', optimizer: {{name: adam, lr: 0.1}}}}", OPS),
    "extra": (f"net: {{class: '{USERS}:Remembering', optimizer: {{name: adam, lr: 0.1}}}}", OPS),
    "metrics": (
        f"net: {NET}",
        OPS
        + "  level: {metric: mean, inputs: y, reset: 4 steps}\n  whole: {metric: mean, inputs: y, reset: never}\n"
        + f"  hits: {{metric: '{USERS}:Hits', inputs: [y, t], args: {{threshold: 0.5}}}}\n",
    ),
}
CASES = {
    **{name: (f"net: {PLAIN % text}", OPS, "native") for name, text in OPTIMIZERS.items()},
    **{name: (*case, "native") for name, case in FEATURES.items()},
    "portable dropout": (*FEATURES["dropout"], "portable"),
}
EACH = pytest.mark.parametrize("case", CASES)


def make(case: str, dtype: str = "float32") -> Step:
    """Return a new build of a case."""
    return build(plan_of(case), device="cpu", seed=3, allow=[USERS, "torch"], dtype=dtype)


@functools.cache
def plan_of(case: str) -> Plan:
    """Return the plan of a case."""
    models, ops, rng = CASES[case]
    inputs = "{x: {shape: [batch, 4]}, t: {shape: [batch, 3]}}"
    return compile_step(load(f"graphspec: 1\nname: test\nrng: {rng}\ninputs: {inputs}\nmodels:\n  {models}\nops:{ops}"))


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
    """Return all tensors, to the last bit."""
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
    never_stopped, stopped, resumed = make(case), make(case), make(case)
    start = carried(stopped.state())
    first = run(stopped, 0, 3)
    resumed.restore(carried(stopped.state()))
    whole = run(never_stopped, 0, 8)
    assert whole[: len(first)] == first
    assert run(resumed, 3, 8) == run(stopped, 3, 8) == whole[len(first) :]
    assert contents(resumed) == contents(stopped) == contents(never_stopped)
    stopped.restore(start)
    assert run(stopped, 0, 8) == whole


def test_a_step_keeps_its_tensors_when_it_goes_back():
    step = make("gates")
    parameters = [id(each) for model in step.models.values() for each in model.parameters()]
    start = step.state()
    run(step, 0, 3)
    step.restore(start)
    assert [id(each) for model in step.models.values() for each in model.parameters()] == parameters


def test_an_average_that_stands_in_for_its_model_does_so_from_the_first_evaluation_on():
    step, resumed = make("swap"), make("swap")
    run(step, 0, 2)
    resumed.restore(carried(step.state()))
    batch = {"x": np.ones((2, 4), "f")}
    step.reset("eval"), resumed.reset("eval")
    averaged = resumed.models["shadow"](torch.ones(2, 4)).mean()
    assert step(batch, mode="eval")["seen"] == resumed(batch, mode="eval")["seen"] == averaged
    assert averaged != resumed.models["net"](torch.ones(2, 4)).mean()


@pytest.mark.parametrize(
    ("saved", "taken"), [("average", "gates"), ("gates", "adam"), ("adam", "swap"), ("swap", "adam")]
)
def test_other_clocks_and_metrics_take_the_state_of_the_rest(saved, taken):
    first, second = make(saved), make(taken)
    run(first, 0, 3)
    state, own = first.state(), second.state()
    models = {name: state.arrays.get(name, array) for name, array in own.arrays.items() if "metrics" not in name}
    metrics = {name: array for name, array in state.arrays.items() if "metrics" in name}
    second.restore(State(arrays={**models, **metrics}, counters=state.counters))
    assert contents(second)["models.net.0.weight"] == contents(first)["models.net.0.weight"]
    assert second.optimizers["net"].native.applied == first.optimizers["net"].native.applied
    run(second, 3, 5)


def test_the_state_is_a_copy_that_later_steps_leave_alone():
    step = make("adam")
    state = step.state()
    before = {name: array.copy() for name, array in state.arrays.items()}
    run(step, 0, 2)
    assert all(np.array_equal(array, before[name]) for name, array in state.arrays.items())


def test_a_state_names_every_tensor_once_and_says_nothing_twice():
    step = make("tied")
    run(step, 0, 2)
    state = step.state()
    names = ["first.weight", "first.bias", "second.bias", "last.weight", "last.bias"]
    slots = [f"optimizers.net.{slot}.{name}" for slot in ("exp_avg", "exp_avg_sq") for name in names]
    assert sorted(state.arrays) == sorted([f"models.net.{name}" for name in names] + slots)
    assert state.counters == {"steps": {"train": 2, "eval": 2}, "applied": {"net": 2}}


def test_tied_tensors_are_tied_after_restoring():
    step, other = make("tied"), make("tied")
    run(step, 0, 2)
    other.restore(step.state())
    net = other.models["net"]
    assert net.first.weight is net.second.weight


def test_what_a_wrapped_optimizer_keeps_is_named_by_slot_and_parameter():
    step = make("nadam")
    run(step, 0, 2)
    state = step.state()
    product = state.arrays["optimizers.net.mu_product.0.weight"]
    expected = np.prod([0.9 * (1 - 0.5 * 0.96 ** (n * 0.004)) for n in (1, 2)])
    assert float(product) == pytest.approx(expected, rel=1e-6)
    assert float(state.arrays["optimizers.net.step.2.bias"]) == 2


def test_what_follows_from_the_updates_is_not_stored():
    step = make("adam")
    run(step, 0, 2)
    assert not [name for name in step.state().arrays if ".step." in name]
    assert [float(each) for each in step.optimizers["net"].native.slots["step"]] == [2, 2, 2, 2]


def test_a_resumed_optimizer_takes_the_options_of_its_spec_and_what_it_changed_itself():
    first, other = make("torch"), make("torch")
    run(first, 0, 2)
    group = other.optimizers["net"].native.optimizer.param_groups[0]
    group["lr"] = 0.5
    state = first.state()
    assert state.counters["groups"]["net"]["groups"] == [{}]
    user = make("user")
    run(user, 0, 2)
    assert user.state().counters["groups"]["net"] == {
        "groups": [{"lr": 0.1 * 0.9 * 0.9, "pace": 0.25}],
        "loose": {"all": {"seen": 2}},
        "more": {"calls": 2},
        "host": None,
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.complex64])
def test_types_that_numpy_lacks_come_back_exactly(dtype):
    step, other = make("sgd"), make("sgd")
    values = torch.randn(3, generator=torch.Generator().manual_seed(0))
    for each in (step, other):
        each.models["net"].register_buffer("odd", torch.zeros(3, dtype=dtype))
    step.models["net"].odd.copy_(torch.complex(values, -values) if dtype.is_complex else values)
    state = step.state()
    assert state.arrays["models.net.odd"].dtype == np.float32
    other.restore(state)
    found, expected = other.models["net"].odd, step.models["net"].odd
    assert found.view(torch.uint8).any()
    assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


def test_float64_is_kept_as_it_is():
    step, other = make("adam", "float64"), make("adam", "float64")
    run(step, 0, 2)
    assert {array.dtype.name for array in step.state().arrays.values()} == {"float64"}
    other.restore(step.state())
    assert contents(other) == contents(step)
