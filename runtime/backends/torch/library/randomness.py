"""Keyed random numbers: every draw has a key of its own, so that no draw depends on what else was drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from runtime.backends.torch.library.threefry import derive_key, portable_numbers, threefry


class KeyedRandom:
    """Random numbers keyed by (seed, mode, number of the step in that mode, op); torch's own are left alone."""

    def __init__(self, seed: int, device: torch.device | str, dtype: torch.dtype = torch.float32) -> None:
        self.seed, self.device, self.dtype = seed, torch.device(device), dtype
        self.keys: dict[str, dict[str, tuple[int, int]]] = {}  # by mode and op
        self.mode, self.step = "", 0  # of the step that runs: all that its draws depend on
        self.current: dict[str, tuple[int, int]] = {}  # the keys of the mode that runs
        self.words, self.draws = (0, 0), 0  # the key of the op that runs, and its draws so far

    def start(self, mode: str, step: int) -> None:
        """Start the step of this number in a mode."""
        self.step = step
        if mode != self.mode:
            self.mode, self.current = mode, self.keys.setdefault(mode, {})

    def key(self, op: str) -> tuple[int, int]:
        """Return the key of an op in this mode: two words of 32 bits."""
        key = self.current.get(op)
        if key is None:
            key = self.current[op] = derive_key(self.seed, "draw", self.mode, op)
        return key

    def seed_of(self, op: str) -> int:
        """Return the seed of torch's generators for an op in this step."""
        low, high = self.key(op)
        # On the CPU only the lower 32 bits of a seed count: with an odd factor no two steps of an op share them.
        return ((low + self.step * (high | 1)) & 0xFFFFFFFF) | (high << 32)

    def seek(self, op: str) -> None:
        """Go to the start of an op's numbers in this step."""
        self.words, self.draws = self.key(op), 0

    def attach(self, model: nn.Module) -> None:
        """Let the dropout layers of a model draw here."""
        for layer in model.modules():
            if isinstance(layer, nn.Dropout):
                layer.__dict__["random"] = self

    def within(self, op: str) -> nullcontext[None]:
        """Return a context for a call of a model: what its layers draw is keyed by the op, in their order."""
        self.seek(op)
        return nullcontext()

    def keyed(self, op: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call of a model whose layers draw the numbers of the op each time."""

        def called(*args: Any, **kwargs: Any) -> Any:
            """Call the model from the start of the op's numbers."""
            self.seek(op)
            return call(*args, **kwargs)

        return called

    @contextmanager
    def forked(self, op: str) -> Iterator[None]:
        """Key torch's own random numbers by the op inside; outside they go on as if nothing had been drawn."""
        generators = own_generators(self.device)
        states = [generator.get_state() for generator in generators]
        try:
            for generator in generators:
                generator.manual_seed(self.seed_of(op))
            yield
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> KeyedRandom:
        return self  # a copy of a model draws from the same source


class NativeRandom(KeyedRandom):
    """Keyed random numbers by torch's generator on the device: fast, and the same on the same device only."""

    def __init__(self, seed: int, device: torch.device | str, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(seed, device, dtype)
        self.generator = torch.Generator(self.device)

    def seek(self, op: str) -> None:
        """Go to the start of an op's numbers in this step."""
        self.generator.manual_seed(self.seed_of(op))

    def normal(self, op: str, shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
        """Return normally distributed numbers."""
        self.seek(op)
        drawn = torch.randn(shape, generator=self.generator, device=self.device, dtype=self.dtype)
        return drawn if mean == 0.0 and std == 1.0 else drawn.mul_(std).add_(mean)

    def uniform(self, op: str, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Return numbers spread evenly from ``low`` up to, not including, ``high``."""
        self.seek(op)
        return torch.empty(shape, device=self.device, dtype=self.dtype).uniform_(low, high, generator=self.generator)

    def bernoulli(self, op: str, shape: Sequence[int], p: float = 0.5) -> torch.Tensor:
        """Return ones with probability ``p`` among zeros."""
        self.seek(op)
        return torch.empty(shape, device=self.device, dtype=self.dtype).bernoulli_(p, generator=self.generator)

    def randint(self, op: str, shape: Sequence[int], high: int, low: int = 0) -> torch.Tensor:
        """Return whole numbers from ``low`` up to, not including, ``high``."""
        self.seek(op)
        return torch.randint(low, high, shape, generator=self.generator, device=self.device)

    def permutation(self, op: str, n: int) -> torch.Tensor:
        """Return the numbers 0 ... n - 1 in random order."""
        self.seek(op)
        return torch.randperm(n, generator=self.generator, device=self.device)

    def keep_mask(self, like: torch.Tensor, p: float) -> torch.Tensor:
        """Return ones with probability ``1 - p`` among zeros: the next numbers of the op that runs."""
        return torch.empty_like(like).bernoulli_(1.0 - p, generator=self.generator)


class PortableRandom(KeyedRandom):
    """Keyed random numbers that are the same bit for bit on every device and framework; made on the host."""

    def numbers(self, shape: Sequence[int], kind: str) -> torch.Tensor:
        """Return the next numbers of the op that runs: its draws in a step are counted, each has a key of its own."""
        key = threefry(self.words, (self.step, self.draws))
        self.draws += 1
        size = torch.Size(shape)
        return portable_numbers(key, size.numel(), kind).reshape(size)

    def normal(self, op: str, shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
        """Return normally distributed numbers."""
        self.seek(op)
        return (self.numbers(shape, "normal") * std + mean).to(self.device, self.dtype)

    def uniform(self, op: str, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Return numbers spread evenly from ``low`` up to, not including, ``high``."""
        self.seek(op)
        drawn = (self.numbers(shape, "uniform") * (high - low) + low).to(self.dtype)
        return torch.where(drawn < high, drawn, low).to(self.device)  # rounding may have reached ``high``

    def bernoulli(self, op: str, shape: Sequence[int], p: float = 0.5) -> torch.Tensor:
        """Return ones with probability ``p`` among zeros."""
        self.seek(op)
        return (self.numbers(shape, "uniform") < p).to(self.device, self.dtype)

    def randint(self, op: str, shape: Sequence[int], high: int, low: int = 0) -> torch.Tensor:
        """Return whole numbers from ``low`` up to, not including, ``high``."""
        self.seek(op)
        return (torch.floor(self.numbers(shape, "uniform") * (high - low)).to(torch.int64) + low).to(self.device)

    def permutation(self, op: str, n: int) -> torch.Tensor:
        """Return the numbers 0 ... n - 1 in random order."""
        self.seek(op)
        return torch.argsort(self.numbers((n,), "bits"), stable=True).to(self.device)

    def keep_mask(self, like: torch.Tensor, p: float) -> torch.Tensor:
        """Return ones with probability ``1 - p`` among zeros: the next numbers of the op that runs."""
        return (self.numbers(like.shape, "uniform") >= p).to(like.device, like.dtype)


def own_generators(device: torch.device) -> tuple[Any, ...]:
    """Return torch's own generators that code on a device may draw from."""
    match device.type:
        case "cpu":
            return (torch.default_generator,)
        case "mps":
            return (torch.default_generator, MetalGenerator)
        case _:
            module = torch.get_device_module(device)
            index = module.current_device() if device.index is None else device.index
            return (torch.default_generator, module.default_generators[index])


class MetalGenerator:
    """The generator of Apple's devices, of which torch offers the methods only."""

    get_state = staticmethod(torch.mps.get_rng_state)
    set_state = staticmethod(torch.mps.set_rng_state)
    manual_seed = staticmethod(torch.mps.manual_seed)
