"""Storages: where the parameters of models live. What models share is one storage, held under a name of its own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphspec.declare.graph import GraphSpec
from tests.oracle.likeness import find_root
from tests.oracle.users import INNER

States = Mapping[str, Mapping[str, np.ndarray]]


class Storages:
    """The holders of all parameters of a spec: every model holds its own, and a group of tied models what it shares.

    ``ties: [other.weight]`` on a model says that its own ``weight`` is the other's.
    """

    def __init__(self, spec: GraphSpec) -> None:
        self.spec = spec
        self.groups: dict[str, tuple[str, set[str]]] = {}
        """By model: the holder of what it shares, and the names of that."""
        for name, model in spec.models.items():
            for tie in model.traits.ties if model.traits is not None else ():
                self._tie(name, *tie.split(".", 1))

    def _tie(self, model: str, other: str, parameter: str) -> None:
        group = self.groups.get(other) or self.groups.get(model) or (f"tied({other})", set())
        group[1].add(parameter)
        self.groups[model] = self.groups[other] = group

    def holders(self, model: str) -> tuple[str, ...]:
        """Return who holds the parameters of a model: itself, and the group it belongs to."""
        return (model, *(self.groups[model][:1] if model in self.groups else ()))

    def cells(self, model: str) -> tuple[str, ...]:
        """Return the cells of a model's parameters."""
        return tuple(f"{holder}.params" for holder in self.holders(model))

    def all_holders(self, models: tuple[str, ...]) -> tuple[str, ...]:
        """Return the holders of several models' parameters, each once."""
        return tuple(dict.fromkeys(holder for model in models for holder in self.holders(model)))

    def place(self, model: str, name: str) -> tuple[str, str]:
        """Return who holds what a model calls by a name, and its name there."""
        declared = self.spec.models[find_root(self.spec, model)]
        name = INNER.get(declared.class_path("torch") or "", {}).get(name, name)
        holder, shared = self.groups.get(model, (model, ()))
        return (holder, name) if name in shared else (model, name)

    def gather(self, states: States) -> States:
        """Return the states of models by holder, what is shared once."""
        held: dict[str, dict[str, np.ndarray]] = {model: {} for model in states}
        for model, state in states.items():
            for name, value in state.items():
                holder, key = self.place(model, name)
                held.setdefault(holder, {})[key] = value
        return held
