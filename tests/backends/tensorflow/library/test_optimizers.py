"""Optimizers beside torch.optim: the same numbers for ten steps, whatever the form, in one trace."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch

from runtime.backends.tensorflow.library.adaptive import Adadelta, Adagrad, Adamax, NAdam, RMSprop
from runtime.backends.tensorflow.library.optimizers import SGD, Adam, AdamW, Lion
from runtime.backends.tensorflow.library.schedules import cosine, piecewise
from runtime.backends.torch.library import optimizers as torch_optimizers
from runtime.backends.torch.library import schedules as torch_schedules

SHAPES = ((3, 2), (4,), ())
RULES = {
    "sgd": (SGD, torch.optim.SGD, {"lr": 0.1}),
    "sgd-decay": (SGD, torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.02}),
    "sgd-momentum": (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "sgd-nesterov": (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "sgd-dampening": (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "adam": (Adam, torch.optim.Adam, {"lr": 0.01}),
    "adam-options": (Adam, torch.optim.Adam, {"lr": 0.01, "betas": (0.5, 0.99), "eps": 1e-2, "weight_decay": 0.1}),
    "adamw": (AdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "rmsprop": (RMSprop, torch.optim.RMSprop, {"lr": 0.01}),
    "rmsprop-momentum": (RMSprop, torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.8, "weight_decay": 0.1, "eps": 0.01}),
    "rmsprop-centered": (RMSprop, torch.optim.RMSprop, {"lr": 0.01, "alpha": 0.9, "centered": True, "momentum": 0.5}),
    "adagrad": (Adagrad, torch.optim.Adagrad, {"lr": 0.1}),
    "adagrad-options": (
        Adagrad,
        torch.optim.Adagrad,
        {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1, "initial_accumulator_value": 0.3, "eps": 1e-3},
    ),
    "adadelta": (Adadelta, torch.optim.Adadelta, {"lr": 1.0, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1}),
    "adamax": (Adamax, torch.optim.Adamax, {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1}),
    "nadam": (NAdam, torch.optim.NAdam, {"lr": 0.01, "momentum_decay": 0.02, "eps": 1e-3, "weight_decay": 0.1}),
}
RATES = {"lr": cosine(0.1, 0.0, 8.0)}


def numbers_of(step: int) -> list[np.ndarray]:
    """Return the gradients of a step, zeros among them."""
    random = np.random.default_rng(step)
    return [random.normal(size=shape) * (random.uniform(size=shape) < 0.8) for shape in SHAPES]


def compiled(optimizer):
    """Return the step of an optimizer as one graph, which counts its traces."""
    specs = [tf.TensorSpec(shape, optimizer.parameters[0].dtype) for shape in SHAPES]
    return tf.function(lambda *gradients: optimizer.apply(gradients), input_signature=specs, autograph=False)


def make(rule, options, dtype=tf.float64):
    """Return an optimizer over new variables, and its step."""
    start = [np.random.default_rng(99).normal(size=shape) for shape in SHAPES]
    optimizer = rule([tf.Variable(value, dtype=dtype) for value in start], **options)
    return optimizer, compiled(optimizer)


def make_torch(rule, options, dtype=torch.float64):
    """Return PyTorch's optimizer over the same numbers."""
    start = [np.random.default_rng(99).normal(size=shape) for shape in SHAPES]
    parameters = [torch.nn.Parameter(torch.tensor(value, dtype=dtype)) for value in start]
    return rule(parameters, **options), parameters


def step_torch(optimizer, parameters, step: int) -> None:
    """Take a step with PyTorch."""
    for parameter, gradient in zip(parameters, numbers_of(step), strict=True):
        parameter.grad = torch.tensor(gradient, dtype=parameter.dtype)
    optimizer.step()


@pytest.mark.parametrize("name", RULES)
def test_ten_steps_and_the_slots_are_pytorchs(name):
    rule, reference, options = RULES[name]
    (mine, step), (theirs, parameters) = make(rule, options), make_torch(reference, options)
    for number in range(10):
        step(*numbers_of(number))
        step_torch(theirs, parameters, number)
    for index, (ours, other) in enumerate(zip(mine.parameters, parameters, strict=True)):
        np.testing.assert_allclose(ours.numpy(), other.detach().numpy(), rtol=1e-12, atol=1e-13)
        for slot, values in mine.slots.items():
            np.testing.assert_allclose(values[index].numpy(), theirs.state[other][slot].numpy(), rtol=1e-12, atol=1e-13)
    kept = {slot for state in theirs.state.values() for slot, value in state.items() if value is not None}
    assert kept - {"step"} == set(mine.slots)
    assert int(mine.applied) == 10
    assert step.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("name", ["sgd-momentum", "adam", "adamw", "rmsprop-momentum", "adagrad-options", "nadam"])
def test_a_schedule_gives_pytorchs_numbers_and_traces_nothing_anew(name):
    rule, reference, options = RULES[name]
    curve = torch_schedules.cosine(0.1, 0.0, 8.0)
    (mine, step), (theirs, parameters) = make(rule, {**options, **RATES}), make_torch(reference, options)
    for number in range(10):
        step(*numbers_of(number))
        theirs.param_groups[0]["lr"] = curve(number)
        step_torch(theirs, parameters, number)
    for ours, other in zip(mine.parameters, parameters, strict=True):
        np.testing.assert_allclose(ours.numpy(), other.detach().numpy(), rtol=1e-12, atol=1e-13)
    assert step.experimental_get_tracing_count() == 1


def test_lr_inside_keeps_scaled_steps_in_the_momentum():
    # The published numbers: gradient 1, momentum 0.5, learning rate 1 and then 0.1.
    rate = piecewise({0: 1.0, 1: 0.1})
    ends = {}
    for form in ("lr_outside", "lr_inside"):
        weight = tf.Variable(0.0, dtype=tf.float64)
        optimizer = SGD([weight], lr=rate, momentum=0.5, momentum_form=form)
        for _ in range(2):
            optimizer.apply([tf.constant(1.0, tf.float64)])
        ends[form] = float(weight)
    assert ends == pytest.approx({"lr_outside": -1.15, "lr_inside": -1.6})


INSIDE = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "momentum_form": "lr_inside"}
OWN = {
    "lion": (Lion, torch_optimizers.Lion, {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}),
    "inside": (SGD, torch_optimizers.SGD, INSIDE),
    "inside-nesterov": (SGD, torch_optimizers.SGD, {**INSIDE, "nesterov": True}),
}


@pytest.mark.parametrize("name", OWN)
def test_rules_that_torch_optim_lacks_are_those_of_the_other_backend(name):
    rule, reference, options = OWN[name]
    (mine, step), (theirs, parameters) = make(rule, options), make_torch(reference, options)
    for number in range(10):
        step(*numbers_of(number))
        theirs.apply([torch.tensor(each) for each in numbers_of(number)])
    for ours, other in zip(mine.parameters, parameters, strict=True):
        np.testing.assert_allclose(ours.numpy(), other.detach().numpy(), rtol=1e-12, atol=1e-13)
    assert {slot: len(values) for slot, values in mine.slots.items()} == dict.fromkeys(theirs.slots, 3)


def distance(parameters, exact) -> float:
    """Return how far numbers are from the exact ones."""
    return max(np.abs(np.asarray(each) - right.numpy()).max() for each, right in zip(parameters, exact, strict=True))


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd-momentum", "adamax"])
def test_in_float32_we_are_at_most_four_times_as_far_from_the_exact_numbers_as_pytorch(name):
    rule, reference, options = RULES[name]
    (exact, step), (single, single_step) = make(rule, options), make(rule, options, tf.float32)
    theirs, parameters = make_torch(reference, options, torch.float32)
    for number in range(10):
        step(*numbers_of(number))
        single_step(*map(np.float32, numbers_of(number)))
        step_torch(theirs, parameters, number)
    ours = distance([each.numpy() for each in single.parameters], exact.parameters)
    assert ours <= 4 * distance([each.detach().numpy() for each in parameters], exact.parameters)


def test_slots_carry_the_names_of_their_parameters_and_are_no_targets():
    optimizer = Adam([tf.Variable([1.0], name="0.weight")], lr=0.1)
    assert optimizer.slots["exp_avg"][0].name == "exp_avg/0.weight:0"
    assert not any(slot.trainable for slots in optimizer.slots.values() for slot in slots)


def test_a_fused_kernel_is_refused_and_a_missing_gradient_is_told():
    with pytest.raises(ValueError, match="fused: TensorFlow has no fused kernel"):
        Adam([tf.Variable(1.0)], lr=0.1, fused=True)
    with pytest.raises(RuntimeError, match="parameter 1 has no gradient"):
        Adam([tf.Variable(1.0), tf.Variable(1.0)], lr=0.1).apply([tf.constant(1.0), None])
