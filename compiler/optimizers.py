"""Optimizer cells: which optimizers there are, what each steps, and how often it is applied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from compiler.pace import Pace, Tempo
from compiler.rhythms import find_rhythm
from compiler.sharing import find_beside, is_kept
from graphspec.graph import GraphSpec
from graphspec.ops import UpdateOp
from graphspec.optimizers import OptimizerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerCell:
    """An optimizer that some update uses: its name, declaration and place, the models it steps, and those updates.

    One that changes by epochs is several: of the model's or update's name, and that with its first epoch, ``net@10``.
    """

    name: str
    optimizer: OptimizerSpec
    path: tuple[str, ...]
    models: tuple[str, ...]
    updates: tuple[str, ...]
    owner: str
    """The model or update that declares it."""
    epoch: int = 1
    """The epoch from which on it steps, counted from 1."""
    until: int | None = None
    """The last epoch in which it steps, where another follows."""
    beside: tuple[str, ...] = ()
    """Models whose parameters another steps: what they share with its own is left out."""


def find_optimizers(spec: GraphSpec) -> Iterator[OptimizerCell]:
    """Yield the optimizers in use: those of the models in their order, then those that updates bring."""
    updates = {name: op for name, op in spec.ops.items() if isinstance(op, UpdateOp)}
    for name, model in spec.models.items():
        users = tuple(
            each
            for each, op in updates.items()
            if op.optimizer is None and name in op.update and is_kept(spec, each, name)
        )
        if users and model.optimizer is not None:
            yield from _find_phases(spec, name, model.optimizer, "models", (name,), users)
    for name, op in updates.items():
        if op.optimizer is not None:
            models = tuple(model for model in op.update if is_kept(spec, name, model))
            yield from _find_phases(spec, name, op.optimizer, "ops", models, (name,))


def _find_phases(
    spec: GraphSpec,
    owner: str,
    optimizer: OptimizerSpec,
    section: str,
    models: tuple[str, ...],
    updates: tuple[str, ...],
) -> Iterator[OptimizerCell]:
    """Yield the optimizer of a model or update, one after another where it changes by epochs."""
    begun = [epoch for epoch, _ in optimizer.phases]
    for (epoch, each), following in zip(optimizer.phases, [*begun[1:], None], strict=True):
        yield OptimizerCell(
            name=owner if epoch == 1 else f"{owner}@{epoch}",
            optimizer=each,
            path=(section, owner, "optimizer", *((str(epoch),) if optimizer.epochs else ())),
            models=models,
            updates=updates,
            owner=owner,
            epoch=epoch,
            until=None if following is None else following - 1,
            beside=find_beside(spec, updates[0], models),
        )


def find_tempo(spec: GraphSpec, cell: OptimizerCell, pace: Pace) -> Tempo:
    """Return the tempo of an optimizer: the pace, and the steps between two of its updates where that is constant."""
    return Tempo(
        pace=pace,
        interval=_find_interval(spec, cell.updates, pace.epoch),
        missing=f"how many steps lie between two updates of the optimizer of '{cell.name}': {_tell(cell.updates)}",
        help="count updates, as in `500 updates`, or give the schedule `clock: steps`",
    )


def _find_interval(spec: GraphSpec, updates: tuple[str, ...], epoch: int | None) -> Fraction | None:
    """Return the steps from one update of several to the next: constant for one, and where all fire in every step."""
    rhythms = [find_rhythm(spec, name, epoch=epoch) for name in updates]
    if len(rhythms) == 1:
        return None if rhythms[0] is None else Fraction(rhythms[0].every)
    is_constant = all(rhythm is not None and rhythm.is_plain for rhythm in rhythms)
    return Fraction(1, len(rhythms)) if is_constant else None


def _tell(updates: tuple[str, ...]) -> str:
    """Return why the number is not constant."""
    names = " and ".join(f"'{name}'" for name in updates)
    return f"{names} does not fire at a steady pace" if len(updates) == 1 else f"{names} do not all fire in every step"
