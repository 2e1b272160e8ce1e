"""Optimizers that step one parameter after another, by the formulas of their papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from runtime.backends.torch.library.kernels import TensorList
from runtime.backends.torch.library.optimizers import Optimizer

Rate: TypeAlias = float | Callable[[int], float]
"""A number, or a function of the number of updates applied before this one."""
Numbers: TypeAlias = Mapping[str, Any]
"""Numbers of one update by name."""


class OneByOne(Optimizer):
    """An optimizer whose rule is that of one parameter: :meth:`advance`."""

    def __init__(self, parameters: Iterable[torch.Tensor], options: Mapping[str, Any]) -> None:
        super().__init__(parameters, options, False)

    def step(self, gradients: TensorList) -> None:
        """Step the parameters, each with its slots."""
        numbers = {**self.options, **self.prepare(self.options, self.applied + 1)}
        held = zip(*self.held.values(), strict=True)
        for parameter, gradient, slots in zip(self.parameters, gradients, held, strict=True):
            self.advance(parameter, gradient, slots, numbers)

    def prepare(self, options: Numbers, count: int) -> Numbers:
        """Return more numbers that are the same for all parameters; ``count`` is that of this update, from 1."""
        return {}

    def advance(
        self, parameter: torch.Tensor, gradient: torch.Tensor, slots: Sequence[torch.Tensor], numbers: Numbers
    ) -> None:
        """Step one parameter on its gradient: what each rule adds."""
        raise TypeError(f"{type(self).__name__} has no rule")


def root_mean_square(tensor: torch.Tensor) -> torch.Tensor:
    """Return the length of a tensor over the root of its size."""
    return torch.linalg.vector_norm(tensor) / math.sqrt(tensor.numel())


class LAMB(OneByOne):
    """LAMB (You et al. 2020, algorithm 2): Adam's step, decay included, made as long as the weights, times lr."""

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        lr: Rate,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.add_slot("exp_avg")
        self.add_slot("exp_avg_sq")

    def prepare(self, options: Numbers, count: int) -> Numbers:
        """Return the corrections of the bias towards zero."""
        beta1, beta2 = options["betas"]
        return {"left1": 1 - beta1**count, "left2": 1 - beta2**count}

    def advance(
        self, parameter: torch.Tensor, gradient: torch.Tensor, slots: Sequence[torch.Tensor], numbers: Numbers
    ) -> None:
        """Step one parameter; of length 0, or by a step of length 0, without a ratio of the two."""
        (mean, square), (beta1, beta2) = slots, numbers["betas"]
        mean.lerp_(gradient, 1 - beta1)
        square.lerp_(gradient * gradient, 1 - beta2)
        root = (square / numbers["left2"]).sqrt_().add_(numbers["eps"])
        step = (mean / numbers["left1"]).div_(root).add_(parameter, alpha=numbers["weight_decay"])
        weights, length = torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(step)
        ratio = torch.where((weights > 0) & (length > 0), weights / length, 1.0)
        parameter.sub_(step * (numbers["lr"] * ratio))


class LARS(OneByOne):
    """LARS (You et al. 2017): SGD with a rate for every tensor, by the lengths of weights and gradient."""

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        lr: Rate,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        trust_coefficient: float = 1e-3,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(parameters, {**options, "trust_coefficient": trust_coefficient})
        self.nesterov = nesterov
        self.add_slot("momentum")

    def advance(
        self, parameter: torch.Tensor, gradient: torch.Tensor, slots: Sequence[torch.Tensor], numbers: Numbers
    ) -> None:
        """Step one parameter; of length 0, or on a gradient of length 0, as SGD does."""
        (velocity,), momentum, decay = slots, numbers["momentum"], numbers["weight_decay"]
        weights, length = torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(gradient)
        share = numbers["trust_coefficient"] * weights / (length + decay * weights)
        ratio = torch.where((weights > 0) & (length > 0), share, 1.0)
        step = torch.add(gradient, parameter, alpha=decay) * ratio
        velocity.mul_(momentum).add_(step)
        parameter.sub_(numbers["lr"] * (step + momentum * velocity if self.nesterov else velocity))


class Adafactor(OneByOne):
    """Adafactor (Shazeer and Stern 2018) as PyTorch has it: squares of matrices are kept by row and by column.

    Of a vector ``row_var`` has the squares of its elements, and ``col_var`` nothing.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        lr: Rate,
        beta2_decay: float = -0.8,
        eps1: float | None = None,
        eps2: float = 1e-3,
        clip_threshold: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        options = {"lr": lr, "beta2_decay": beta2_decay, "eps1": eps1, "eps2": eps2, "clip_threshold": clip_threshold}
        super().__init__(parameters, {**options, "weight_decay": weight_decay})
        self.held["row_var"] = [p.new_zeros((*p.shape[:-1], 1) if p.ndim > 1 else p.shape) for p in self.parameters]
        self.held["col_var"] = [
            p.new_zeros((*p.shape[:-2], 1, p.shape[-1]) if p.ndim > 1 else 0) for p in self.parameters
        ]

    def prepare(self, options: Numbers, count: int) -> Numbers:
        """Return the share of the new squares, and the length of a step relative to that of the weights."""
        return {"rest": count ** options["beta2_decay"], "relative": min(options["lr"], 1 / math.sqrt(count))}

    def advance(
        self, parameter: torch.Tensor, gradient: torch.Tensor, slots: Sequence[torch.Tensor], numbers: Numbers
    ) -> None:
        """Step one parameter; without ``eps1`` the resolution of its type takes that place."""
        (rows, columns), limits, eps1 = slots, torch.finfo(parameter.dtype), numbers["eps1"]
        least = limits.eps if eps1 is None else eps1
        rate = root_mean_square(parameter).clamp(min=numbers["eps2"]) * numbers["relative"]
        parameter.mul_(1 - numbers["lr"] * numbers["weight_decay"])
        square = gradient * gradient
        if parameter.ndim > 1:
            rows.lerp_(square.mean(-1, keepdim=True), numbers["rest"])
            columns.lerp_(square.mean(-2, keepdim=True), numbers["rest"])
            square = rows * columns / rows.mean(-2, keepdim=True).clamp(min=max(least, limits.tiny))
        else:
            square = rows.lerp_(square, numbers["rest"])
        step = gradient * square.clamp(min=max(least**2, limits.tiny)).rsqrt()
        excess = (root_mean_square(step) / numbers["clip_threshold"]).clamp(min=1.0)
        parameter.sub_(step * (rate / excess))


class FTRL(OneByOne):
    """FTRL-Proximal (McMahan et al. 2013) as Keras has it: weights from the sum of all gradients, with l1 sparse."""

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        lr: Rate,
        lr_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1: float = 0.0,
        l2: float = 0.0,
        l2_shrinkage: float = 0.0,
        beta: float = 0.0,
    ) -> None:
        options = {"lr": lr, "lr_power": lr_power, "l1": l1, "l2": l2, "l2_shrinkage": l2_shrinkage, "beta": beta}
        super().__init__(parameters, options)
        self.add_slot("sum", initial_accumulator_value)
        self.add_slot("linear")

    def advance(
        self, parameter: torch.Tensor, gradient: torch.Tensor, slots: Sequence[torch.Tensor], numbers: Numbers
    ) -> None:
        """Step one parameter: its next value does not depend on this one but through what the slots hold."""
        (total, linear), lr, l1, power = slots, numbers["lr"], numbers["l1"], -numbers["lr_power"]
        before = total**power
        total.addcmul_(gradient, gradient)
        after = total**power
        linear.add_(gradient + 2 * numbers["l2_shrinkage"] * parameter - (after - before) / lr * parameter)
        divisor = (after + numbers["beta"]) / lr + 2 * numbers["l2"]
        parameter.copy_((linear.clamp(-l1, l1) - linear) / divisor)


class Rprop(OneByOne):
    """Rprop (Riedmiller and Braun 1993) as PyTorch has it; ``step_size`` is in units of lr, and 1 at first."""

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        lr: Rate,
        eta_minus: float = 0.5,
        eta_plus: float = 1.2,
        step_min: float = 1e-6,
        step_max: float = 50.0,
    ) -> None:
        options = {"lr": lr, "eta_minus": eta_minus, "eta_plus": eta_plus}
        super().__init__(parameters, {**options, "step_min": step_min, "step_max": step_max})
        self.add_slot("prev")
        self.add_slot("step_size", 1.0)

    def prepare(self, options: Numbers, count: int) -> Numbers:
        """Return the limits of a step in units of lr; there are none where it is 0 and nothing moves."""
        lr = options["lr"]
        return {"low": options["step_min"] / lr, "high": options["step_max"] / lr} if lr else {"low": 0, "high": None}

    def advance(
        self, parameter: torch.Tensor, gradient: torch.Tensor, slots: Sequence[torch.Tensor], numbers: Numbers
    ) -> None:
        """Step one parameter: farther where the sign stays, not at all where it has changed."""
        (before, size), same = slots, (slots[0] * gradient).sign()
        factor = torch.ones_like(size).masked_fill_(same > 0, numbers["eta_plus"])
        size.mul_(factor.masked_fill_(same < 0, numbers["eta_minus"])).clamp_(numbers["low"], numbers["high"])
        before.copy_(torch.where(same < 0, 0.0, gradient))
        parameter.sub_(numbers["lr"] * size * before.sign())


class Muon(OneByOne):
    """Muon (Jordan et al. 2024) for matrices: the momentum made nearly orthogonal, in the type of the weights.

    Raises ValueError for parameters with another number of axes than 2.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        lr: Rate,
        momentum: float = 0.95,
        nesterov: bool = True,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        eps: float = 1e-7,
        adjust_lr: str = "original",
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "eps": eps})
        self.nesterov, self.rounds, self.is_original = nesterov, ns_steps, adjust_lr == "original"
        for at, each in enumerate(self.parameters):
            if each.ndim != 2:
                raise ValueError(f"Muon steps matrices: parameter {at} has the shape {tuple(each.shape)}")
        self.add_slot("momentum")

    def advance(
        self, parameter: torch.Tensor, gradient: torch.Tensor, slots: Sequence[torch.Tensor], numbers: Numbers
    ) -> None:
        """Step one matrix."""
        (mean,), momentum, (rows, columns) = slots, numbers["momentum"], parameter.shape
        mean.lerp_(gradient, 1 - momentum)
        direction = gradient.lerp(mean, momentum) if self.nesterov else mean
        scale = math.sqrt(max(1, rows / columns)) if self.is_original else 0.2 * math.sqrt(max(rows, columns))
        parameter.mul_(1 - numbers["lr"] * numbers["weight_decay"])
        parameter.sub_(numbers["lr"] * scale * orthogonal(direction, self.rounds, numbers["eps"]))


def orthogonal(matrix: torch.Tensor, rounds: int, eps: float) -> torch.Tensor:
    """Return a matrix with singular values near 1 in place of its own: rounds of a quintic Newton-Schulz iteration.

    Coefficients and eps are those of Jordan et al. 2024; the products are of the shorter side.
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    found = matrix.T if is_tall else matrix
    found = found / torch.linalg.vector_norm(found).clamp(min=eps)
    for _ in range(rounds):
        square = found @ found.T
        found = 3.4445 * found + (-4.775 * square + 2.0315 * square @ square) @ found
    return found.T if is_tall else found


class ScheduleFree(OneByOne):
    """Schedule-free learning (Defazio et al. 2024): gradients are taken at y = (1 - share) z + share x.

    z takes the steps, x is its average, and the parameters hold y. ``lead`` is z - x, so that x is
    y - (1 - share) lead. What z was after an update counts by the square of the greatest rate so far.
    """

    def add_averaging(self) -> None:
        """Add the slots of the average: how far z is ahead, the greatest rate so far, and the sum of its squares."""
        self.add_slot("lead")
        for name in ("lr_max", "weight_sum"):
            self.held[name] = [torch.zeros((), dtype=torch.float64) for _ in self.parameters]

    def follow(
        self,
        parameter: torch.Tensor,
        direction: torch.Tensor,
        slots: Sequence[torch.Tensor],
        share: float,
        numbers: Numbers,
    ) -> None:
        """Move z by lr against a direction, weight decay at y included, x towards z, and y between the two."""
        (lead, greatest, total), lr = slots, numbers["lr"]
        weight = greatest.clamp_(min=lr).square()
        part = torch.where(weight > 0, weight / total.add_(weight), 0.0)  # no number is read from the device
        move = lr * (direction + numbers["weight_decay"] * parameter)
        parameter.add_(share * part * lead - (1 - share * (1 - part)) * move)
        lead.sub_(move).mul_(1 - part)


@torch.no_grad()
def copy_averages(
    target: Sequence[torch.Tensor], source: Sequence[torch.Tensor], *averaging: tuple[Optimizer, float]
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
        average.copy_(weight - known[id(weight)] if id(weight) in known else weight)


class ScheduleFreeSGD(ScheduleFree):
    """Schedule-free SGD (Defazio et al. 2024): the momentum places y between z and x."""

    def __init__(
        self, parameters: Iterable[torch.Tensor], *, lr: Rate, momentum: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.add_averaging()

    def advance(
        self, parameter: torch.Tensor, gradient: torch.Tensor, slots: Sequence[torch.Tensor], numbers: Numbers
    ) -> None:
        """Step one parameter."""
        self.follow(parameter, gradient, slots, numbers["momentum"], numbers)


class ScheduleFreeAdamW(ScheduleFree):
    """Schedule-free AdamW (Defazio et al. 2024): the first of the betas places y between z and x."""

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        lr: Rate,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.add_slot("exp_avg_sq")
        self.add_averaging()

    def prepare(self, options: Numbers, count: int) -> Numbers:
        """Return the correction of the bias towards zero."""
        return {"left": 1 - options["betas"][1] ** count}

    def advance(
        self, parameter: torch.Tensor, gradient: torch.Tensor, slots: Sequence[torch.Tensor], numbers: Numbers
    ) -> None:
        """Step one parameter."""
        (square, *averaging), (share, beta2) = slots, numbers["betas"]
        square.lerp_(gradient * gradient, 1 - beta2)
        direction = gradient / (square / numbers["left"]).sqrt_().add_(numbers["eps"])
        self.follow(parameter, direction, averaging, share, numbers)
