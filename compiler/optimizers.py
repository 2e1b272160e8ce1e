"""Optimizer cells: which optimizers there are, what each steps, and how often it is applied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from compiler.pace import Pace, Tempo
from compiler.rhythms import find_rhythm
from graphspec.graph import GraphSpec
from graphspec.ops import UpdateOp
from graphspec.optimizers import OptimizerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerCell:
    """An optimizer that some update uses: its name, declaration and place, the models it steps, and those updates."""

    name: str
    optimizer: OptimizerSpec
    path: tuple[str, ...]
    models: tuple[str, ...]
    updates: tuple[str, ...]


def find_optimizers(spec: GraphSpec) -> Iterator[OptimizerCell]:
    """Yield the optimizers in use: those of the models in their order, then those that updates bring."""
    updates = {name: op for name, op in spec.ops.items() if isinstance(op, UpdateOp)}
    for name, model in spec.models.items():
        users = tuple(each for each, op in updates.items() if op.optimizer is None and name in op.update)
        if users and model.optimizer is not None:
            path = ("models", name, "optimizer")
            yield OptimizerCell(name=name, optimizer=model.optimizer, path=path, models=(name,), updates=users)
    for name, op in updates.items():
        if op.optimizer is not None:
            path = ("ops", name, "optimizer")
            yield OptimizerCell(name=name, optimizer=op.optimizer, path=path, models=op.update, updates=(name,))


def find_tempo(spec: GraphSpec, cell: OptimizerCell, pace: Pace) -> Tempo:
    """Return the tempo of an optimizer: the pace, and the steps between two of its updates where that is constant."""
    return Tempo(
        pace=pace,
        interval=_find_interval(spec, cell.updates),
        missing=f"how many steps lie between two updates of the optimizer of '{cell.name}': {_tell(cell.updates)}",
        help="count updates, as in `500 updates`, or give the schedule `clock: steps`",
    )


def _find_interval(spec: GraphSpec, updates: tuple[str, ...]) -> Fraction | None:
    """Return the steps from one update of several to the next: constant for one, and where all fire in every step."""
    rhythms = [find_rhythm(spec, name) for name in updates]
    if len(rhythms) == 1:
        return None if rhythms[0] is None else Fraction(rhythms[0].every)
    is_constant = all(rhythm is not None and rhythm.is_plain for rhythm in rhythms)
    return Fraction(1, len(rhythms)) if is_constant else None


def _tell(updates: tuple[str, ...]) -> str:
    """Return why the number is not constant."""
    names = " and ".join(f"'{name}'" for name in updates)
    return f"{names} does not fire at a steady pace" if len(updates) == 1 else f"{names} do not all fire in every step"
