"""Metrics: figures of a batch that are not one call of torch, and figures that run over many batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from runtime.backends.torch.library.losses import unlike
from runtime.support.clocks import Clock
from runtime.support.fitting import wanted_target


def accuracy(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the share of targets equal to the greatest score along axis 1; raise ValueError for other shapes."""
    chosen = scores.argmax(dim=1)
    if chosen.shape != target.shape:
        raise ValueError(f"{unlike(scores, target)} do not fit: {wanted_target(1, shares=False)}")
    return (chosen == target).float().mean()


class Running:
    """A metric's mean over the batches since its reset, each weighted by the rows of its first input.

    ``since`` says when it starts anew: with each ``epoch`` or ``step``, ``never``, or after so many steps of its mode.
    What is counted in a step that fails is forgotten. Nothing waits for the device.
    """

    def __init__(
        self,
        clock: Clock,
        metric: Callable[..., Any],
        device: torch.device | str,
        since: str | int = "epoch",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.clock, self.metric, self.since, self.options = clock, metric, since, dict(options or {})
        self.device = torch.device(device)
        self.wide = torch.float32 if self.device.type == "mps" else torch.float64
        self.total: Any = None  # sum of value * rows, in the finished steps
        self.rows, self.window = 0, 0
        self.found: tuple[Any, int, int] = None, 0, 0  # all three, with the step that runs

    @torch.no_grad()
    def __call__(self, *inputs: Any, **named: Any) -> torch.Tensor:
        """Return the running value with this batch."""
        value = torch.as_tensor(self.metric(*inputs, **named, **self.options), device=self.device)
        window = window_of(self.since, self.clock.step)
        total, seen = (self.total, self.rows) if window == self.window else (None, 0)
        if total is not None and total.shape != value.shape:
            raise ValueError(
                f"the metric gave shape {list(value.shape)} after {list(total.shape)}: write `reset: step`"
            )
        rows = count_rows(*inputs, *named.values())
        if rows:  # the value of no rows is not a number
            total = value.to(self.wide) * rows if total is None else torch.add(total, value, alpha=rows)
        self.found = total, seen + rows, window
        self.clock.pending.append(self)
        if total is None:
            return value
        return (total / (seen + rows)).to(value.dtype if value.is_floating_point() else torch.float32)

    def keep(self) -> None:
        """Keep what was counted in the step that is finished."""
        self.total, self.rows, self.window = self.found

    def reset(self) -> None:
        """Start anew."""
        self.total, self.rows, self.window = None, 0, 0

    def state(self) -> Mapping[str, Any] | None:
        """Return what was counted."""
        return {"total": self.total, "rows": self.rows, "window": self.window}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what was counted."""
        self.total, self.rows, self.window = state["total"], state["rows"], state["window"]


class Kept:
    """A metric that counts by itself, with ``update``, ``compute`` and ``reset``; ``since`` as for :class:`Running`.

    It keeps what it counted in a step that fails: that cannot be undone.
    """

    def __init__(self, clock: Clock, metric: Any, device: torch.device | str, since: str | int = "epoch") -> None:
        self.clock, self.metric, self.since, self.window = clock, metric, since, 0
        self.device = torch.device(device)

    @torch.no_grad()
    def __call__(self, *inputs: Any, **named: Any) -> torch.Tensor:
        """Return what the metric computes with this batch."""
        window = window_of(self.since, self.clock.step)
        if window != self.window:
            self.metric.reset()
            self.window = window
        self.metric.update(*inputs, **named)
        return torch.as_tensor(self.metric.compute())

    def reset(self) -> None:
        """Start anew."""
        self.metric.reset()
        self.window = 0

    def state(self) -> Mapping[str, Any] | None:
        """Return what the metric counted; None where it does not tell."""
        return {"own": self.metric.state_dict(), "window": self.window} if isinstance(self.metric, Stateful) else None

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what was counted."""
        self.metric.load_state_dict(state["own"])
        self.window = state["window"]


@runtime_checkable
class Counting(Protocol):
    """What a metric has that counts by itself, such as those of torchmetrics."""

    def update(self, *inputs: Any) -> None:
        """Count a batch."""

    def compute(self) -> Any:
        """Return the value of all that was counted."""

    def reset(self) -> None:
        """Forget what was counted."""


@runtime_checkable
class Stateful(Protocol):
    """A metric with a state that can be saved."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return what was counted."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Go on from what was counted."""


@runtime_checkable
class Reticent(Protocol):
    """A metric that saves its state only on request."""

    def persistent(self, mode: bool = False) -> None:
        """Choose whether its state is saved."""


def running(
    clock: Clock,
    metric: Any,
    device: torch.device | str,
    since: str | int = "epoch",
    options: Mapping[str, Any] | None = None,
) -> Running | Kept:
    """Return a user's metric as one that runs: a function of a batch, or a class or object that counts by itself.

    ``options`` are given to a class when it is made, and to a function with every batch.
    """
    made = metric(**(options or {})) if isinstance(metric, type) else metric
    if not isinstance(made, Counting):
        if isinstance(metric, type):
            raise TypeError(f"{metric.__name__} has no update, compute and reset")
        return Running(clock, metric, device, since, options)
    made = made if isinstance(metric, type) else copy.deepcopy(made)  # no two modes count in one object
    if isinstance(made, nn.Module):
        made = made.to(device)
    if isinstance(made, Reticent):
        made.persistent(True)
    return Kept(clock, made, device, since)


def window_of(since: str | int, step: int) -> int:
    """Return the number of the stretch of steps that a step is in; a metric starts anew with each."""
    if since == "step":
        return step
    return (step - 1) // since if isinstance(since, int) else 0


def count_rows(*inputs: Any) -> int:
    """Return the rows of the first of some inputs; a single number is one."""
    first = inputs[0] if inputs else None
    return first.shape[0] if isinstance(first, torch.Tensor) and first.dim() else 1
