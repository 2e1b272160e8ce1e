"""Which update steps which parameters: its own models', unless another steps them for all that share them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from compiler.ir.cell import Cell, find_parameter_cells, parameters_of
from compiler.ir.digraph import number
from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import UpdateOp

Cells = tuple[Cell, ...]


@once_per_spec
def find_model_cells(spec: GraphSpec) -> Mapping[str, Cells]:
    """Return, by update, the parameter cells of its models."""
    cells = find_parameter_cells(spec)
    found: dict[str, Cells] = {}
    for name, op in spec.ops.items():
        if isinstance(op, UpdateOp):
            found[name] = tuple(dict.fromkeys(chain.from_iterable(cells[model] for model in op.update)))
    return found


@once_per_spec
def find_owners(spec: GraphSpec) -> Mapping[Cell, str]:
    """Return, by parameter cell, the update that steps it for all updates that share it: the one with `shared: sum`."""
    steppers = find_steppers(spec)
    found: dict[Cell, str] = {}
    for cell, pairs in steppers.items():
        sharing = [name for _, name in pairs if is_sharing(spec, name)]
        if sharing and len({optimizer for optimizer, _ in pairs}) > 1:
            found[cell] = sharing[0]
    return found


@once_per_spec
def find_steppers(spec: GraphSpec) -> Mapping[Cell, tuple[tuple[str, str], ...]]:
    """Return, by parameter cell, (optimizer, update) of every update that steps it."""
    cells = find_parameter_cells(spec)
    found: dict[Cell, dict[tuple[str, str], None]] = {}
    for name, op in spec.ops.items():
        if isinstance(op, UpdateOp):
            for model in op.update:
                stepper = model if op.optimizer is None else name
                for cell in cells[model]:
                    found.setdefault(cell, {})[stepper, name] = None
    return {cell: tuple(pairs) for cell, pairs in found.items()}


@once_per_spec
def place_owned(spec: GraphSpec) -> Mapping[Cell, int]:
    """Return the positions of the cells that one update steps for several."""
    return number(find_owners(spec))


def is_sharing(spec: GraphSpec, update: str) -> bool:
    """Return whether an update declares that it steps what it shares."""
    op = spec.ops[update]
    return isinstance(op, UpdateOp) and op.shared == "sum"


def find_stepped_cells(spec: GraphSpec, update: str) -> Cells:
    """Return the parameter cells that an update steps: those of its models that no other update steps for it."""
    cells, owners = find_model_cells(spec)[update], find_owners(spec)
    return tuple(cell for cell in cells if owners.get(cell, update) == update) if owners else cells


@once_per_spec
def find_givers(spec: GraphSpec) -> Mapping[str, tuple[str, ...]]:
    """Return, by update that adds gradients of others to its own, those others."""
    owners = find_owners(spec)
    found: dict[str, list[str]] = {}
    for name, cells in find_model_cells(spec).items():
        for owner in dict.fromkeys(owners[cell] for cell in cells if cell in owners):
            if owner != name:
                found.setdefault(owner, []).append(name)
    return {owner: tuple(names) for owner, names in found.items()}


def is_kept(spec: GraphSpec, update: str, model: str) -> bool:
    """Return whether an update steps the parameters that are a model's own, one of its models."""
    cell = parameters_of(model)
    return cell in find_parameter_cells(spec)[model] and find_owners(spec).get(cell, update) == update


def find_excluded(spec: GraphSpec, update: str, models: tuple[str, ...]) -> tuple[str, ...]:
    """Return the models of other updates, tied to some of these, whose parameters those updates step."""
    cells, owners = find_parameter_cells(spec), find_owners(spec)
    if not owners:
        return ()
    shared = {cell for model in models for cell in cells[model] if owners.get(cell, update) != update}
    found: dict[str, None] = {}
    for owner in dict.fromkeys(owners[cell] for cell in sorted(shared, key=place_owned(spec).__getitem__)):
        op = spec.ops[owner]
        assert isinstance(op, UpdateOp)
        found.update(dict.fromkeys(model for model in op.update if not shared.isdisjoint(cells[model])))
    return tuple(found)
