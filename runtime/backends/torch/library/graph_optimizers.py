"""Optimizers whose updates are part of a graph: the host computes their numbers before it, and counts after it.

Outside a graph they are what they derive from. In one they write out what the fused kernels compute, which have no
place there; results differ in the last bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from runtime.backends.torch.library.graph_numbers import Figures
from runtime.backends.torch.library.grouped import Grouped, changed
from runtime.backends.torch.library.kernels import TensorList
from runtime.backends.torch.library.optimizers import SGD, Adagrad, Adam, AdamW, Lion, Optimizer, require_gradients
from runtime.backends.torch.library.rules import (
    FTRL,
    LAMB,
    LARS,
    Adafactor,
    Muon,
    OneByOne,
    Rprop,
    ScheduleFreeAdamW,
    ScheduleFreeSGD,
)

MOST_COUNTED = 2**24
"""The greatest count that the kernels' float32 holds."""


class InGraph(Optimizer):
    """An optimizer in a graph. The learning rate, what follows a schedule and what counts updates are tensors there.

    ``is_behind``: updates were counted of which the slot ``step``, that the kernels alone read, does not know yet.
    """

    figures: Figures
    is_behind = False
    turn: int | torch.Tensor = 0  # the number of updates that the graph has made so far; perhaps the device alone knows

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.figures = Figures(self.parameters[0].device if self.parameters else "cpu")

    def feed(self, times: int) -> None:
        """Compute the numbers of the updates that the graph makes."""
        self.turn = 0
        self.figures.write([self.now(turn) for turn in range(times)])

    def now(self, turn: int) -> dict[str, float]:
        """Return by name the numbers that change, as they are after so many more updates."""
        for name, schedule in self.schedules.items():
            self.options[name] = schedule(self.applied + turn)
        moving = {name: self.options[name] for name in ("lr", *self.schedules) if name in self.options}
        return dict(flat({**moving, **self.derive(self.options, self.applied + turn + 1)}))

    def derive(self, options: Mapping[str, Any], count: int) -> Mapping[str, Any]:
        """Return more numbers that change with the updates; ``count`` is that of this update, from 1."""
        return {}

    def settle(self, times: int) -> None:
        """Count the updates that the graph has made."""
        self.applied += times
        self.is_behind = True

    def catch_up(self) -> None:
        """Write the count into the slot that the kernels read."""
        if self.is_behind:
            self.is_behind = False
            for steps in self.held.get("step", ()):
                steps.fill_(min(self.applied, MOST_COUNTED))

    @property
    def slots(self) -> dict[str, list[Any]]:
        """Return the slots, with the count of all updates."""
        self.catch_up()
        return self.held

    def keep(self) -> Any:
        """Return a copy of its state other than the parameters."""
        self.catch_up()
        return super().keep()

    def written(self) -> list[torch.Tensor]:
        """Return the tensors that an update in a graph changes: parameters and slots, but not what kernels count."""
        slots = (each for name, slot in self.held.items() if name != "step" for each in slot if each is not None)
        return [*self.parameters, *slots]

    @torch.no_grad()
    def apply(self, gradients: TensorList) -> None:
        """Step the parameters, in place, on their gradients."""
        if torch.compiler.is_compiling():
            require_gradients(gradients)
            self.advance_all(gradients, self.numbers(self.turn))
            self.turn = self.turn + 1  # not in place: it may be a tensor that was put back
        else:
            self.catch_up()
            super().apply(gradients)

    def numbers(self, turn: int | torch.Tensor) -> dict[str, Any]:
        """Return options and derived numbers by name, those that change as tensors."""
        found = dict(self.options)
        for name, read in self.figures.read(turn).items():
            option, *part = name.split(".")
            found[option] = (*(found[option] if part != ["0"] else ()), read) if part else read
        return found

    def advance_all(self, gradients: TensorList, numbers: Mapping[str, Any]) -> None:
        """Step the parameters: what each rule adds."""
        raise TypeError(f"{type(self).__name__} has no rule")


def flat(numbers: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield numbers by name; those of a tuple one by one, ``betas.0``."""
    for name, value in numbers.items():
        if isinstance(value, (tuple, list)):
            yield from ((f"{name}.{at}", float(each)) for at, each in enumerate(value))
        else:
            yield name, float(value)


class GraphSGD(InGraph, SGD):
    """SGD in a graph."""

    def derive(self, options: Mapping[str, Any], count: int) -> Mapping[str, Any]:
        """Return the share of a gradient in the momentum: the first becomes the momentum itself."""
        return {} if self.inside else {"share": 1.0 if count == 1 else 1 - options["dampening"]}

    def advance_all(self, gradients: TensorList, numbers: Mapping[str, Any]) -> None:
        """Step the parameters; raise ValueError where a momentum begins with the first gradient."""
        lr, momentum, decay, nesterov = (numbers[name] for name in ("lr", "momentum", "weight_decay", "nesterov"))
        momenta = self.momenta or [None] * len(self.parameters)
        if is_there(momentum) and momenta[0] is None:
            raise ValueError("the optimizer has no fused kernel, so its slots are made by the first gradient")
        v: Any
        for p, g, v in zip(self.parameters, gradients, momenta, strict=True):
            g = g + decay * p if is_there(decay) else g
            if self.inside:
                v.mul_(momentum).sub_(lr * g)
                p.add_(momentum * v - lr * g if nesterov else v)
            elif is_there(momentum):
                v.mul_(momentum).add_(numbers["share"] * g)
                p.sub_(lr * (g + momentum * v if nesterov else v))
            else:
                p.sub_(lr * g)


class GraphAdam(InGraph, Adam):
    """Adam in a graph."""

    def derive(self, options: Mapping[str, Any], count: int) -> Mapping[str, Any]:
        """Return the rate and the root of the squares with the corrections of their bias towards zero."""
        beta1, beta2 = options["betas"]
        return {"rate": options["lr"] / (1 - beta1**count), "root": math.sqrt(1 - beta2**count)}

    def advance_all(self, gradients: TensorList, numbers: Mapping[str, Any]) -> None:
        """Step the parameters."""
        (beta1, beta2), decay = numbers["betas"], numbers["weight_decay"]
        for p, g, mean, square in zip(self.parameters, gradients, self.means, self.squares, strict=True):
            if is_there(decay) and self.decoupled:
                p.mul_(1 - numbers["lr"] * decay)
            elif is_there(decay):
                g = g + decay * p
            mean.add_((g - mean) * (1 - beta1))
            square.mul_(beta2).add_(g * g * (1 - beta2))
            p.sub_(numbers["rate"] * mean / (square.sqrt() / numbers["root"] + numbers["eps"]))


class GraphAdamW(GraphAdam, AdamW):
    """AdamW in a graph."""

    decoupled = True


class GraphAdagrad(InGraph, Adagrad):
    """Adagrad in a graph."""

    def derive(self, options: Mapping[str, Any], count: int) -> Mapping[str, Any]:
        """Return the rate of this update."""
        return {"rate": options["lr"] / (1 + (count - 1) * options["lr_decay"])}

    def advance_all(self, gradients: TensorList, numbers: Mapping[str, Any]) -> None:
        """Step the parameters."""
        decay = numbers["weight_decay"]
        for p, g, total in zip(self.parameters, gradients, self.sums, strict=True):
            g = g + decay * p if is_there(decay) else g
            total.add_(g * g)
            p.sub_(numbers["rate"] * g / (total.sqrt() + numbers["eps"]))


class GraphLion(InGraph, Lion):
    """Lion in a graph."""

    def advance_all(self, gradients: TensorList, numbers: Mapping[str, Any]) -> None:
        """Step the parameters."""
        (beta1, beta2), lr = numbers["betas"], numbers["lr"]
        for p, g, mean in zip(self.parameters, gradients, self.means, strict=True):
            p.mul_(1 - lr * numbers["weight_decay"]).sub_(lr * (mean + (g - mean) * (1 - beta1)).sign())
            mean.add_((g - mean) * (1 - beta2))


def is_there(number: Any) -> bool:
    """Return whether a number is not 0, or may become another."""
    return isinstance(number, torch.Tensor) or number != 0


class GraphOneByOne(InGraph, OneByOne):
    """An optimizer that steps one parameter after another, in a graph."""

    def derive(self, options: Mapping[str, Any], count: int) -> Mapping[str, Any]:
        """Return the numbers that are the same for all parameters."""
        return self.prepare(options, count)

    def advance_all(self, gradients: TensorList, numbers: Mapping[str, Any]) -> None:
        """Step the parameters, each with its slots and with the numbers in its type."""
        held = zip(*self.held.values(), strict=True)
        for parameter, gradient, slots in zip(self.parameters, gradients, held, strict=True):
            typed = {
                name: each.to(parameter.dtype) if isinstance(each, torch.Tensor) else each
                for name, each in numbers.items()
            }
            self.advance(parameter, gradient, slots, typed)


class GraphLAMB(GraphOneByOne, LAMB):
    """LAMB in a graph."""


class GraphLARS(GraphOneByOne, LARS):
    """LARS in a graph."""


class GraphAdafactor(GraphOneByOne, Adafactor):
    """Adafactor in a graph."""


class GraphFTRL(GraphOneByOne, FTRL):
    """FTRL-Proximal in a graph."""


class GraphRprop(GraphOneByOne, Rprop):
    """Rprop in a graph."""

    def derive(self, options: Mapping[str, Any], count: int) -> Mapping[str, Any]:
        """Return the limits of a step in units of lr."""
        limits = self.prepare(options, count)
        return {**limits, "high": math.inf if limits["high"] is None else limits["high"]}


class GraphMuon(GraphOneByOne, Muon):
    """Muon in a graph."""


class GraphScheduleFreeSGD(GraphOneByOne, ScheduleFreeSGD):
    """Schedule-free SGD in a graph."""


class GraphScheduleFreeAdamW(GraphOneByOne, ScheduleFreeAdamW):
    """Schedule-free AdamW in a graph."""


SHARED = ("lr", "weight_decay")
"""The options that groups change."""


class GraphGrouped(InGraph, Grouped):
    """An optimizer in parts, one per group, whose parts are in a graph."""

    parts: list[Any]

    def feed(self, times: int) -> None:
        """Compute the numbers of every part, with what is different for it."""
        self.turn = 0
        for (_, changes), part in zip(self.shares, self.parts, strict=True):
            part.applied, part.turn = self.applied, 0
            part.schedules = {name: self.schedule_of(name, part, changes) for name in (*self.schedules, *SHARED)}
            part.schedules = {name: each for name, each in part.schedules.items() if name in part.options}
            part.feed(times)

    def schedule_of(self, name: str, part: Any, changes: Mapping[str, Any]) -> Callable[[int], Any]:
        """Return an option of a part as a function of the updates before."""

        def read(applied: int) -> Any:
            """Return the option after so many updates."""
            base = {**self.options, **{key: each(applied) for key, each in self.schedules.items()}}
            now = {key: base.get(key, value) for key, value in part.options.items()}
            return changed(now, changes, applied)[name]

        return read

    def settle(self, times: int) -> None:
        """Count the updates that the graph has made."""
        self.applied += times
        for part in self.parts:
            part.settle(times)

    @property
    def slots(self) -> dict[str, list[Any]]:
        """Return the slots of all parts."""
        found: dict[str, list[Any]] = Grouped.slots.__get__(self)
        return found

    def written(self) -> list[torch.Tensor]:
        """Return the tensors that an update in a graph changes."""
        return [tensor for part in self.parts for tensor in part.written()]

    def catch_up(self) -> None:
        """Write the count into the slots that the kernels read."""
        for part in getattr(self, "parts", ()):
            part.catch_up()

    def advance_all(self, gradients: TensorList, numbers: Mapping[str, Any]) -> None:
        """Step every part."""
        for (places, _), part in zip(self.shares, self.parts, strict=True):
            chosen = [gradients[at] for at in places]
            part.advance_all(chosen, part.numbers(self.turn))
