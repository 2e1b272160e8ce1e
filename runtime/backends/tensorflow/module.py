"""The module of a step: executed and built, with its clock, its metrics, and everything that training changes in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from runtime.backends.tensorflow.contents import (
    StoredVariable,
    kept_slots,
    metric_items,
    read_applied,
    scale_items,
    set_applied,
    tree_items,
    window_items,
)
from runtime.backends.tensorflow.execution import Loaded
from runtime.backends.tensorflow.optimizer import TensorFlowOptimizer
from runtime.backends.tensorflow.slots import buffers, parameters, slot_tensors
from runtime.engine.contents import BY_TREE, Contents, applied_item, clock_items, find_names, name_tensors
from runtime.overflow import Overflow
from runtime.support.clocks import Clock

Named = dict[str, list[tuple[str, tf.Variable]]]
"""The variables of models by model, with their names."""


@runtime_checkable
class Traced(Protocol):
    """The interface of a step function that is a graph (emitted modules have classes of their own)."""

    def begin(self) -> None:
        """Trace again at the next call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """An executed module and its clock; the variables of its models are looked up once."""

    loaded: Loaded
    clock: Clock
    parameters: Named
    buffers: Named

    @classmethod
    def of(cls, loaded: Loaded) -> Module:
        """Return a module that was just built; it counts no steps where nothing in it depends on their number."""
        models = loaded.names["MODELS"].items()
        return cls(
            loaded=loaded,
            clock=loaded.names.get("clock") or Clock(),
            parameters={name: list(parameters(model).items()) for name, model in models},
            buffers={name: list(buffers(model).items()) for name, model in models},
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
    def optimizers(self) -> Mapping[str, Any]:
        """Return the optimizers by cell."""
        return self.loaded.names["OPTIMIZERS"]

    @property
    def states(self) -> Mapping[str, tf.Variable]:
        """Return the variables of the declared states."""
        return self.loaded.names.get("STATE", {})

    def contents(self, applied: Mapping[str, int]) -> Contents:
        """Return the contents; ``applied`` says how often the optimizers are to be applied.

        They depend on that: the momenta of SGD begin with the first update.
        """
        modes, names = self.loaded.program.modes, find_names(self.parameters)
        found = dict(name_tensors({name: [*each, *self.buffers[name]] for name, each in self.parameters.items()}))
        found.update({f"state.{name}": each for name, each in self.states.items()})
        items = [*clock_items(modes, self.clock, self.gates)]
        items.extend(item for mode in modes for item in metric_items(mode.mode, self.metrics(mode.mode)))
        items.extend(scale_items(self.loaded.names.get("loss_scale")))
        items.extend(window_items(self.loaded.names.get("WINDOWS", {}), names))
        for decl in self.loaded.program.optimizers:
            optimizer = self.optimizers[decl.name]
            items.append(applied_item(decl.name, partial(read_applied, optimizer), partial(set_applied, optimizer)))
            if decl.builtin and decl.rule in BY_TREE:
                items.extend(tree_items(decl.name, optimizer, names))
            else:
                found.update(kept_slots(decl.name, optimizer, names, applied.get(decl.name, 0)))
        return Contents(tensors={name: StoredVariable(each) for name, each in found.items()}, items=tuple(items))

    def access(self) -> dict[str, TensorFlowOptimizer]:
        """Return the access to every optimizer, by cell."""
        names, steps = find_names(self.parameters), self.loaded.names.get("steps")
        return {
            decl.name: TensorFlowOptimizer(
                cell=decl.name,
                shell=self.optimizers[decl.name],
                names=names,
                clock=self.clock,
                steps=steps,
                unlike=len(decl.find_unlike()),
                retrace=self.retrace,
            )
            for decl in self.loaded.program.optimizers
        }

    def retrace(self) -> None:
        """Let every graph be traced again by the next step that runs it; a debug build has none."""
        for graph in self.loaded.names["FUNCTIONS"].values():
            if isinstance(graph, Traced):
                graph.begin()

    def overflow(self) -> Overflow:
        """Return what the last step with verdicts found about its gradients."""
        verdicts, scale = self.loaded.names["verdicts"], self.loaded.names.get("loss_scale")
        missed = {update: int(variable.numpy()) for update, variable in verdicts.missed.items()}
        held = verdicts.withheld()
        return Overflow(
            given={update: place < 0 for update, place in missed.items()},
            committed={op: op not in held for op in verdicts.ops},
            places={update: place for update, place in missed.items() if place >= 0},
            scale_before=None if scale is None else float(scale.before),
            scale_after=None if scale is None else float(scale.scale),
        )

    def norms(self) -> dict[str, float]:
        """Return the norms of gradients that were measured, by update."""
        variable = self.loaded.emitted.names.norms
        return self.loaded.names[variable].read() if variable else {}

    def parameter_names(self, model: str) -> tuple[str, ...]:
        """Return the names of the parameters of a model for which gradients are taken."""
        names = {id(variable): name for name, variable in self.parameters[model]}
        listed = self.loaded.names[self.loaded.emitted.names.parameters(model)]
        return tuple(names[id(each)] for each in listed)

    def applied(self) -> dict[str, int]:
        """Return how often every optimizer was applied."""
        return {cell: read_applied(optimizer) for cell, optimizer in self.optimizers.items()}

    def tensors(self) -> dict[str, object]:
        """Return copies of weights, buffers, optimizer slots and declared states by name."""
        found = {f"models.{model}.{name}": each for model, named in self.parameters.items() for name, each in named}
        for model, named in self.buffers.items():
            found.update({f"models.{model}.{name}": each for name, each in named})
        for cell, optimizer in self.optimizers.items():
            found.update(slot_tensors(cell, optimizer, find_names(self.parameters)))
        found.update({f"state.{name}": each for name, each in self.states.items()})
        return {name: each.read_value() for name, each in found.items()}

    def sizes(self) -> dict[str, int]:
        """Return the number of parameters of every model, shared ones counted once."""
        parts = {name: {id(each): each for _, each in named} for name, named in self.parameters.items()}
        return {name: sum(each.shape.num_elements() for each in found.values()) for name, found in parts.items()}

    def averaged(self) -> frozenset[str]:
        """Return the averages that replace their models outside train mode."""
        return frozenset() if self.gates is None else frozenset(self.gates.averaged)

    def metrics(self, mode: str) -> Mapping[str, Any]:
        """Return the running metrics of a mode, by op."""
        return self.loaded.names.get("METRICS", {}).get(mode, {})

    def notes(self) -> Iterator[str]:
        """Yield notes on metrics that a checkpoint does not keep."""
        metrics = {op: metric for mode in self.loaded.program.modes for op, metric in self.metrics(mode.mode).items()}
        for op, metric in metrics.items():
            if metric.state() is None:
                yield f"metric '{op}' has no state_dict and load_state_dict: it starts anew where a run is resumed"
