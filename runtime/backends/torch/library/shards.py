"""Shards: every process keeps its rows of each parameter, and FSDP2 gathers a layer where it runs.

FSDP2 divides and gathers. What it gathers are tensors that stay the same over all steps; gradients are taken with
respect to these, as values, so it never meets a gradient, and the step says where sets are reduced.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from runtime.backends.torch.library.kernels import foreach_mul, foreach_norms
from runtime.backends.torch.library.processes import Replicas

Gradients: TypeAlias = Sequence[torch.Tensor | None]


@dataclass(frozen=True, eq=False)
class Shard:
    """A parameter: this process's rows, the module's own parameter that holds them, and what a forward gathers."""

    own: torch.Tensor
    held: nn.Parameter
    whole: nn.Parameter


class Shards:
    """The parameters of models, as the processes share them; alone, each is whole."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.shards: dict[int, Shard] = {}  # by the id of its own rows
        self.models: dict[int, tuple[Sequence[FSDPModule], list[tuple[str, torch.Tensor]]]] = {}  # layers, parameters

    def divide(self, model: nn.Module, *methods: str, by_layer: bool = False, kept: bool = False) -> nn.Module:
        """Divide the parameters of a model, which are those of the first process, and return it.

        ``by_layer``: its layers are gathered one after another. ``kept``: what is gathered stays until
        :meth:`release`, as a gradient of a gradient reads it at no time that FSDP2 knows of. ``methods`` are called
        like the model.
        """
        if self.replicas.count == 1:
            self.models[id(model)] = [], [*model.named_parameters()]
            return model
        for each in (*model.parameters(), *model.buffers()):
            dist.broadcast(each.data, src=0)
        mesh = init_device_mesh(self.replicas.device.type, (self.replicas.count,))
        numbers = {each for each in model.parameters() if not each.ndim}  # which have no rows
        layers = [each for each in model.children() if {*each.parameters()} - numbers] if by_layer else []
        for each in (*layers, model):
            fully_shard(each, mesh=mesh, reshard_after_forward=not kept, ignored_params=numbers)
        for method in methods:
            register_fsdp_forward_method(model, method)
        parts = [each for each in model.modules() if isinstance(each, FSDPModule)]
        for each in parts:
            each.set_reshard_after_backward(not kept)
            each.unshard()
        wholes = dict(model.named_parameters())
        for each in parts:
            each.reshard()
        # steps never write into a result of a layer
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
        named: list[tuple[str, torch.Tensor]] = []
        for name, held in model.named_parameters():
            own = held
            if isinstance(held, DTensor):
                with torch.no_grad():
                    own = held.to_local()
                self.shards[id(own)] = Shard(own, held, wholes[name])
            named.append((name, own))
        self.models[id(model)] = parts, named
        return model

    def named(self, model: nn.Module) -> list[tuple[str, torch.Tensor]]:
        """Return this process's rows of the parameters of a model, by name."""
        return self.models[id(model)][1]

    def own(self, model: nn.Module, *, trained: bool = False) -> list[torch.Tensor]:
        """Return this process's rows of the parameters of a model: of all, or those that a class did not freeze."""
        return [own for _, own in self.named(model) if not trained or self._held(own).requires_grad]

    def whole(self, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return what forwards gather of parameters; nothing but their shapes may be read between steps."""
        return [self.shards[id(each)].whole if id(each) in self.shards else each for each in parameters]

    def recorded(self, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tensors that say of parameters whether a gradient is recorded."""
        return [*self.whole(parameters), *(self._held(each) for each in parameters if id(each) in self.shards)]

    def release(self, model: nn.Module) -> None:
        """Forget what was gathered of a model, as after a write."""
        for each in self.models[id(model)][0]:
            each.reshard()

    @torch.no_grad()
    def scatter(self, gradients: Gradients, parameters: Sequence[torch.Tensor]) -> Gradients:
        """Return this process's rows of a gradient set summed over all: one message for each type of number."""
        found = list(gradients)
        if self.replicas.count == 1:
            return tuple(found)
        places: dict[torch.dtype, list[int]] = {}
        rest: list[int] = []
        for place, (gradient, parameter) in enumerate(zip(gradients, parameters, strict=True)):
            if gradient is not None and id(parameter) in self.shards:
                places.setdefault(gradient.dtype, []).append(place)
            elif gradient is not None:
                rest.append(place)
        for group in places.values():
            padded = [self._pad(gradients[place]) for place in group]
            bucket = torch.cat([each.view(self.replicas.count, -1) for each in padded], dim=1)
            reduced = bucket.new_empty(bucket.shape[1])
            dist.reduce_scatter(reduced, list(bucket.unbind()))
            parts = reduced.split([each.numel() // self.replicas.count for each in padded])
            for place, part in zip(group, parts, strict=True):
                own = parameters[place]
                found[place] = part[: own.numel()].view(own.shape)
        summed = self.replicas.start_sum([gradients[place] for place in rest]).wait(0)
        for place, whole in zip(rest, summed, strict=True):
            found[place] = whole
        return tuple(found)

    def cut(self, gradients: Gradients, parameters: Sequence[torch.Tensor]) -> Gradients:
        """Return this process's rows of a gradient set that is the same on all."""
        pairs = zip(gradients, parameters, strict=True)
        return tuple(None if each is None else self.take(each, parameter) for each, parameter in pairs)

    def begin(self, parameter: torch.Tensor) -> int | None:
        """Return the first row of a whole parameter that this process has; None where it has all."""
        if id(parameter) not in self.shards:
            return None
        whole = self.shards[id(parameter)].whole
        return min(self.replicas.rank * self._height(whole), len(whole))

    def take(self, whole: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
        """Return the rows of this process of a tensor with those of a whole parameter."""
        begin = self.begin(parameter)
        return whole if begin is None else whole.narrow(0, begin, len(parameter))

    @torch.no_grad()
    def gather(self, own: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
        """Return a tensor with the rows of a whole parameter from what the processes have of it.

        What is no such part stays as it is, like a number that an optimizer keeps for a parameter.
        """
        if id(parameter) not in self.shards or own.shape != parameter.shape:
            return own
        shape = self.shards[id(parameter)].whole.shape
        height = -(-shape[0] // self.replicas.count)
        padded = own.new_zeros((height, *shape[1:]))
        padded[: len(own)] = own
        found = [torch.empty_like(padded) for _ in range(self.replicas.count)]
        dist.all_gather(found, padded)
        return torch.cat(found)[: shape[0]]

    @torch.no_grad()
    def lengths(self, gradients: list[Any], parameters: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the norm of every gradient of a set of which each process has its rows."""
        own = torch.stack(foreach_norms(gradients))
        if self.replicas.count == 1:
            return own
        if self.replicas.rank:  # what all have counts once
            is_divided = [id(each) in self.shards for each in parameters]
            own = torch.where(torch.tensor(is_divided, device=own.device), own, 0)
        found = [torch.empty_like(own) for _ in range(self.replicas.count)]
        dist.all_gather(found, own)
        return torch.linalg.vector_norm(torch.stack(found), dim=0)

    def length(self, gradients: Gradients, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the norm of such a set, over all elements of all gradients that are present."""
        present, theirs = find_present(gradients, parameters)
        return torch.linalg.vector_norm(self.lengths(present, theirs)) if present else torch.zeros(())

    def clip_norm(
        self, gradients: Gradients, parameters: Sequence[torch.Tensor], norm: float, eps: float = 0.0
    ) -> Gradients:
        """Return the gradients times min(1, norm / (||g|| + eps)), the norm taken over the whole set."""
        return self._scale(gradients, parameters, lambda each: (norm / (whole_norm(each) + eps)).clamp(max=1.0))

    def clip_each(
        self, gradients: Gradients, parameters: Sequence[torch.Tensor], norm: float, eps: float = 0.0
    ) -> Gradients:
        """Return every gradient times min(1, norm / (||g|| + eps)), the norm taken over that one gradient."""
        return self._scale(gradients, parameters, lambda each: (norm / (each + eps)).clamp(max=1.0))

    def normalize_set(self, gradients: Gradients, parameters: Sequence[torch.Tensor]) -> Gradients:
        """Return the gradients divided by max(||g||, 1e-12), the norm taken over the whole set."""
        return self._scale(gradients, parameters, lambda each: whole_norm(each).clamp(min=1e-12).reciprocal())

    def normalize_each(self, gradients: Gradients, parameters: Sequence[torch.Tensor]) -> Gradients:
        """Return every gradient divided by max(||g||, 1e-12), the norm taken over that one gradient."""
        return self._scale(gradients, parameters, lambda each: each.clamp(min=1e-12).reciprocal())

    def _scale(
        self,
        gradients: Gradients,
        parameters: Sequence[torch.Tensor],
        find: Callable[[torch.Tensor], torch.Tensor],
    ) -> Gradients:
        """Return the gradients that are present times factors, which follow from the norms of all of these."""
        present, theirs = find_present(gradients, parameters)
        if not present:
            return gradients
        scaled = iter(foreach_mul(present, find(self.lengths(present, theirs)).unbind()))
        return tuple(None if each is None else next(scaled) for each in gradients)

    def _held(self, own: torch.Tensor) -> torch.Tensor:
        """Return the module's own parameter."""
        return self.shards[id(own)].held if id(own) in self.shards else own

    def _height(self, whole: torch.Tensor) -> int:
        """Return how many rows of a tensor the first process has; the last ones may have fewer."""
        return -(-len(whole) // self.replicas.count)

    def _pad(self, whole: Any) -> torch.Tensor:
        """Return a tensor with as many rows for each process."""
        rows = self._height(whole) * self.replicas.count
        if rows == len(whole):
            return whole.contiguous()
        padded = whole.new_zeros((rows, *whole.shape[1:]))
        padded[: len(whole)] = whole
        return padded


def whole_norm(lengths: torch.Tensor) -> torch.Tensor:
    """Return the norm over all elements of tensors, as often as there are tensors, of the norms of these."""
    return torch.linalg.vector_norm(lengths).expand_as(lengths)


def find_present(
    gradients: Gradients, parameters: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the gradients of a set that are present, and their parameters."""
    pairs = [(each, parameter) for each, parameter in zip(gradients, parameters, strict=True) if each is not None]
    return [each for each, _ in pairs], [each for _, each in pairs]
