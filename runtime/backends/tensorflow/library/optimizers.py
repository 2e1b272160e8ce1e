"""Optimizers on explicit gradients: PyTorch's rules; counts, slots and rates are variables and tensors of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed
from runtime.backends.tensorflow.library.functions import sign

Rate: TypeAlias = float | Callable[[Any], tf.Tensor]
"""A number, or a schedule: a function of the number of updates applied before this one."""
Numbers: TypeAlias = Mapping[str, Any]
"""Numbers of one update by name: what Python knows, or float64 tensors."""


class Optimizer:
    """What all optimizers share: their parameters, their options, how often they were applied, their slots.

    ``rate`` is the learning rate, a variable so that another one needs no other graph; where it is NaN a schedule
    gives it, and ``used`` is what it gave last.
    """

    rate_name = "lr"  # the option that is the learning rate

    def __init__(self, parameters: Iterable[tf.Variable], options: Mapping[str, Any], fused: bool | str) -> None:
        if fused is True:
            raise ValueError("fused: TensorFlow has no fused kernel for this rule; leave it out or set it to false")
        self.parameters = list(parameters)
        self.options = dict(options)
        self.applied = tf.Variable(tf.zeros((), tf.int64), trainable=False, name="applied")
        rate = self.options.get(self.rate_name)
        first = math.nan if rate is None or callable(rate) else rate
        self.rate = tf.Variable(typed(first, tf.float64), trainable=False, name="rate")
        self.used = tf.Variable(typed(first, tf.float64), trainable=False, name="used")
        self.slots: dict[str, list[tf.Variable]] = {}

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        """Step the parameters, in place, on their gradients, in order."""
        require_gradients(gradients)
        before = self.applied.read_value()
        others = {name: value for name, value in self.options.items() if name != self.rate_name}
        options = {name: value(before) if callable(value) else value for name, value in others.items()}
        options[self.rate_name] = self.take_rate(before)
        self.advance(gradients, options, tf.cast(before + 1, tf.float64))
        self.applied.assign_add(1)

    def advance(self, gradients: Sequence[tf.Tensor], options: Numbers, count: tf.Tensor) -> None:
        """Step the parameters with these options; ``count`` is the number of this update, from 1."""
        numbers = {**options, **self.prepare(options, count)}
        typed = {dtype: in_type(numbers, dtype) for dtype in {p.dtype for p in self.parameters}}
        slots = zip(*self.slots.values(), strict=True) if self.slots else [()] * len(self.parameters)
        for parameter, gradient, held in zip(self.parameters, gradients, slots, strict=True):
            self.step(parameter, gradient, held, typed[parameter.dtype])

    def next_rate(self, before: Any) -> tf.Tensor:
        """Return the learning rate after so many updates: what was set, else what the schedule says."""
        schedule: Any = self.options.get(self.rate_name)
        rate = self.rate.read_value()
        scheduled: Any = schedule(before) if callable(schedule) else rate
        return tf.where(tf.math.is_nan(rate), scheduled, rate) if callable(schedule) else rate

    def take_rate(self, before: Any) -> tf.Tensor:
        """Return the learning rate of this update; one that a schedule gives is kept."""
        rate = self.next_rate(before)
        is_scheduled = callable(self.options.get(self.rate_name))
        return self.used.assign(rate, read_value=True) if is_scheduled else rate

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return more numbers that are the same for all parameters; ``count`` is that of this update, from 1."""
        return {}

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[Any], numbers: Numbers) -> None:
        """Step one parameter on its gradient: what each rule adds."""
        raise TypeError(f"{type(self).__name__} has no rule")

    def add_slot(self, name: str, value: float = 0.0) -> None:
        """Add a slot: one variable like each parameter, filled with a value."""
        self.slots[name] = [
            tf.Variable(tf.fill(p.shape, typed(value, p.dtype)), trainable=False, name=f"{name}/{plain_name(p)}")
            for p in self.parameters
        ]


def plain_name(variable: tf.Variable) -> str:
    """Return the name of a variable without TensorFlow's number of its output."""
    return variable.name.partition(":")[0]


def require_gradients(gradients: Sequence[tf.Tensor | None]) -> None:
    """Raise RuntimeError naming the first parameter without a gradient, if there is one."""
    for index, gradient in enumerate(gradients):
        if gradient is None:
            raise RuntimeError(f"parameter {index} has no gradient: the loss does not reach it")


def in_type(numbers: Numbers, dtype: tf.DType) -> dict[str, Any]:
    """Return numbers of which the tensors have the type of a parameter."""
    return {name: tf.cast(each, dtype) if tf.is_tensor(each) else each for name, each in numbers.items()}


def decayed(parameter: tf.Variable, gradient: tf.Tensor, numbers: Numbers) -> tf.Tensor:
    """Return a gradient with the weight decay added."""
    decay = numbers["weight_decay"]
    return gradient + decay * parameter if tf.is_tensor(decay) or decay else gradient


def move(slot: tf.Variable, to: tf.Tensor, weight: Any) -> tf.Tensor:
    """Move a running mean towards a value by a share of the way; return it."""
    return slot.assign_add(weight * (to - slot), read_value=True)


def betas_of(options: Numbers) -> dict[str, Any]:
    """Return both decays and what they leave, each computed in double precision."""
    beta1, beta2 = options["betas"]
    return {"beta1": beta1, "beta2": beta2, "rest1": 1 - beta1, "rest2": 1 - beta2}


class SGD(Optimizer):
    """SGD: v = m v + (1 - dampening) g, w -= lr v; with ``lr_inside`` the form v = m v - lr g, w += v."""

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        momentum: Rate = 0.0,
        dampening: Rate = 0.0,
        weight_decay: Rate = 0.0,
        nesterov: bool = False,
        momentum_form: str = "lr_outside",
        fused: bool | str = "auto",
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(parameters, options, fused)
        self.nesterov, self.inside = nesterov, momentum_form == "lr_inside"
        if self.inside or momentum:
            self.add_slot("momentum_buffer")

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return the share of the gradient that goes into the momentum: all of the first."""
        dampening = options["dampening"]
        if not (tf.is_tensor(dampening) or dampening):
            return {"share": 1.0}
        return {"share": tf.where(count == 1.0, typed(1.0, tf.float64), 1.0 - typed(dampening, tf.float64))}

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[Any], numbers: Numbers) -> None:
        """Step one parameter in the form that was chosen."""
        gradient, lr, momentum = decayed(parameter, gradient, numbers), numbers["lr"], numbers["momentum"]
        if self.inside:
            velocity = slots[0].assign(momentum * slots[0] - lr * gradient, read_value=True)
            parameter.assign_add(momentum * velocity - lr * gradient if self.nesterov else velocity)
        elif slots:
            velocity = slots[0].assign(momentum * slots[0] + numbers["share"] * gradient, read_value=True)
            parameter.assign_sub(lr * (gradient + momentum * velocity if self.nesterov else velocity))
        else:
            parameter.assign_sub(lr * gradient)


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015), weight decay added to the gradient; ``decoupled`` makes it AdamW."""

    decoupled = False

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: Rate = 1e-8,
        weight_decay: Rate = 0.0,
        fused: bool | str = "auto",
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}, fused)
        self.add_slot("exp_avg")
        self.add_slot("exp_avg_sq")

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return the corrections of the bias towards zero."""
        betas = betas_of(options)
        root = tf.sqrt(1.0 - betas["beta2"] ** count)  # of sqrt(v): taken out of the quotient
        return {
            **betas,
            "rate": options["lr"] * root / (1.0 - betas["beta1"] ** count),
            "floor": options["eps"] * root,
            "kept": 1.0 - options["lr"] * options["weight_decay"],
        }

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[Any], numbers: Numbers) -> None:
        """Step one parameter."""
        if self.decoupled:
            parameter.assign(parameter * numbers["kept"])
        else:
            gradient = decayed(parameter, gradient, numbers)
        mean = move(slots[0], gradient, numbers["rest1"])
        square = move(slots[1], gradient * gradient, numbers["rest2"])
        parameter.assign_sub(numbers["rate"] * mean / (tf.sqrt(square) + numbers["floor"]))


class AdamW(Adam):
    """AdamW (Loshchilov and Hutter 2019): weight decay apart from the gradient."""

    decoupled = True


class Lion(Optimizer):
    """Lion (Chen et al. 2023): w -= lr sign(b1 v + (1 - b1) g) + lr decay w, then v = b2 v + (1 - b2) g."""

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: Rate = 0.0,
        fused: bool | str = "auto",
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay}, fused)
        self.add_slot("exp_avg")

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return what decays leave."""
        return {**betas_of(options), "kept": 1.0 - options["lr"] * options["weight_decay"]}

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[Any], numbers: Numbers) -> None:
        """Step one parameter."""
        direction = sign(slots[0] + numbers["rest1"] * (gradient - slots[0]))
        parameter.assign(parameter * numbers["kept"] - numbers["lr"] * direction)
        move(slots[0], gradient, numbers["rest2"])
