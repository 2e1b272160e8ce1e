"""Cells: the storage that outlives an op. One storage is one cell, so tied weights are a cell of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec


class Cell(NamedTuple):
    """A storage: whose it is, and what of it. Printed as ``generator.params`` or ``tied(a, b)``."""

    kind: Literal["params", "tied", "buffers", "optimizer", "window", "state"]
    """``tied``: the parameters that several models share; ``optimizer``: its slots and step count; ``window``: the
    gradients that an update has accumulated."""
    owners: tuple[str, ...]
    """A model, an optimizer, an update or a state; of shared parameters all their models."""

    def __str__(self) -> str:
        """Return its name in plans and messages."""
        return f"tied({', '.join(self.owners)})" if self.kind == "tied" else f"{self.owners[0]}.{self.kind}"


class CellVersion(NamedTuple):
    """A cell at a version of this step: the number of writes before it."""

    cell: Cell
    version: int

    def __str__(self) -> str:
        """Return ``generator.params@1``."""
        return f"{self.cell}@{self.version}"


def parameters_of(model: str) -> Cell:
    """Return the cell of a model's own parameters."""
    return Cell("params", (model,))


def buffers_of(model: str) -> Cell:
    """Return the cell of a model's buffers."""
    return Cell("buffers", (model,))


def optimizer_cell(name: str) -> Cell:
    """Return the cell of an optimizer's slots and step count."""
    return Cell("optimizer", (name,))


def state_of(name: str) -> Cell:
    """Return the cell of a declared state."""
    return Cell("state", (name,))


@once_per_spec
def find_parameter_cells(spec: GraphSpec) -> Mapping[str, tuple[Cell, ...]]:
    """Return, by model, the cells its parameters live in: its own, and one per group of tied weights it belongs to.

    A tie is declared on either model as ``ties: [other.parameter]``; ties of ties are one group.
    """
    groups: dict[str, set[str]] = {}
    for name, model in spec.models.items():
        ties = model.traits.ties if model.traits is not None else ()
        for partner in dict.fromkeys(tie.split(".")[0] for tie in ties):
            one, other = groups.setdefault(name, {name}), groups.setdefault(partner, {partner})
            if one is not other:
                smaller, larger = sorted((one, other), key=len)
                larger |= smaller
                groups |= dict.fromkeys(smaller, larger)
    tied = {
        name: Cell("tied", tuple(sorted(group)))
        for group in {id(group): group for group in groups.values() if len(group) > 1}.values()
        for name in group
    }
    return {name: (parameters_of(name), *((tied[name],) if name in tied else ())) for name in spec.models}


def find_tied(spec: GraphSpec, model: str) -> tuple[str, ...]:
    """Return the other models with which a model shares parameters."""
    return tuple(name for name in find_sharers(spec).get(model, ()) if name != model)


@once_per_spec
def find_sharers(spec: GraphSpec) -> Mapping[str, tuple[str, ...]]:
    """Return, by model with tied weights, the models of its group in the order of the document."""
    sharers: dict[Cell, list[str]] = {}
    for name, (_, *tied) in find_parameter_cells(spec).items():
        for cell in tied:
            sharers.setdefault(cell, []).append(name)
    return {name: tuple(names) for names in sharers.values() for name in names}
