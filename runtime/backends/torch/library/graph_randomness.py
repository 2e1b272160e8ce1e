"""Keyed random numbers in a step that is captured as one graph: an operator of torch that the graph calls as it is.

The numbers are those of the step outside a graph. The operator reads the number of the step on the host, where the
graph has none of it; a tensor that goes through all draws of a call keeps these in their order.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from runtime.backends.torch.library.randomness import KeyedRandom, NativeRandom, PortableRandom


class GraphRandom(KeyedRandom):
    """Keyed random numbers that a graph can draw; outside one they come straight from their ``source``."""

    kind: type[NativeRandom | PortableRandom]

    def __init__(self, seed: int, device: torch.device | str, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(seed, device, dtype)
        self.source = self.kind(seed, device, dtype)
        self.turn = torch.zeros(
            (), dtype=torch.int64, device=self.device
        )  # changes with every step, so that no graph keeps a draw
        self.calls, self.op, self.order = 0, "", self.turn  # calls of models in this step, and the one that draws
        self.library, self.draw, self.mask = define_draws(self)

    def start(self, mode: str, step: int) -> None:
        """Start the step of this number in a mode."""
        super().start(mode, step)
        self.source.start(mode, step)
        self.turn.fill_(step)
        self.calls = 0

    def seek(self, op: str) -> None:
        """Go to the start of an op's numbers in this step."""
        if torch.compiler.is_compiling():
            self.op, self.draws, self.order = op, 0, self.turn
            self.calls += 1
        else:
            self.source.seek(op)

    def normal(self, op: str, shape: Sequence[int], mean: Any = 0.0, std: Any = 1.0) -> torch.Tensor:
        """Return normally distributed numbers; in a graph both of the others may be tensors."""
        if not torch.compiler.is_compiling():
            return self.source.normal(op, shape, mean, std)
        if isinstance(mean, torch.Tensor) or isinstance(std, torch.Tensor):
            return self.draw(self.turn, op, "normal", list(shape), [0.0, 1.0]) * std + mean
        return self.draw(self.turn, op, "normal", list(shape), [mean, std])

    def uniform(self, op: str, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Return numbers spread evenly from ``low`` up to, not including, ``high``."""
        if not torch.compiler.is_compiling():
            return self.source.uniform(op, shape, low, high)
        return self.draw(self.turn, op, "uniform", list(shape), [low, high])

    def bernoulli(self, op: str, shape: Sequence[int], p: float = 0.5) -> torch.Tensor:
        """Return ones with probability ``p`` among zeros."""
        if not torch.compiler.is_compiling():
            return self.source.bernoulli(op, shape, p)
        return self.draw(self.turn, op, "bernoulli", list(shape), [p])

    def randint(self, op: str, shape: Sequence[int], high: int, low: int = 0) -> torch.Tensor:
        """Return whole numbers from ``low`` up to, not including, ``high``."""
        if not torch.compiler.is_compiling():
            return self.source.randint(op, shape, high, low)
        return self.draw(self.turn, op, "randint", list(shape), [high, low])

    def permutation(self, op: str, n: int) -> torch.Tensor:
        """Return the numbers 0 ... n - 1 in random order."""
        if not torch.compiler.is_compiling():
            return self.source.permutation(op, n)
        return self.draw(self.turn, op, "permutation", [n], [])

    def keep_mask(self, like: torch.Tensor, p: float) -> torch.Tensor:
        """Return ones with probability ``1 - p`` among zeros: the next numbers of the op that runs."""
        if not torch.compiler.is_compiling():
            return self.source.keep_mask(like, p)
        mask, self.order = self.mask(self.order, self.op, self.calls, self.draws, torch.empty_like(like), p)
        self.draws += 1
        return mask

    def numbers_of(self, op: str, kind: str, shape: Sequence[int], numbers: Sequence[float]) -> torch.Tensor:
        """Return what a draw of an op gives outside a graph."""
        match kind:
            case "normal":
                return self.source.normal(op, shape, *numbers)
            case "uniform":
                return self.source.uniform(op, shape, *numbers)
            case "bernoulli":
                return self.source.bernoulli(op, shape, *numbers)
            case "randint":
                return self.source.randint(op, shape, *map(int, numbers))
            case _:
                return self.source.permutation(op, *shape)

    def mask_of(self, op: str, call: int, place: int, form: torch.Tensor, p: float) -> torch.Tensor:
        """Return the mask of this place among those of a call, which are made in their order."""
        raise TypeError(f"{type(self).__name__} draws no masks")


class GraphNativeRandom(GraphRandom):
    """Random numbers by torch's generator on the device; every call of a model has one, as graphs mix their layers."""

    kind = NativeRandom

    def __init__(self, seed: int, device: torch.device | str, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(seed, device, dtype)
        self.generators: dict[int, torch.Generator] = {}

    def mask_of(self, op: str, call: int, place: int, form: torch.Tensor, p: float) -> torch.Tensor:
        """Return the next mask of a call."""
        generator = self.generators.get(call)
        if generator is None:
            generator = self.generators[call] = torch.Generator(self.device)
        if place == 0:
            generator.manual_seed(self.seed_of(op))
        return torch.empty_like(form).bernoulli_(1.0 - p, generator=generator)


class GraphPortableRandom(GraphRandom):
    """Random numbers that are the same on every device and framework."""

    kind = PortableRandom

    def mask_of(self, op: str, call: int, place: int, form: torch.Tensor, p: float) -> torch.Tensor:
        """Return the mask of this place, which depends on no other."""
        self.source.words, self.source.draws = self.key(op), place
        return self.source.keep_mask(form, p)


def define_draws(source: GraphRandom) -> tuple[torch.library.Library, Any, Any]:
    """Define operators that draw from a source, and return their library, which keeps them, and both.

    They hold no reference to the source. Their names are free ones: operators belong to the process.
    """
    number = next(each for each in itertools.count(1) if not hasattr(torch.ops.keyed, f"draw_{each}"))
    draw, mask, found = f"draw_{number}", f"mask_{number}", weakref.ref(source)
    library = torch.library.Library("keyed", "FRAGMENT")
    library.define(f"{draw}(Tensor turn, str op, str kind, SymInt[] shape, float[] numbers) -> Tensor")
    library.define(f"{mask}(Tensor order, str op, int call, int place, Tensor form, float p) -> (Tensor, Tensor)")

    def make(turn: torch.Tensor, op: str, kind: str, shape: Sequence[int], numbers: Sequence[float]) -> torch.Tensor:
        """Return the numbers of a draw."""
        return living(found).numbers_of(op, kind, shape, numbers)

    def hide(order: torch.Tensor, op: str, call: int, place: int, form: torch.Tensor, p: float) -> Any:
        """Return a mask, and what the next of this call takes."""
        return living(found).mask_of(op, call, place, form, p), order + 1

    def seem(turn: torch.Tensor, op: str, kind: str, shape: Sequence[int], numbers: Sequence[float]) -> torch.Tensor:
        """Return a tensor of the shape and type of a draw."""
        dtype = torch.int64 if kind in ("randint", "permutation") else living(found).dtype
        return torch.empty(shape, dtype=dtype, device=living(found).device)

    def seem_mask(order: torch.Tensor, op: str, call: int, place: int, form: torch.Tensor, p: float) -> Any:
        """Return tensors of the shape and type of what a mask gives."""
        return torch.empty_like(form), torch.empty_like(order)

    for name, call, fake in ((draw, make, seem), (mask, hide, seem_mask)):
        library.impl(name, call, "CompositeExplicitAutograd")
        torch.library.register_fake(f"keyed::{name}", fake, lib=library)
    return library, getattr(torch.ops.keyed, draw).default, getattr(torch.ops.keyed, mask).default


def living(source: weakref.ref[GraphRandom]) -> GraphRandom:
    """Return a source of random numbers; raise RuntimeError where its step is gone."""
    found = source()
    if found is None:
        raise RuntimeError("the step of this graph is gone, and its source of random numbers with it")
    return found
