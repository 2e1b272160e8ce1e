"""Optimizers on explicit gradients: every list is resolved once, no step reads or leaves a ``.grad``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from runtime.backends.torch.library.kernels import (
    TensorList,
    foreach_inner_momentum,
    foreach_lion,
    fused_adagrad,
    fused_adam,
    fused_sgd,
    has_fused,
    records_nothing,
)


class Optimizer:
    """What all optimizers share: their parameters, their options, how often they were applied, their slots.

    ``options`` may hold schedules: functions of the number of updates applied before this one.
    """

    kernel = ""  # the fused operator of this rule, where it has one
    guard: torch.Tensor | None = None  # whether the update under way will stay, where the host does not know yet

    def __init__(self, parameters: Iterable[torch.Tensor], options: Mapping[str, Any], fused: bool | str) -> None:
        self.parameters = list(parameters)
        self.options = dict(options)
        self.schedules = {name: value for name, value in options.items() if callable(value)}
        self.has_complex = any(p.is_complex() for p in self.parameters)
        self.fused = fused is not False and has_fused(self.parameters, self.kernel)
        if fused is True and self.parameters and not self.fused:
            raise ValueError("fused: no kernel here can step all parameters at once; leave it out or set it to false")
        self.applied = 0
        self.held: dict[str, list[Any]] = {}

    @property
    def slots(self) -> dict[str, list[Any]]:
        """Return the slots: lists by name, with one tensor per parameter."""
        return self.held

    @records_nothing
    def apply(self, gradients: TensorList) -> None:
        """Step the parameters, in place, on their gradients, in order."""
        for name, schedule in self.schedules.items():
            self.options[name] = schedule(self.applied)
        try:
            self.step(gradients)
        except (AttributeError, TypeError):
            require_gradients(gradients)
            raise
        self.applied += 1

    def keep(self) -> Any:
        """Return a copy of its state other than the parameters."""
        return self.applied, copied([*self.held.values()])

    def put(self, kept: Any) -> None:
        """Keep what :meth:`keep` gave, which is its own from then on."""
        self.applied, slots = kept
        for each, values in zip(self.held.values(), slots, strict=True):
            each[:] = values

    def step(self, gradients: TensorList) -> None:
        """Step the parameters on their gradients: what each rule adds."""
        raise TypeError(f"{type(self).__name__} has no rule")

    def add_slot(self, name: str, value: float = 0.0) -> list[torch.Tensor]:
        """Return a new slot: one tensor like each parameter, filled with a value."""
        self.slots[name] = [make_slot(p, value) for p in self.parameters]
        return self.slots[name]

    def add_steps(self) -> list[torch.Tensor]:
        """Return a new slot of update counts, where the kernels need them: on the device of the parameters if fused."""
        device = self.parameters[0].device if self.fused and self.parameters else "cpu"
        self.slots["step"] = list(torch.zeros(len(self.parameters), dtype=torch.float32, device=device).unbind())
        return self.slots["step"]


def make_slot(parameter: torch.Tensor, value: complex) -> torch.Tensor:
    """Return a tensor like a parameter, filled with a value; both parts of complex numbers have it."""
    value = complex(value, value) if parameter.is_complex() else value
    return torch.full_like(parameter, value, requires_grad=False)


def copied(value: Any) -> Any:
    """Return a copy of what an optimizer keeps: tensors, alone and in dictionaries, lists and tuples, and the rest."""
    match value:
        case torch.Tensor():
            return value.detach().clone()
        case dict():
            return {key: copied(each) for key, each in value.items()}
        case list():
            return [copied(each) for each in value]
        case tuple():
            return tuple(copied(each) for each in value)
        case _:
            return copy.deepcopy(value)


def require_gradients(gradients: Sequence[torch.Tensor | None]) -> None:
    """Raise RuntimeError naming the first parameter without a gradient, if there is one."""
    for index, gradient in enumerate(gradients):
        if gradient is None:
            raise RuntimeError(f"parameter {index} has no gradient: the loss does not reach it")


class SGD(Optimizer):
    """SGD: v = m v + (1 - dampening) g, w -= lr v; with ``lr_inside`` the form v = m v - lr g, w += v."""

    kernel = "_fused_sgd_"

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        lr: float | Callable[[int], float],
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        momentum_form: str = "lr_outside",
        fused: bool | str = "auto",
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        self.momenta: list[Any]
        self.inside = momentum_form == "lr_inside"
        super().__init__(parameters, options if self.inside else options | {"dampening": dampening}, fused)
        if self.inside or (momentum and self.fused):
            self.momenta = self.add_slot("momentum_buffer")
        elif momentum:  # torch's foreach form starts each momentum as a clone of the first gradient
            self.momenta = self.slots["momentum_buffer"] = [None] * len(self.parameters)
        else:
            self.momenta = [] if self.fused else [None] * len(self.parameters)

    def step(self, gradients: TensorList) -> None:
        """Step on the gradients with the kernel for this form and device."""
        if self.inside:
            foreach_inner_momentum(self.parameters, gradients, self.momenta, **self.options)
        elif self.fused:
            fused_sgd(self.parameters, gradients, self.momenta, self.applied == 0, **self.options)
        else:
            listed = list(gradients)
            if self.options["nesterov"] and not self.options["weight_decay"]:
                listed = [each.clone() for each in listed]  # torch adds the momentum to what it is given, in place
            sgd(self.parameters, listed, self.momenta, foreach=True, maximize=False, **self.options)


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015), weight decay added to the gradient; ``decoupled`` makes it AdamW."""

    kernel = "_fused_adam_"
    decoupled = False

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        lr: float | Callable[[int], float],
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        fused: bool | str = "auto",
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(parameters, options, fused)
        self.means = self.add_slot("exp_avg")
        self.squares = self.add_slot("exp_avg_sq")
        self.steps = self.add_steps()

    def step(self, gradients: TensorList) -> None:
        """Step on the gradients with one kernel, or with torch's own list form."""
        if self.fused:
            fused_adam(self.parameters, gradients, self.means, self.squares, self.steps, self.decoupled, **self.options)
            return
        options = dict(self.options)
        beta1, beta2 = options.pop("betas")
        adam(
            self.parameters,
            list(gradients),
            self.means,
            self.squares,
            [],
            self.steps,
            foreach=True,
            has_complex=self.has_complex,
            decoupled_weight_decay=self.decoupled,
            amsgrad=False,
            maximize=False,
            beta1=beta1,
            beta2=beta2,
            **options,
        )


class AdamW(Adam):
    """AdamW (Loshchilov and Hutter 2019): weight decay apart from the gradient."""

    kernel = "_fused_adamw_"
    decoupled = True


class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011): lr / sqrt(sum of squares), with torch's learning rate decay."""

    kernel = "_fused_adagrad_"

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        lr: float | Callable[[int], float],
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        fused: bool | str = "auto",
    ) -> None:
        options = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
        super().__init__(parameters, options, fused)
        self.sums = self.add_slot("sum", initial_accumulator_value)
        self.steps = self.add_steps()

    def step(self, gradients: TensorList) -> None:
        """Step on the gradients with one kernel, or with torch's own list form."""
        if self.fused:
            fused_adagrad(self.parameters, gradients, self.sums, self.steps, **self.options)
        else:
            adagrad(
                self.parameters,
                list(gradients),
                self.sums,
                self.steps,
                foreach=True,
                has_complex=self.has_complex,
                maximize=False,
                **self.options,
            )


class Lion(Optimizer):
    """Lion (Chen et al. 2023): w -= lr sign(b1 v + (1 - b1) g) + lr decay w, then v = b2 v + (1 - b2) g."""

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        lr: float | Callable[[int], float],
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        fused: bool | str = "auto",
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay}, False)
        self.means = self.add_slot("exp_avg")

    def step(self, gradients: TensorList) -> None:
        """Step on the gradients."""
        foreach_lion(self.parameters, gradients, self.means, **self.options)


class Wrapped(Optimizer):
    """An optimizer with torch.optim's interface: gradients are in ``.grad`` only while it steps."""

    def __init__(
        self, parameters: Iterable[torch.Tensor], rule: Callable[..., torch.optim.Optimizer], **options: Any
    ) -> None:
        super().__init__(parameters, options, False)
        first = {name: self.schedules[name](0) if name in self.schedules else value for name, value in options.items()}
        self.optimizer = rule(self.parameters, **first)

    @property
    def slots(self) -> dict[str, list[Any]]:
        """Return what the wrapped optimizer keeps, in lists by name; None where it keeps nothing for a parameter."""
        states = [self.optimizer.state.get(p, {}) for p in self.parameters]
        return {name: [state.get(name) for state in states] for name in dict.fromkeys(n for s in states for n in s)}

    @property
    def state(self) -> Mapping[torch.Tensor, Mapping[str, object]]:
        """Return the slots by parameter, as the wrapped optimizer keeps them."""
        return self.optimizer.state

    def keep(self) -> Any:
        """Return how often it was applied, and copies of the state and the groups of the wrapped optimizer."""
        state = {key: copied(each) for key, each in self.optimizer.state.items()}
        listed = self.optimizer.param_groups
        groups = [{name: copied(each[name]) for name in each if name != "params"} for each in listed]
        return self.applied, state, groups

    def put(self, kept: Any) -> None:
        """Give the wrapped optimizer back what :meth:`keep` gave."""
        self.applied, state, groups = kept
        self.optimizer.state.clear()
        self.optimizer.state.update(state)
        for group, old in zip(self.optimizer.param_groups, groups, strict=True):
            group.update(old)

    def follow(self) -> None:
        """Give the wrapped optimizer the options that change, as they are now."""
        for group in self.optimizer.param_groups:
            group.update({name: self.options[name] for name in self.schedules})

    def step(self, gradients: TensorList) -> None:
        """Lend the gradients to the wrapped optimizer for one step; the parameters' own ``.grad`` stays as it was."""
        require_gradients(gradients)
        self.follow()
        self.lend(gradients)

    def lend(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Let the wrapped optimizer step on gradients; on zeros where the update will not stay."""
        kept = [p.grad for p in self.parameters]
        lent = gradients if self.guard is None else guarded(gradients, self.guard)
        try:
            for parameter, gradient in zip(self.parameters, lent, strict=True):
                parameter.grad = gradient
            self.optimizer.step()
        finally:
            for parameter, gradient in zip(self.parameters, kept, strict=True):
                parameter.grad = gradient


def guarded(gradients: Sequence[torch.Tensor | None], guard: torch.Tensor) -> list[torch.Tensor | None]:
    """Return gradients with zeros in their place unless the device says otherwise."""
    return [None if each is None else torch.where(guard.to(each.device), each, 0.0) for each in gradients]
