"""Optimizer cells: which optimizers there are, what each steps, and how often it is applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from msgspec import Struct

from compiler.facts.steppers import find_excluded, is_kept
from compiler.timing.period import find_firing_period
from compiler.timing.units import ClockRates, Pace
from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import UpdateOp
from graphspec.declare.optimizers import AVERAGING_RULES, OptimizerSpec
from graphspec.read.source import Path

Patterns = tuple[tuple[str, str], ...]
"""Parameters by their model and a pattern of their names."""


class OptimizerCell(Struct, frozen=True, kw_only=True):
    """An optimizer that some update uses: its name, declaration and place, the models it steps, and those updates.

    One that changes by epochs is several: of the model's or update's name, and that with its first epoch, ``net@10``.
    A group with a rule of its own has another: ``net.groups.1``, or ``step.net.groups.1`` of an update's.
    """

    name: str
    optimizer: OptimizerSpec
    path: Path
    models: tuple[str, ...]
    updates: tuple[str, ...]
    owner: str
    """The model or update that declares it."""
    epoch: int = 1
    """The first epoch in which it steps, counted from 1."""
    until: int | None = None
    """The last epoch in which it steps, where another follows."""
    excluded: tuple[str, ...] = ()
    """Models whose parameters another optimizer steps: what they share with its own models is left out."""
    chosen: Patterns = ()
    """The group that it steps; none where it steps all, but for what is left."""
    left: Patterns = ()
    """The groups that have optimizers of their own."""


@once_per_spec
def find_optimizers(spec: GraphSpec) -> tuple[OptimizerCell, ...]:
    """Return the optimizers in use: those of the models in their order, then those of updates."""
    users: dict[str, list[str]] = {}
    own: list[OptimizerCell] = []
    for name, op in spec.ops.items():
        if isinstance(op, UpdateOp):
            kept = tuple(model for model in op.update if is_kept(spec, name, model))
            if op.optimizer is not None:
                own.extend(_find_phases(spec, name, op.optimizer, "ops", kept, (name,)))
                continue
            for model in dict.fromkeys(kept):
                users.setdefault(model, []).append(name)
    shared = (
        cell
        for name, model in spec.models.items()
        if name in users and model.optimizer is not None
        for cell in _find_phases(spec, name, model.optimizer, "models", (name,), tuple(users[name]))
    )
    return (*shared, *own)


class RuledGroup(Struct, frozen=True, kw_only=True):
    """A group of parameters with a rule of its own, and the name and place of that optimizer."""

    name: str
    choice: tuple[str, str]
    optimizer: OptimizerSpec
    path: Path


def find_ruled(spec: GraphSpec, owner: str, models: tuple[str, ...]) -> tuple[RuledGroup, ...]:
    """Return the groups of models that have rules of their own, where the optimizer of an owner steps the others."""
    return tuple(
        RuledGroup(
            name=f"{owner}.groups.{index}" if model == owner else f"{owner}.{model}.groups.{index}",
            choice=(model, group.match),
            optimizer=group.optimizer,
            path=("models", model, "groups", index, "optimizer"),
        )
        for model in models
        if model in spec.models
        for index, group in enumerate(spec.models[model].groups)
        if group.optimizer is not None
    )


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
    groups = find_ruled(spec, owner, models)
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
            excluded=find_excluded(spec, updates[0], models),
            left=tuple(each.choice for each in groups),
        )
    for each in groups:
        yield OptimizerCell(
            name=each.name,
            optimizer=each.optimizer,
            path=each.path,
            models=(each.choice[0],),
            updates=updates,
            owner=owner,
            chosen=(each.choice,),
        )


@once_per_spec
def find_stepping(spec: GraphSpec) -> Mapping[str, tuple[OptimizerCell, ...]]:
    """Return, by model, the optimizers that step it."""
    found: dict[str, list[OptimizerCell]] = {}
    for cell in find_optimizers(spec):
        for model in dict.fromkeys(cell.models):
            found.setdefault(model, []).append(cell)
    return {model: tuple(cells) for model, cells in found.items()}


def find_averaging(spec: GraphSpec, model: str) -> tuple[tuple[str, float], ...]:
    """Return the optimizers that keep an average of a model, each with the share of it in the weights.

    There are none where several optimizers step the same parameters: none of them knows the average.
    """
    cells = find_stepping(spec).get(model, ())
    found: list[tuple[str, float]] = []
    for cell in cells if sum(not cell.chosen for cell in cells) == 1 else ():
        rule = cell.optimizer.name
        option = AVERAGING_RULES.get(rule) if rule is not None else None
        if option is not None:
            value = cell.optimizer.resolved()[option]
            share = value[0] if isinstance(value, tuple) else value
            found.append((cell.name, share if isinstance(share, float | int) else 0.0))
    return tuple(found)


def find_clock_rates(spec: GraphSpec, cell: OptimizerCell, pace: Pace) -> ClockRates:
    """Return the clock rates of an optimizer: the pace, and the steps between its updates if constant.

    It is constant for one update with a firing period, and for several that all fire in every step.
    """
    periods = [find_firing_period(spec, name, epoch=pace.epoch) for name in cell.updates]
    names = " and ".join(f"'{name}'" for name in cell.updates)
    if len(periods) == 1:
        reason = f"{names} does not fire at a steady pace"
        interval = None if periods[0] is None else Fraction(periods[0].every)
    else:
        reason = f"{names} do not all fire in every step"
        is_constant = all(period is not None and period.is_plain for period in periods)
        interval = Fraction(1, len(periods)) if is_constant else None
    return ClockRates(
        pace=pace,
        interval=interval,
        missing=f"how many steps lie between two updates of the optimizer of '{cell.name}': {reason}",
        help="count updates, as in `500 updates`, or give the schedule `clock: steps`",
    )
