"""Names of cells, the storage that outlives an op. One storage is one cell, so tied weights are a cell of their own."""

from __future__ import annotations

from collections.abc import Mapping

from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec


def buffers_of(model: str) -> str:
    """Return the cell of a model's buffers."""
    return f"{model}.buffers"


def is_buffers(cell: str) -> bool:
    """Return whether a cell holds a model's buffers."""
    return cell.endswith(".buffers")


def is_state(cell: str) -> bool:
    """Return whether a cell holds a declared state."""
    return cell.endswith(".state")


def is_optimizer(cell: str) -> bool:
    """Return whether a cell holds an optimizer's slots."""
    return cell.endswith(".optimizer")


def optimizer_cell(name: str) -> str:
    """Return the cell of an optimizer's slots and step count."""
    return f"{name}.optimizer"


def window_of(update: str) -> str:
    """Return the cell of an update's gathered gradients; also the name of the gate of the steps it gathers from."""
    return f"{update}.window"


def is_window(cell: str) -> bool:
    """Return whether a cell holds the gathered gradients of an update."""
    return cell.endswith(".window")


def drop_of(update: str) -> str:
    """Return the gate of the steps at whose end an update discards its gathered gradients."""
    return f"{update}.drop"


def group_of(model: str, index: int) -> str:
    """Return the gate of the steps in which a group of parameters is temporarily frozen."""
    return f"{model}.groups.{index}"


def state_of(name: str) -> str:
    """Return the cell of a declared state."""
    return f"{name}.state"


def parameters_of(model: str) -> str:
    """Return the cell of a model's own parameters."""
    return f"{model}.params"


@once_per_spec
def find_parameter_cells(spec: GraphSpec) -> Mapping[str, tuple[str, ...]]:
    """Return, by model, the cells its parameters live in: its own, and one per group of tied weights it belongs to.

    A tie is declared on either model as ``ties: [other.parameter]``; ties of ties are one group.
    """
    groups: list[set[str]] = []
    for name, model in spec.models.items():
        tied = model.traits.ties if model.traits is not None else ()
        for partner in dict.fromkeys(tie.split(".")[0] for tie in tied):
            if partner != name:
                _join(groups, {name, partner})
    named = [(f"tied({', '.join(sorted(group))})", group) for group in groups]
    return {name: (parameters_of(name), *(cell for cell, group in named if name in group)) for name in spec.models}


def find_tied(spec: GraphSpec, model: str) -> tuple[str, ...]:
    """Return the other models with which a model shares parameters."""
    cells = find_parameter_cells(spec)
    own = frozenset(cells.get(model, ()))
    return tuple(name for name, held in cells.items() if name != model and not own.isdisjoint(held))


def _join(groups: list[set[str]], members: set[str]) -> None:
    """Merge a pair of tied models into the groups."""
    touched = [group for group in groups if group & members]
    for group in touched:
        groups.remove(group)
    groups.append(members.union(*touched))
