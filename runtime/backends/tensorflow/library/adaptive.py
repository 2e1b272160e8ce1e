"""Optimizers that divide by running squares or norms: PyTorch's rules, to the place of every eps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed
from runtime.backends.tensorflow.library.optimizers import (
    Numbers,
    Optimizer,
    Rate,
    betas_of,
    decayed,
    move,
    plain_name,
)


class RMSprop(Optimizer):
    """RMSprop (Tieleman and Hinton 2012) as PyTorch has it: eps outside the root, lr outside the momentum."""

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        alpha: Rate = 0.99,
        eps: Rate = 1e-8,
        weight_decay: Rate = 0.0,
        momentum: Rate = 0.0,
        centered: bool = False,
        fused: bool | str = "auto",
    ) -> None:
        options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(parameters, options, fused)
        self.centered, self.has_momentum = centered, bool(momentum)
        self.add_slot("square_avg")
        if momentum:
            self.add_slot("momentum_buffer")
        if centered:
            self.add_slot("grad_avg")

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return what the decay leaves."""
        return {"rest": 1 - options["alpha"]}

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[tf.Variable], numbers: Numbers) -> None:
        """Step one parameter."""
        gradient = decayed(parameter, gradient, numbers)
        square: Any = move(slots[0], gradient * gradient, numbers["rest"])
        if self.centered:
            mean = move(slots[-1], gradient, numbers["rest"])
            square = square - mean * mean
        scaled = gradient / (tf.sqrt(square) + numbers["eps"])
        if self.has_momentum:
            scaled = slots[1].assign(numbers["momentum"] * slots[1] + scaled, read_value=True)
        parameter.assign_sub(numbers["lr"] * scaled)


class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011): lr / sqrt(sum of squares), with PyTorch's learning rate decay."""

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        lr_decay: Rate = 0.0,
        weight_decay: Rate = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: Rate = 1e-10,
        fused: bool | str = "auto",
    ) -> None:
        options = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
        super().__init__(parameters, options, fused)
        self.add_slot("sum", initial_accumulator_value)

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return the learning rate of this update."""
        return {"rate": options["lr"] / (1.0 + (count - 1.0) * options["lr_decay"])}

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[tf.Variable], numbers: Numbers) -> None:
        """Step one parameter."""
        gradient = decayed(parameter, gradient, numbers)
        total = slots[0].assign_add(gradient * gradient, read_value=True)
        parameter.assign_sub(numbers["rate"] * gradient / (tf.sqrt(total) + numbers["eps"]))


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012): steps as long as the running root mean square of the steps before."""

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        rho: Rate = 0.9,
        eps: Rate = 1e-6,
        weight_decay: Rate = 0.0,
        fused: bool | str = "auto",
    ) -> None:
        super().__init__(parameters, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay}, fused)
        self.add_slot("square_avg")
        self.add_slot("acc_delta")

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return what the decay leaves."""
        return {"rest": 1 - options["rho"]}

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[tf.Variable], numbers: Numbers) -> None:
        """Step one parameter."""
        gradient, (squares, steps) = decayed(parameter, gradient, numbers), slots
        square = move(squares, gradient * gradient, numbers["rest"])
        delta = tf.sqrt(steps + numbers["eps"]) / tf.sqrt(square + numbers["eps"]) * gradient
        move(steps, delta * delta, numbers["rest"])
        parameter.assign_sub(numbers["lr"] * delta)


class Adamax(Optimizer):
    """Adamax (Kingma and Ba 2015, algorithm 2), eps added inside the maximum."""

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
        self.add_slot("exp_inf")

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return the learning rate, corrected for the bias of the mean."""
        betas = betas_of(options)
        return {**betas, "rate": options["lr"] / (1.0 - betas["beta1"] ** count)}

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[tf.Variable], numbers: Numbers) -> None:
        """Step one parameter."""
        gradient = decayed(parameter, gradient, numbers)
        mean = move(slots[0], gradient, numbers["rest1"])
        greatest = tf.maximum(slots[1] * numbers["beta2"], tf.abs(gradient) + numbers["eps"])
        parameter.assign_sub(numbers["rate"] * mean / slots[1].assign(greatest, read_value=True))


class NAdam(Optimizer):
    """NAdam (Dozat 2016) as PyTorch has it; the product of the momenta is kept in float32 on both backends."""

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: Rate = 1e-8,
        weight_decay: Rate = 0.0,
        momentum_decay: Rate = 4e-3,
        fused: bool | str = "auto",
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(parameters, {**options, "momentum_decay": momentum_decay}, fused)
        self.slots["mu_product"] = [
            tf.Variable(tf.ones(()), trainable=False, name=f"mu_product/{plain_name(p)}") for p in self.parameters
        ]
        self.add_slot("exp_avg")
        self.add_slot("exp_avg_sq")

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return the momentum of this update and of the next, and the learning rate as a tensor."""
        betas, decay = betas_of(options), options["momentum_decay"]
        base = tf.constant(0.96, tf.float64)
        momentum, following = (betas["beta1"] * (1.0 - 0.5 * base ** (each * decay)) for each in (count, count + 1.0))
        wide = {"momentum": momentum, "following": following, "lr": typed(options["lr"], tf.float64)}
        return {**betas, "root": tf.sqrt(1.0 - betas["beta2"] ** count), "wide": wide}

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[tf.Variable], numbers: Numbers) -> None:
        """Step one parameter."""
        gradient, (product, means, squares) = decayed(parameter, gradient, numbers), slots
        mean = move(means, gradient, numbers["rest1"])
        square = move(squares, gradient * gradient, numbers["rest2"])
        own, ahead = (tf.cast(each, parameter.dtype) for each in self.rates(product, **numbers["wide"]))
        root = tf.sqrt(square) / numbers["root"] + numbers["eps"]
        parameter.assign_sub(own * gradient / root + ahead * mean / root)

    def rates(
        self, product: tf.Variable, momentum: tf.Tensor, following: tf.Tensor, lr: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the rates for the gradient and for its mean, in double precision."""
        total = tf.cast(product.assign(product * tf.cast(momentum, tf.float32), read_value=True), tf.float64)
        return lr * (1.0 - momentum) / (1.0 - total), lr * following / (1.0 - total * following)
