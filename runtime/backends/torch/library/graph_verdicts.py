"""Verdicts and the loss scale in a step that is captured as one graph: the graph decides, the host asks after it.

Outside a graph they are what they derive from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from runtime.backends.torch.library.graph_numbers import number_on
from runtime.backends.torch.library.scaling import LossScale
from runtime.backends.torch.library.verdicts import Verdicts


class GraphVerdicts(Verdicts):
    """Verdicts of a graph, in which every write that has a condition is made and taken back where it does not hold."""

    awaited: Mapping[str, torch.Tensor] | None = None  # by op, whether it took place, as the graph says

    def feed(self) -> None:
        """Forget the step before."""
        super().begin()
        self.awaited = None

    def settle(self) -> None:
        """Ask the device what the graph has found; the host waits for it."""
        if self.awaited is not None:
            super().read(self.awaited)

    def begin(self) -> None:
        """Forget the step before; in a graph the host has."""
        if not torch.compiler.is_compiling():
            super().begin()

    @torch.no_grad()
    def check_finite(
        self,
        update: str,
        *sets: Sequence[torch.Tensor | None],
        filled: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return whether all gradients of an update are finite.

        A graph does not keep them. In their place it has a number for each, which is not finite where the gradient is.
        """
        if not torch.compiler.is_compiling():
            return super().check_finite(update, *sets, filled=filled)
        flags = [each.isfinite().all() for found in sets for each in found if each is not None]
        places = [each is not None for found in sets for each in found]
        finite = torch.stack(flags).all() if flags else torch.ones((), dtype=torch.bool)
        finite = finite if filled is None else finite | torch.logical_not(filled)
        marks = iter([torch.where(each, 0.0, torch.nan) for each in flags])
        self.seen[update] = tuple(next(marks) if there else None for there in places), finite
        return finite

    @contextmanager
    def held(self, op: str, commits: torch.Tensor, *changed: Any) -> Iterator[None]:
        """Let writes stay only where the device commits them.

        Slots of optimizers are put back with the weights. The device alone knows how often these were applied.
        """
        if not torch.compiler.is_compiling():
            with super().held(op, commits, *changed):
                yield
            for optimizer, old in self.kept.pop(op) if op in self.committed else ():  # the host has asked before
                if not self.committed[op]:
                    optimizer.put(old)
            return
        tensors = [tensor for each in changed for tensor in (each if isinstance(each, list) else each.written())]
        before = [tensor.detach().clone() for tensor in tensors]
        turns = [(each, each.turn) for each in changed if not isinstance(each, list)]
        yield
        for optimizer, turn in turns:
            optimizer.turn = torch.where(commits, optimizer.turn, turn)
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(torch.where(commits.to(tensor.device), tensor, old))

    def read(self, commits: Mapping[str, torch.Tensor], *windows: Any) -> dict[str, bool]:
        """Return which ops take place; in a graph, leave that to the host."""
        if not torch.compiler.is_compiling():
            return super().read(commits, *windows)
        self.awaited = {**(self.awaited or {}), **commits}
        return self.committed


class GraphLossScale(LossScale):
    """A loss scale that a graph reads as a tensor, and that follows a step after its graph."""

    is_due = False  # the graph of this step ends with its verdicts

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.now = number_on("cpu")

    def place(self, device: torch.device) -> None:
        """Put the scale where the kernels of a graph read it."""
        self.now = number_on(device)

    def feed(self) -> None:
        """Give the scale to the step that runs."""
        self.now.fill_(self.scale)
        self.is_due = False

    def seed(self, loss: torch.Tensor) -> torch.Tensor:
        """Return what the gradient of a loss starts with: the scale in place of 1."""
        if not torch.compiler.is_compiling():
            return super().seed(loss)
        return self.scaled(torch.ones_like(loss, requires_grad=False))

    def scaled(self, seeds: Any) -> Any:
        """Return given seeds times the scale."""
        if not torch.compiler.is_compiling():
            return super().scaled(seeds)
        if isinstance(seeds, (tuple, list)):
            return tuple(self.scaled(each) for each in seeds)
        return (seeds * self.wide(seeds)).to(seeds.dtype)

    def unscale(self, gradients: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
        """Return gradients divided by the scale, as new tensors; what is absent stays absent."""
        if not torch.compiler.is_compiling():
            return super().unscale(gradients)
        return tuple(None if each is None else (each / self.wide(each)).to(each.dtype) for each in gradients)

    def wide(self, like: torch.Tensor) -> torch.Tensor:
        """Return the scale on the device of a tensor, in float32 at least: in float16 a large one is infinite."""
        return self.now.to(like.device, torch.promote_types(like.dtype, torch.float32)).expand(like.shape)

    def update(self, finite: bool) -> None:
        """Let the scale follow a step whose gradients were all finite, or not; in a graph, leave that to the host."""
        if torch.compiler.is_compiling():
            self.is_due = True
        else:
            super().update(finite)
