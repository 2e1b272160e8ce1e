"""The module of a step: executed and built, with its clock, its metrics, and everything that training changes in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from compiler.ir.program import OptimizerDecl
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.backends.torch.contents import (
    StoredState,
    StoredTensor,
    extra_items,
    metric_items,
    scale_items,
    set_applied,
    slot_tensors,
    window_items,
    wrapped_items,
)
from runtime.backends.torch.execution import Loaded
from runtime.backends.torch.optimizer import TorchOptimizer
from runtime.backends.torch.wrapped import WrappedState
from runtime.engine.contents import Contents, applied_item, clock_items, find_names, name_slots, name_tensors
from runtime.overflow import Overflow
from runtime.support.clocks import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """An executed module, its clock, and the state of its optimizers with torch.optim's interface, by cell."""

    loaded: Loaded
    clock: Clock
    wrapped: Mapping[str, WrappedState]

    @classmethod
    def of(cls, loaded: Loaded) -> Module:
        """Return a module that was just built; it counts no steps where nothing in it depends on their number."""
        optimizers, names = loaded.names["OPTIMIZERS"], _find_names(loaded)
        shells = {each.name: optimizers[each.name] for each in loaded.program.optimizers if not _is_direct(each)}
        return cls(
            loaded=loaded,
            clock=loaded.names.get("clock") or Clock(),
            wrapped={
                cell: WrappedState.of(shell, name_slots(shell.parameters, names)) for cell, shell in shells.items()
            },
        )

    @property
    def backend(self) -> str:
        """Return the framework."""
        return self.loaded.program.backend

    @property
    def gates(self) -> Any:
        """Return the gates; None where every op fires in every step."""
        return self.loaded.names.get("gates")

    @property
    def states(self) -> dict[str, Any]:
        """Return the declared states, which the step replaces."""
        return self.loaded.names.get("STATE", {})

    def contents(self, applied: Mapping[str, int]) -> Contents:
        """Return the contents; ``applied`` says how often the optimizers are to be applied.

        They depend on that: the momenta of SGD begin with the first update.
        """
        models, modes = self.loaded.names["MODELS"], self.loaded.program.modes
        named = {model: [*each.named_parameters(), *each.named_buffers()] for model, each in models.items()}
        tensors = dict(name_tensors(named))
        items = [*clock_items(modes, self.clock, self.gates), *extra_items(models)]
        items.extend(item for mode in modes for item in metric_items(mode.mode, self.metrics(mode.mode)))
        items.extend(scale_items(self.loaded.names.get("loss_scale")))
        items.extend(window_items(self.loaded.names.get("WINDOWS", {}), self.names()))
        for decl in self.loaded.program.optimizers:
            optimizer = self.loaded.names["OPTIMIZERS"][decl.name]
            items.append(applied_item(decl.name, partial(_applied, optimizer), partial(set_applied, optimizer)))
            if _is_direct(decl):
                tensors.update(slot_tensors(decl.name, optimizer, self.names(), applied.get(decl.name, 0)))
            else:
                items.extend(wrapped_items(decl.name, self.wrapped[decl.name]))
        stored = {name: StoredTensor(each) for name, each in tensors.items()}
        held = {f"state.{name}": StoredState(self.states, name) for name in self.states}
        return Contents(tensors={**stored, **held}, items=tuple(items))

    def overflow(self) -> Overflow:
        """Return what the last step with verdicts found about its gradients."""
        verdicts, scale = self.loaded.names["verdicts"], self.loaded.names.get("loss_scale")
        return Overflow(
            given=dict(verdicts.given),
            committed=dict(verdicts.committed),
            places={update: _find_place(gradients) for update, gradients in verdicts.judged.items()},
            scale_before=None if scale is None else scale.before,
            scale_after=None if scale is None else scale.scale,
        )

    def norms(self) -> dict[str, float]:
        """Return the norms of gradients that were measured, by update."""
        variable = self.loaded.emitted.names.norms
        return self.loaded.names[variable].read() if variable else {}

    def parameter_names(self, model: str) -> tuple[str, ...]:
        """Return the names of the parameters of a model for which gradients are taken."""
        names, listed = self.names(), self.loaded.names[self.loaded.emitted.names.parameters(model)]
        return tuple(names[id(each)].partition(".")[2] for each in listed)

    def names(self) -> dict[int, str]:
        """Return the name of every parameter, by its id."""
        return _find_names(self.loaded)

    def access(self) -> dict[str, TorchOptimizer]:
        """Return the access to every optimizer, by cell."""
        made, names = self.loaded.names["OPTIMIZERS"], self.names()
        return {
            each.name: TorchOptimizer.of(made[each.name], is_shell=not _is_direct(each), names=names, decl=each)
            for each in self.loaded.program.optimizers
        }

    def applied(self) -> dict[str, int]:
        """Return how often every optimizer was applied."""
        return {cell: optimizer.applied for cell, optimizer in self.loaded.names["OPTIMIZERS"].items()}

    def metrics(self, mode: str) -> Mapping[str, Any]:
        """Return the running metrics of a mode, by op."""
        return self.loaded.names.get("METRICS", {}).get(mode, {})

    def notes(self) -> Iterator[str]:
        """Yield notes on metrics that a checkpoint does not keep."""
        metrics = {op: metric for mode in self.loaded.program.modes for op, metric in self.metrics(mode.mode).items()}
        for op, metric in metrics.items():
            if metric.state() is None:
                yield f"metric '{op}' has no state_dict and load_state_dict: it starts anew where a run is resumed"


def _find_names(loaded: Loaded) -> dict[int, str]:
    """Return the name of every parameter, by its id."""
    return find_names({name: model.named_parameters() for name, model in loaded.names["MODELS"].items()})


def _find_place(gradients: tuple[Any, ...]) -> int:
    """Return the place of the first gradient that is not finite."""
    return next(at for at, each in enumerate(gradients) if each is not None and not bool(torch.isfinite(each).all()))


def _applied(optimizer: Any) -> int:
    """Return how often an optimizer was applied."""
    return optimizer.applied


def _is_direct(decl: OptimizerDecl) -> bool:
    """Return whether an optimizer is one of the library's own."""
    return decl.builtin and decl.rule in TORCH.direct
