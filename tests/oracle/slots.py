"""Optimizer cells: whose slots and count an update uses, and what they become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import UpdateOp
from graphspec.declare.optimizers import OptimizerSpec
from graphspec.declare.schedules import ScheduleSpec
from tests.oracle.optimizers import DEFAULTS, RULES, step_rows
from tests.oracle.schedules import read
from tests.oracle.terms import group_of, options_of

if TYPE_CHECKING:
    from tests.oracle.step import StepValues

State = Mapping[str, np.ndarray]
VAGUE = 1e-12


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One optimizer: how often it was applied, and its slots by parameter."""

    applied: int = 0
    slots: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)


class Optimizers:
    """All optimizer cells as a step finds them, and as its updates leave them one after another, but for those held."""

    def __init__(self, spec: GraphSpec, cells: Mapping[str, Cell], epoch: int = 1) -> None:
        self.spec, self.cells, self.epoch = spec, dict(cells), epoch
        self.is_vague = False
        """Whether some rule divided a gradient that may be zero up to rounding by its own size."""
        self.after: dict[tuple[str, str], Cell] = {}
        """By cell and update."""
        self.counts: dict[tuple[str, str], int] = {}
        """By update and who holds what it steps: how often the optimizer was applied before."""

    def step(self, step: StepValues, name: str, op: UpdateOp, gradients: Mapping) -> Mapping[str, State]:
        """Return the parameters of an update's models after it: each model's own optimizer, or one for all."""
        whole = {} if op.optimizer is None else {name: op.update}
        made: dict[str, State] = {}
        for owner, models in (whole or {model: (model,) for model in op.update}).items():
            holders = self._holders(step, name, models)
            if not any(f"{model}.params" in step.meaning.writes(name) for model in models):
                continue
            cell, declared = self._choose(owner, op.optimizer or self.spec.models[owner].optimizer)
            before = self._before(step, name, cell, models)
            rules = {declared.name, *self._own_rules(models)}
            self.is_vague |= rules != {"sgd"} and has_vague(gradients)
            new, made_here = _advance(step, name, holders, declared, before, gradients)
            self.after[cell, name] = new
            self.counts |= {(name, holder): before.applied for holder in holders}
            made |= made_here
        return made

    def _own_rules(self, models: tuple[str, ...]) -> Iterator[str]:
        """Yield the rules of the groups of models that have their own."""
        groups = (group for model in models if model in self.spec.models for group in self.spec.models[model].groups)
        yield from (group.optimizer.name for group in groups if group.optimizer is not None)

    def _choose(self, owner: str, declared: OptimizerSpec) -> tuple[str, OptimizerSpec]:
        """Return the optimizer of this epoch, the last that has begun; each has slots and counts of its own."""
        begun = [int(epoch) for epoch in declared.epochs if int(epoch) <= self.epoch]
        return (owner, declared) if not begun else (f"{owner} {max(begun)}", declared.epochs[str(max(begun))])

    def _before(self, step: StepValues, name: str, cell: str, models: tuple[str, ...]) -> Cell:
        """Return a cell as an update finds it: as the update before it, in the order of writes, left it."""
        earlier = [other for other in self._earlier(step, name, models) if not step.verdicts.is_held(other)]
        if not earlier:
            return self.cells.get(cell, Cell())
        step.apply(earlier[-1])
        return self.after[cell, earlier[-1]]

    def _earlier(self, step: StepValues, name: str, models: tuple[str, ...]) -> list[str]:
        """Return the updates that an optimizer makes in a step before another, in the order of their writes."""
        writers = step.versions.writers(f"{self._holders(step, name, models)[0]}.params")
        return writers[: writers.index(name)]

    def _holders(self, step: StepValues, name: str, models: tuple[str, ...]) -> list[str]:
        """Return who holds what an update steps of some models."""
        return [
            one for one in step.meaning.storages.all_holders(models) if f"{one}.params" in step.meaning.writes(name)
        ]

    def applied(self, step: StepValues, name: str, op: UpdateOp, model: str | None = None) -> int:
        """Return how often the optimizer with which an update steps a model was applied before it: the one it has.

        It matters only where the update is applied itself.
        """
        own = model or op.update[0]
        owner, models = (own, (own,)) if op.optimizer is None else (name, op.update)
        cell, _ = self._choose(owner, op.optimizer or self.spec.models[owner].optimizer)
        earlier = self._earlier(step, name, models)
        held = step.verdicts.find_held_before(earlier, name)
        return self.cells.get(cell, Cell()).applied + len(earlier) - len(held)

    def find_gaps(self, step: StepValues, seen: Mapping[str, int]) -> Mapping[str, np.ndarray]:
        """Return how far the parameters of holders, at versions, are from the averages that their optimizers keep."""
        found: dict[str, np.ndarray] = {}
        for holder, version in seen.items():
            writers = step.versions.writers(f"{holder}.params")[:version]
            updates = [name for name in writers if isinstance(self.spec.ops[name], UpdateOp)]
            made = [name for name in updates if not step.verdicts.is_held(name)]
            if made:
                step.apply(made[-1])
            cells = [cell for (_, name), cell in self.after.items() if name in made[-1:]] or self.cells.values()
            held = (slots for cell in cells for key, slots in cell.slots.items() if key[0] == holder)
            names = (key[1] for cell in cells for key in cell.slots if key[0] == holder)
            found |= {name: slots["gap"] for name, slots in zip(names, held, strict=True) if "gap" in slots}
        return found

    def final(self, step: StepValues) -> Mapping[str, Cell]:
        """Return all cells after the step."""
        found = dict(self.cells)
        for cell in {cell for cell, _ in self.after}:
            users = [name for other, name in self.after if other == cell]
            models = [model for model in self.spec.ops[users[0]].update if cell.split()[0] in (model, users[0])]
            writers = step.versions.writers(f"{self._holders(step, users[0], tuple(models))[0]}.params")
            found[cell] = self.after[cell, max(users, key=writers.index)]
        return found


def is_lazy(spec: GraphSpec, model: str, name: str, rule: OptimizerSpec) -> bool:
    """Return whether a rule steps those rows of a parameter alone that have a gradient: of a sparse embedding."""
    if rule.options.get("sparse") != "lazy" or model not in spec.models:
        return False
    while spec.models[model].like is not None:
        model = spec.models[model].like
    at, layers = name.partition(".")[0], spec.models[model].layers or ()
    return at.isdecimal() and layers[int(at)].options.get("sparse") is True


def has_vague(gradients: Mapping) -> bool:
    """Return whether some elements are so much smaller than the greatest that they may be rounding."""
    sizes = [np.abs(g) for g in gradients.values()]
    greatest = max((size.max(initial=0) for size in sizes), default=0.0)
    return any((size < VAGUE * greatest).any() for size in sizes)


def _advance(
    step: StepValues, name: str, models: tuple[str, ...], declared: OptimizerSpec, before: Cell, gradients: Mapping
) -> tuple[Cell, Mapping[str, State]]:
    """Return a cell after one update, and the models' new parameters.

    A group with a rule of its own is stepped by that, with slots of its own, as often as the others.
    """
    slots, made = {}, {}
    for model in models:
        version = step.versions.writers(f"{model}.params").index(name)
        made[model] = {}
        for key, w in step.parameters(model, version).items():
            if (model, key) not in gradients:
                made[model][key], begun = w, {"v": 0 * w} if declared.name == "sgd" else {}
                slots[model, key] = before.slots.get((model, key), begun)
                continue
            g, old = gradients[model, key], before.slots.get((model, key), {})
            group = group_of(step.meaning.spec, model, key)
            rule = declared if group is None or group.optimizer is None else group.optimizer
            options = _read_options(rule, before.applied, step.number - 1)
            own = options_of(step.meaning.spec, model, key, options, before.applied)
            advance = step_rows if is_lazy(step.meaning.spec, model, key, rule) else RULES[rule.name]
            made[model][key], slots[model, key] = advance(w, g, old, {**own, "rule": rule.name}, before.applied + 1)
    return Cell(applied=before.applied + 1, slots=slots), made


def _read_options(declared: OptimizerSpec, applied: int, steps: int) -> Mapping[str, Any]:
    """Return the options with schedules read at the updates applied before, or the steps made before."""
    found = {**DEFAULTS[declared.name], **declared.options}
    return {key: _read_option(value, applied, steps) for key, value in found.items()}


def _read_option(value: Any, applied: int, steps: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_read_option(each, applied, steps) for each in value)
    return read(value, steps if value.clock == "steps" else applied) if isinstance(value, ScheduleSpec) else value
