"""Observation of user classes: what a plan may not import to find out, seen in a dry run of the forwards alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from compiler.observations import Observed
from compiler.program import Dimension, Emit, Evaluate, Forward, Function, Instruction, Program, Random
from compiler.shapes import TensorType
from runtime.backends.torch.compat import TorchDispatchMode, is_batch_norm
from runtime.effects import find_definitions, find_uses


def find_forwards(program: Program, known: frozenset[str]) -> Program:
    """Return the program of the forwards alone, with the pure ops between them, as far as the known models reach.

    Its functions return every result, so that types can be read off; nothing in it writes a weight.
    """
    modes = tuple(
        replace(mode, gates=(), functions=tuple(_find_forwards(each, program, known) for each in mode.functions))
        for mode in program.modes
    )
    models = tuple(model for model in program.models if model.name in known)
    return replace(program, models=models, optimizers=(), modes=modes)


def _find_forwards(function: Function, program: Program, known: frozenset[str]) -> Function:
    """Return a function's forwards, pure ops and draws whose inputs are all known."""
    defined = {entry.name for entry in program.inputs}
    kept: list[Instruction] = []
    for instruction in function.instructions:
        is_known = isinstance(instruction, (Evaluate, Random)) or (
            isinstance(instruction, Forward) and instruction.model in known
        )
        if is_known and defined.issuperset(find_uses(instruction)):
            kept.append(instruction)
            defined.update(find_definitions(instruction))
    values = tuple(value for each in kept for value in find_definitions(each))
    return replace(function, gated=(), instructions=(*kept, Emit(op="", values=values)))


def find_known(program: Program) -> frozenset[str]:
    """Return the models whose structure is known: all but layers whose input sizes are still open."""
    return frozenset(model.name for model in program.models if model.kind != "layers" or model.layers)


@dataclass(slots=True, kw_only=True)
class Watch:
    """What is seen of models while they run: which of them did, and which draw random numbers."""

    ran: set[str] = field(default_factory=set[str])
    drawing: set[str] = field(default_factory=set[str])
    running: list[str] = field(default_factory=list[str])

    @contextmanager
    def over(self, models: Mapping[str, nn.Module]) -> Iterator[None]:
        """Watch models while the context lasts."""
        hooks = [each for name, model in models.items() for each in self._hooks(name, model)]
        try:
            with _Draws(self):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _hooks(self, name: str, model: nn.Module) -> Iterator[Any]:
        """Yield the hooks that note when a model runs."""
        yield model.register_forward_pre_hook(lambda *_: self._enter(name))
        yield model.register_forward_hook(lambda *_: self.running.remove(name), always_call=True)

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
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.watch.drawing.update(self.watch.running)
        return func(*args, **(kwargs or {}))


def observe(model: nn.Module, kin: frozenset[str], watch: Watch) -> Observed:
    """Return the traits of a model; ``kin`` are the names of all models of its structure."""
    coupled = any(is_batch_norm(each) for each in model.modules())
    buffers = any(True for _ in model.buffers())
    return Observed(buffers=buffers, rng=not kin.isdisjoint(watch.drawing), batch_coupled=coupled)


def find_types(seen: Mapping[int, Mapping[str, object]], batch: str) -> dict[str, TensorType]:
    """Return the types of values seen at two batch sizes; a size that grows with the batch is named by how it does."""
    (small, first), (large, second) = sorted(seen.items())
    types: dict[str, TensorType] = {}
    for name, one in first.items():
        other = second.get(name)
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.ndim == other.ndim:
            pairs = zip(one.shape, other.shape, strict=True)
            shape = tuple(_dimension(*pair, small, large, batch) for pair in pairs)
            types[name] = TensorType(shape, str(one.dtype).removeprefix("torch."))
    return types


def _dimension(one: int, other: int, small: int, large: int, batch: str) -> Dimension:
    """Return a fixed size, or one that grows with the batch: ``batch``, ``4*batch``, ``2*batch-1``."""
    factor, rest = divmod(other - one, large - small)
    if factor == 0 and rest == 0:
        return one
    offset = one - factor * small
    product = batch if factor == 1 else f"{factor}*{batch}"
    return f"{product}{offset:+d}" if offset else product
