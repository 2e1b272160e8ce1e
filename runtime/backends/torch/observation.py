"""Observation of user classes: what a plan may not import to find out, seen in a dry run of the forwards alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from compiler.types import TensorType
from runtime.backends.torch.compat import TorchDispatchMode, has_drawn, watched_checkpoints
from runtime.engine.observe import find_dimension


@dataclass(slots=True, kw_only=True)
class Watch:
    """What is seen of models while they run: which of them did, which draw random numbers, and which are recomputed."""

    ran: set[str] = field(default_factory=set[str])
    drawing: set[str] = field(default_factory=set[str])
    recomputing: set[str] = field(default_factory=set[str])
    redrawing: set[str] = field(default_factory=set[str])
    """Those that draw other numbers when they are recomputed."""
    running: list[str] = field(default_factory=list[str])
    checkpoints: int = 0
    """How many calls run that will run again."""
    unpreserved: int = 0
    """How many of them will draw other numbers then."""

    @contextmanager
    def over(self, models: Mapping[str, nn.Module]) -> Iterator[None]:
        """Watch models while the context lasts."""
        with self.over_checkpoints(models), _Draws(self):
            yield

    @contextmanager
    def over_checkpoints(self, models: Mapping[str, nn.Module]) -> Iterator[None]:
        """Watch which models run and are recomputed, while the context lasts."""
        hooks = [each for name, model in models.items() for each in self._hooks(name, model)]
        try:
            with watched_checkpoints(self._recomputed):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _hooks(self, name: str, model: nn.Module) -> Iterator[Any]:
        """Yield the hooks that note when a model runs."""
        yield model.register_forward_pre_hook(lambda *_: self._enter(name))
        yield model.register_forward_hook(lambda *_: self.running.remove(name), always_call=True)

    @contextmanager
    def _recomputed(self, preserved: bool) -> Iterator[None]:
        """Note that what runs inside is recomputed when a gradient is taken."""
        self.recomputing.update(self.running)
        self.checkpoints += 1
        self.unpreserved += not preserved
        try:
            yield
        finally:
            self.checkpoints -= 1
            self.unpreserved -= not preserved

    def _enter(self, name: str) -> None:
        """Note that a model starts to run."""
        self.ran.add(name)
        self.running.append(name)


class _Draws(TorchDispatchMode):
    """Notes the model that runs when an operation draws random numbers."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation; where it draws, note for whom."""
        if has_drawn(func, args, kwargs or {}):
            self.watch.drawing.update(self.watch.running)
            is_own = self.watch.checkpoints and (kwargs or {}).get("generator") is not None
            self.watch.redrawing.update(self.watch.running if self.watch.unpreserved or is_own else ())
        return func(*args, **(kwargs or {}))


def find_types(seen: Mapping[int, Mapping[str, object]], batch: str) -> dict[str, TensorType]:
    """Return the types of values seen at two batch sizes; a size that grows with the batch is named by how it does."""
    (small, first), (large, second) = sorted(seen.items())
    types: dict[str, TensorType] = {}
    for name, one in first.items():
        other = second.get(name)
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.ndim == other.ndim:
            pairs = zip(one.shape, other.shape, strict=True)
            shape = tuple(find_dimension(*pair, small, large, batch) for pair in pairs)
            types[name] = TensorType(shape, str(one.dtype).removeprefix("torch."))
    return types
