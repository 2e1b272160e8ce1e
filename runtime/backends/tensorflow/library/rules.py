"""Optimizers that scale steps by lengths, signs or sums, by the formulas of their papers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed
from runtime.backends.tensorflow.library.functions import sign
from runtime.backends.tensorflow.library.optimizers import (
    Numbers,
    Optimizer,
    Rate,
    betas_of,
    move,
    plain_name,
)


def root_mean_square(tensor: Any) -> tf.Tensor:
    """Return the length of a tensor over the root of its size."""
    return tf.sqrt(tf.reduce_mean(tf.square(tensor)))


def ratio_unless_zero(weights: tf.Tensor, length: tf.Tensor, ratio: tf.Tensor) -> tf.Tensor:
    """Return a ratio of two lengths; 1 where either of them is 0."""
    return tf.where((weights > 0) & (length > 0), ratio, tf.ones_like(ratio))


class LAMB(Optimizer):
    """LAMB (You et al. 2020, algorithm 2): Adam's step, decay included, made as long as the weights, times lr."""

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: Rate = 1e-6,
        weight_decay: Rate = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}, False)
        self.add_slot("exp_avg")
        self.add_slot("exp_avg_sq")

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return the corrections of the bias towards zero."""
        betas = betas_of(options)
        return {**betas, "left1": 1.0 - betas["beta1"] ** count, "left2": 1.0 - betas["beta2"] ** count}

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[Any], numbers: Numbers) -> None:
        """Step one parameter; of length 0, or by a step of length 0, without a ratio of the two."""
        mean = move(slots[0], gradient, numbers["rest1"])
        square = move(slots[1], gradient * gradient, numbers["rest2"])
        root = tf.sqrt(square / numbers["left2"]) + numbers["eps"]
        step = mean / numbers["left1"] / root + numbers["weight_decay"] * parameter
        weights, length = tf.norm(parameter), tf.norm(step)
        ratio = ratio_unless_zero(weights, length, tf.math.divide_no_nan(weights, length))
        parameter.assign_sub(step * (numbers["lr"] * ratio))


class LARS(Optimizer):
    """LARS (You et al. 2017): SGD with a rate for every tensor, by the lengths of weights and gradient."""

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        momentum: Rate = 0.9,
        weight_decay: Rate = 0.0,
        nesterov: bool = False,
        trust_coefficient: Rate = 1e-3,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(parameters, {**options, "trust_coefficient": trust_coefficient}, False)
        self.nesterov = nesterov
        self.add_slot("momentum")

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[Any], numbers: Numbers) -> None:
        """Step one parameter; of length 0, or on a gradient of length 0, as SGD does."""
        momentum, decay = numbers["momentum"], numbers["weight_decay"]
        weights, length = tf.norm(parameter), tf.norm(gradient)
        share = tf.math.divide_no_nan(numbers["trust_coefficient"] * weights, length + decay * weights)
        step = (gradient + decay * parameter) * ratio_unless_zero(weights, length, share)
        velocity = slots[0].assign(momentum * slots[0] + step, read_value=True)
        parameter.assign_sub(numbers["lr"] * (step + momentum * velocity if self.nesterov else velocity))


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern 2018) as PyTorch has it: squares of matrices are kept by row and by column.

    Of a vector ``row_var`` has the squares of its elements, and ``col_var`` nothing.
    """

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        beta2_decay: Rate = -0.8,
        eps1: Rate | None = None,
        eps2: Rate = 1e-3,
        clip_threshold: Rate = 1.0,
        weight_decay: Rate = 0.0,
    ) -> None:
        options = {"lr": lr, "beta2_decay": beta2_decay, "eps1": eps1, "eps2": eps2, "clip_threshold": clip_threshold}
        super().__init__(parameters, {**options, "weight_decay": weight_decay}, False)
        for name, axis in (("row_var", -1), ("col_var", -2)):
            self.slots[name] = [
                tf.Variable(tf.zeros(kept_shape(p, axis), p.dtype), trainable=False, name=f"{name}/{plain_name(p)}")
                for p in self.parameters
            ]

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return the share of the new squares, and the length of a step relative to that of the weights."""
        relative = tf.minimum(options["lr"], 1.0 / tf.sqrt(count))
        return {"rest": count ** typed(options["beta2_decay"], tf.float64), "relative": relative}

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[Any], numbers: Numbers) -> None:
        """Step one parameter; without ``eps1`` the resolution of its type takes that place."""
        limits = tf.experimental.numpy.finfo(parameter.dtype.as_numpy_dtype)
        least = typed(limits.eps if numbers["eps1"] is None else numbers["eps1"], parameter.dtype)
        tiny = typed(float(limits.tiny), parameter.dtype)
        rate = tf.maximum(root_mean_square(parameter), numbers["eps2"]) * numbers["relative"]
        parameter.assign(parameter * (1.0 - numbers["lr"] * numbers["weight_decay"]))
        square, (rows, columns) = gradient * gradient, slots
        if parameter.shape.rank > 1:
            row = move(rows, tf.reduce_mean(square, -1, keepdims=True), numbers["rest"])
            column = move(columns, tf.reduce_mean(square, -2, keepdims=True), numbers["rest"])
            square = row * column / tf.maximum(tf.reduce_mean(row, -2, keepdims=True), tf.maximum(least, tiny))
        else:
            square = move(rows, square, numbers["rest"])
        step = gradient * tf.math.rsqrt(tf.maximum(square, tf.maximum(least * least, tiny)))
        excess = tf.maximum(root_mean_square(step) / numbers["clip_threshold"], 1.0)
        parameter.assign_sub(step * (rate / excess))


def kept_shape(parameter: tf.Variable, axis: int) -> Sequence[Any]:
    """Return the shape of squares of which one axis is averaged; of a vector its own, or none for the other axis."""
    sizes: list[Any] = [*parameter.shape]
    if len(sizes) < 2:
        return sizes if axis == -1 else [0]
    sizes[axis] = 1
    return sizes


class FTRL(Optimizer):
    """FTRL-Proximal (McMahan et al. 2013) as Keras has it: weights from the sum of all gradients, with l1 sparse."""

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        lr_power: Rate = -0.5,
        initial_accumulator_value: float = 0.1,
        l1: Rate = 0.0,
        l2: Rate = 0.0,
        l2_shrinkage: Rate = 0.0,
        beta: Rate = 0.0,
    ) -> None:
        options = {"lr": lr, "lr_power": lr_power, "l1": l1, "l2": l2, "l2_shrinkage": l2_shrinkage, "beta": beta}
        super().__init__(parameters, options, False)
        self.add_slot("sum", initial_accumulator_value)
        self.add_slot("linear")

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[Any], numbers: Numbers) -> None:
        """Step one parameter: its next value does not depend on this one but through what the slots hold."""
        (total, linear), lr, l1, power = slots, numbers["lr"], numbers["l1"], -numbers["lr_power"]
        before = total.read_value() ** power
        after = total.assign_add(gradient * gradient, read_value=True) ** power
        added = gradient + 2.0 * numbers["l2_shrinkage"] * parameter - (after - before) / lr * parameter
        sums = linear.assign_add(added, read_value=True)
        divisor = (after + numbers["beta"]) / lr + 2.0 * numbers["l2"]
        parameter.assign((tf.clip_by_value(sums, -l1, l1) - sums) / divisor)


class Rprop(Optimizer):
    """Rprop (Riedmiller and Braun 1993) as PyTorch has it; ``step_size`` is in units of lr, and 1 at first."""

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        eta_minus: Rate = 0.5,
        eta_plus: Rate = 1.2,
        step_min: Rate = 1e-6,
        step_max: Rate = 50.0,
    ) -> None:
        options = {"lr": lr, "eta_minus": eta_minus, "eta_plus": eta_plus}
        super().__init__(parameters, {**options, "step_min": step_min, "step_max": step_max}, False)
        self.add_slot("prev")
        self.add_slot("step_size", 1.0)

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return the limits of a step in units of lr; there are none where it is 0 and nothing moves."""
        lr, low, high = (typed(options[name], tf.float64) for name in ("lr", "step_min", "step_max"))
        return {"low": tf.math.divide_no_nan(low, lr), "high": high / lr}

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[Any], numbers: Numbers) -> None:
        """Step one parameter: farther where the sign stays, not at all where it has changed."""
        before, size = slots
        same, plain = sign(before * gradient), tf.ones_like(gradient)
        factor = tf.where(same > 0, numbers["eta_plus"] * plain, plain)
        factor = tf.where(same < 0, numbers["eta_minus"] * plain, factor)
        sizes = size.assign(tf.clip_by_value(size * factor, numbers["low"], numbers["high"]), read_value=True)
        kept = before.assign(tf.where(same < 0, tf.zeros_like(gradient), gradient), read_value=True)
        parameter.assign_sub(numbers["lr"] * sizes * sign(kept))


class Muon(Optimizer):
    """Muon (Jordan et al. 2024) for matrices: the momentum made nearly orthogonal, in the type of the weights.

    Raises ValueError for parameters with another number of axes than 2.
    """

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        momentum: Rate = 0.95,
        nesterov: bool = True,
        weight_decay: Rate = 0.1,
        ns_steps: int = 5,
        eps: Rate = 1e-7,
        adjust_lr: str = "original",
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "eps": eps}, False)
        self.nesterov, self.rounds, self.is_original = nesterov, ns_steps, adjust_lr == "original"
        for at, each in enumerate(self.parameters):
            if each.shape.rank != 2:
                raise ValueError(f"Muon steps matrices: parameter {at} has the shape {tuple(each.shape)}")
        self.add_slot("momentum")

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[Any], numbers: Numbers) -> None:
        """Step one matrix."""
        momentum, (rows, columns) = numbers["momentum"], (size or 0 for size in parameter.shape)
        mean = move(slots[0], gradient, 1.0 - momentum)
        direction = gradient + momentum * (mean - gradient) if self.nesterov else mean
        scale = math.sqrt(max(1, rows / columns)) if self.is_original else 0.2 * math.sqrt(max(rows, columns))
        kept = parameter * (1.0 - numbers["lr"] * numbers["weight_decay"])
        parameter.assign(
            kept - numbers["lr"] * scale * orthogonal(direction, self.rounds, numbers["eps"], rows > columns)
        )


def orthogonal(matrix: tf.Tensor, rounds: int, eps: Any, is_tall: bool) -> tf.Tensor:
    """Return a matrix with singular values near 1 in place of its own: rounds of a quintic Newton-Schulz iteration.

    Coefficients and eps are those of Jordan et al. 2024; the products are of the shorter side.
    """
    found = matrix / tf.maximum(tf.norm(matrix), eps)
    for _ in range(rounds):
        square = tf.matmul(found, found, transpose_a=is_tall, transpose_b=not is_tall)
        factor = -4.775 * square + 2.0315 * tf.matmul(square, square)
        found = 3.4445 * found + (tf.matmul(found, factor) if is_tall else tf.matmul(factor, found))
    return found


class ScheduleFree(Optimizer):
    """Schedule-free learning (Defazio et al. 2024): gradients are taken at y = (1 - share) z + share x.

    z takes the steps, x is its average, and the parameters hold y. ``lead`` is z - x, so that x is
    y - (1 - share) lead. What z was after an update counts by the square of the greatest rate so far.
    """

    def add_averaging(self) -> None:
        """Add the slots of the average: how far z is ahead, the greatest rate so far, and the sum of its squares."""
        self.add_slot("lead")
        for name in ("lr_max", "weight_sum"):
            self.slots[name] = [
                tf.Variable(tf.zeros((), tf.float64), trainable=False, name=f"{name}/{plain_name(p)}")
                for p in self.parameters
            ]

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return the learning rate in double precision too."""
        return {"wide": {"lr": options["lr"]}}

    def follow(
        self, parameter: tf.Variable, direction: tf.Tensor, slots: Sequence[Any], share: Any, numbers: Numbers
    ) -> None:
        """Move z by lr against a direction, weight decay at y included, x towards z, and y between the two."""
        lead, greatest, total = slots
        weight = greatest.assign(tf.maximum(greatest, numbers["wide"]["lr"]), read_value=True) ** 2
        whole = tf.math.divide_no_nan(weight, total.assign_add(weight, read_value=True))
        part, ahead = tf.cast(whole, parameter.dtype), lead.read_value()
        step = numbers["lr"] * (direction + numbers["weight_decay"] * parameter)
        parameter.assign_add(share * part * ahead - (1.0 - share * (1.0 - part)) * step)
        lead.assign((ahead - step) * (1.0 - part))


def copy_averages(
    target: Sequence[tf.Variable], source: Sequence[tf.Variable], *averaging: tuple[Optimizer, float]
) -> None:
    """Write the averages x of weights that schedule-free optimizers step, and other weights as they are.

    ``averaging`` are pairs of an optimizer and its share of x in the weights.
    """
    known = {
        id(parameter): (1 - share) * lead
        for optimizer, share in averaging
        for parameter, lead in zip(optimizer.parameters, optimizer.slots["lead"], strict=True)
    }
    for average, weight in zip(target, source, strict=True):
        average.assign(weight - known[id(weight)] if id(weight) in known else weight)


class ScheduleFreeSGD(ScheduleFree):
    """Schedule-free SGD (Defazio et al. 2024): the momentum places y between z and x."""

    def __init__(
        self, parameters: Iterable[tf.Variable], *, lr: Rate, momentum: float = 0.9, weight_decay: Rate = 0.0
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}, False)
        self.add_averaging()

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[Any], numbers: Numbers) -> None:
        """Step one parameter."""
        self.follow(parameter, gradient, slots, numbers["momentum"], numbers)


class ScheduleFreeAdamW(ScheduleFree):
    """Schedule-free AdamW (Defazio et al. 2024): the first of the betas places y between z and x."""

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        lr: Rate,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: Rate = 1e-8,
        weight_decay: Rate = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}, False)
        self.add_slot("exp_avg_sq")
        self.add_averaging()

    def prepare(self, options: Numbers, count: tf.Tensor) -> Numbers:
        """Return the correction of the bias towards zero."""
        betas = betas_of(options)
        return {**super().prepare(options, count), **betas, "left": 1.0 - betas["beta2"] ** count}

    def step(self, parameter: tf.Variable, gradient: tf.Tensor, slots: Sequence[Any], numbers: Numbers) -> None:
        """Step one parameter."""
        square = move(slots[0], gradient * gradient, numbers["rest2"])
        direction = gradient / (tf.sqrt(square / numbers["left"]) + numbers["eps"])
        self.follow(parameter, direction, slots[1:], numbers["beta1"], numbers)
