"""Calls of models: which model runs, in which mode, and what it is called with."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from runtime.audit.trace import Cut, Forward, Place, Replicated
from runtime.backends.torch.audit.log import Call, CutMark, Log
from runtime.backends.torch.audit.provenance import Tag
from runtime.backends.torch.audit.tensors import find_tensors, node_of
from runtime.backends.torch.audit.user_lines import is_called_from

CUTS = "stepgraph-cuts"
_DROPOUT, _NORM = nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase


class Pending(NamedTuple):
    """A forward of a replicated model that has had no backward yet."""

    place: Place
    synced: bool
    """It ran outside of ``no_sync()``: its backward reduces the gradients."""


class Models:
    """The two global hooks of modules."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._replicated: dict[int, weakref.ref[nn.parallel.DistributedDataParallel]] = {}
        """By the number of the module inside."""
        self.pending_forwards: dict[int, Pending] = {}
        """Replicated models whose last forward has had no backward yet."""
        self._losing: dict[int, int] = {}
        """Module that runs without a graph on an input that has one -> the number of the cut."""
        self._taking: dict[int, frozenset[int]] = {}
        """Module that is called with a gradient, as with an adversarial input -> the cuts that are none then."""

    def replicated(self) -> Iterator[nn.parallel.DistributedDataParallel]:
        """Yield the models of several processes."""
        yield from (model for model in (each() for each in self._replicated.values()) if model is not None)

    def enter(self, module: nn.Module, args: Sequence[Any]) -> None:
        """Note that a module is called."""
        log = self._log
        if log.busy:
            return
        place = log.place()
        if not log.calls:
            if log.tape is not None and not log.running:
                log.tape.begin()
            if not log.running and (any(True for _ in module.parameters()) or any(True for _ in module.buffers())):
                log.names.add_model(module)
            inputs = frozenset(log.number_of(each) for each in find_tensors(args))
            log.calls.append(Call(module, place, torch.is_grad_enabled(), inputs))
        self._note_replicas(module, place)
        log.layers.append(module)
        log.recorded.append(torch.is_grad_enabled())
        for each in module._buffers.values():
            if each is not None and log.cells.known(each) is None:
                log.cells.add(each, "buffers")
        if log.running or next(module.parameters(), None) is None:
            return
        if len(log.layers) > 1:
            own = [log.cells.known(each) for each in module._parameters.values() if each is not None]
            if any(each is None or not each.model for each in own):
                log.names.add_part(log.layers[0], module)
        inputs = [each for each in find_tensors(args) if each.is_floating_point()]
        if torch.is_grad_enabled():
            log.use(inputs)
        if not torch.is_grad_enabled():
            self._note_cut(module, inputs, place)
        elif len(log.layers) == 1:
            marks = frozenset().union(*(log.tags.of(each).cuts for each in inputs))
            taken = frozenset(each for each in marks if log.cuts[each].cut.kind == "no_create_graph")
            if taken:
                self._taking[id(module)] = taken

    def _note_cut(self, module: nn.Module, inputs: Sequence[torch.Tensor], place: Place) -> None:
        """Note that a module runs without a graph on inputs that have one."""
        log, nodes = self._log, [node for node in map(node_of, inputs) if node is not None]
        if not nodes or is_called_from("checkpoint", "backward"):
            return
        number = len(log.cuts) + 1
        for node in nodes:
            if not hasattr(node, "variable"):
                node.metadata[CUTS] = (*node.metadata.get(CUTS, ()), number)
        log.cuts.append(CutMark(Cut(kind="no_grad", place=place, what=log.names.of(module)), number))
        self._losing[id(module)] = len(log.cuts) - 1

    def leave(self, module: nn.Module, args: Sequence[Any], result: Any) -> None:
        """Note that a module returns, or raises."""
        log = self._log
        if log.busy or not log.layers:
            return
        while log.layers:
            log.recorded.pop()
            if log.layers.pop() is module:
                break
        lost, taken = self._losing.pop(id(module), None), self._taking.pop(id(module), frozenset())
        if lost is not None or taken:
            for each in find_tensors((result,)):
                tag = log.tags.of(each)
                cuts = (tag.cuts | ({lost} if lost is not None else set())) - taken
                log.tags.put(each, Tag(frozenset(cuts), tag.sources, tag.scale))
        if log.calls and log.calls[-1].model is module:
            call = log.calls.pop()
            name = log.names.of(module)
            is_compiled = hasattr(module, "_orig_mod")
            if is_compiled:
                log.unseen[f"{name} is compiled: its layers cannot be observed"] = None
            is_aside = not call.recorded and not log.running and log.stepped and not is_called_from("checkpoint")
            parts = module.named_modules() if is_aside else ()
            norms = ((key, each) for key, each in parts if isinstance(each, _NORM))
            moving = (key for key, each in norms if each.training and each.running_mean is not None)
            moves = next((f"{key}.running_mean".lstrip(".") for key in moving), "")
            if moves:
                for each in find_tensors((result,)):
                    log.loose.put(each, Tag(forwards=frozenset({len(log.events)})))
            layers = () if module.training else module.modules()
            idle = (type(each).__name__ for each in layers if isinstance(each, (_DROPOUT, _NORM)) and not each.training)
            log.add(
                Forward(
                    place=call.place,
                    model=name,
                    versions=tuple(call.versions.items()),
                    inputs=call.inputs,
                    outputs=frozenset(log.number_of(each) for each in find_tensors((result,))),
                    training=module.training,
                    recorded=call.recorded,
                    trainable=any(each.requires_grad for each in module.parameters()),
                    idle=next(idle, ""),
                    moves=moves,
                    backward=log.backward,
                    compiled=is_compiled,
                )
            )
            if log.tape is not None:
                log.tape.ran(module, args, result, recorded=call.recorded)

    def _note_replicas(self, module: nn.Module, place: Place) -> None:
        if not torch.is_grad_enabled() or self._log.running:
            return
        if isinstance(module, nn.parallel.DistributedDataParallel):
            self._replicated[id(module.module)] = weakref.ref(module)
            if module.require_backward_grad_sync:
                earlier = self.pending_forwards.get(id(module))
                if earlier is not None:
                    self._add(place, module, "two-forwards", earlier.place)
            self.pending_forwards[id(module)] = Pending(place, module.require_backward_grad_sync)
        elif id(module) in self._replicated:
            outer = self._replicated[id(module)]()
            if outer is not None and not (self._log.layers and self._log.layers[-1] is outer):
                self._add(place, outer, "bypassed", None)

    def _add(self, place: Place, model: nn.Module, kind: Any, other: Place | None) -> None:
        self._log.add(Replicated(place=place, model=self._log.names.of(model), event=kind, other=other))
