"""Stand-ins for what a run with fake tensors must not touch: metrics that count by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from runtime.backends.torch.library.metrics import Counting


class Uncounted:
    """A metric that counts nothing and gives a number."""

    def __call__(self, *inputs: Any, **named: Any) -> torch.Tensor:
        """Return a number."""
        return torch.zeros(())


def stand_in(running: Callable[..., Any]) -> Callable[..., Any]:
    """Return a maker of running metrics in place of an emitted module's own.

    A function of a batch is run as it is. A class or object that counts copies its tensors when it is made, and a deep
    copy of a fake tensor corrupts the memory of the process (seen in torch 2.13 with torchmetrics' ``MeanMetric``).
    """

    def make(clock: Any, metric: Any, *given: Any, **options: Any) -> Any:
        """Return a stand-in for what counts by itself."""
        if isinstance(metric, (type, Counting)):
            return Uncounted()
        return running(clock, metric, *given, **options)

    return make
