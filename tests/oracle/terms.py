"""What models say of some of their parameters: groups, penalties and constraints, by the words of the definition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import UpdateOp
from graphspec.declare.parameters import ConstraintSpec, GroupSpec
from tests.oracle.optimizers import ROUNDING, DegenerateError
from tests.oracle.settling import settle_updates
from tests.oracle.storages import Storages

if TYPE_CHECKING:
    from tests.oracle.step import StepValues

State = Mapping[str, np.ndarray]


def group_of(spec: GraphSpec, model: str, name: str) -> GroupSpec | None:
    """Return the group of a parameter."""
    declared = spec.models.get(model)
    groups = declared.groups if declared is not None else ()
    return next((group for group in groups if re.search(group.match, name)), None)


def is_frozen(spec: GraphSpec, storages: Storages, holder: str, name: str) -> bool:
    """Return whether a parameter is not stepped, in a spec whose groups say so for one step; one of its models may."""
    sharing = [model for model, (held, _) in storages.groups.items() if held == holder]
    groups = (group_of(spec, model, name) for model in sharing or [holder])
    return any(group is not None and group.frozen is True for group in groups)


def options_of(spec: GraphSpec, model: str, name: str, options: Mapping[str, Any], applied: int) -> Mapping[str, Any]:
    """Return the options with which a parameter is stepped behind so many updates."""
    group = settle_updates(group_of(spec, model, name), applied)
    if group is None:
        return options
    scale = 1.0 if group.lr_scale is None else group.lr_scale
    decay = options["weight_decay"] if group.weight_decay is None else group.weight_decay
    return {**options, "lr": options["lr"] * scale, "weight_decay": decay}


def add_penalties(step: StepValues, name: str, op: UpdateOp, gradients: Mapping) -> Mapping:
    """Return the gradients of an update with the slopes of its models' penalties.

    The first update of a model that is applied has them: at the weights with which the step begins.
    """
    found = dict(gradients)
    for model in op.update:
        terms = step.meaning.spec.models[model].regularizer or ()
        writers = step.versions.writers(f"{model}.params")
        earlier = writers[: writers.index(name)] if name in writers else []
        if terms and name in writers and step.verdicts.find_held_before(earlier, name) == earlier:
            terms = settle_updates(terms, step.optimizers.applied(step, name, op, model)) if terms else ()
            for key, w in step.start[model].items():
                met = [term for term in terms if term.match is None or re.search(term.match, key)]
                if (model, key) in found or (met and (model, key) in step.targets((model,))):
                    slope = sum(_slope(term, key, w, moved=step.number > 1) for term in met)
                    found[model, key] = found.get((model, key), 0.0) + slope
    return found


def _slope(term: Any, key: str, w: np.ndarray, *, moved: bool) -> np.ndarray | float:
    """Return the derivative of l1 |w| + l2 w^2, each summed; ``moved``: the weights are not the initial ones."""
    if term.l1 and moved and (np.abs(w) < ROUNDING).any():
        raise DegenerateError("l1 takes the sign of a number that is zero up to rounding")
    return (term.l1 or 0.0) * np.sign(w) + 2 * (term.l2 or 0.0) * w


def constrain(
    step: StepValues, name: str, op: UpdateOp, made: Mapping[str, State], gradients: Mapping
) -> Mapping[str, State]:
    """Return what an update made of its models with their constraints, or its own, satisfied by what had a gradient."""
    found = {model: dict(state) for model, state in made.items()}
    models = step.meaning.spec.models
    for model, state in found.items():
        terms = op.constraint or (models[model].constraint if model in models else ()) or ()
        for each in settle_updates(terms, step.optimizers.counts[name, model]) if terms else ():
            for key, w in state.items():
                is_meant = each.match is None or re.search(each.match, key)
                state[key] = _project(each, w) if is_meant and (model, key) in gradients else w
    return found


def _project(constraint: ConstraintSpec, w: np.ndarray) -> np.ndarray:
    """Return the nearest that satisfies a constraint; norms are those of the places of the first axis."""
    if constraint.clip is not None:
        return np.clip(w, *constraint.clip)
    if constraint.non_negative:
        return np.maximum(w, 0)
    axes = tuple(range(1, w.ndim)) if w.ndim > 1 else tuple(range(w.ndim))
    axes = axes if constraint.axis is None else constraint.axis
    lengths = np.sqrt((w * w).sum(axis=axes, keepdims=True))
    wanted = np.ones_like(lengths) if constraint.unit_norm else np.minimum(lengths, constraint.max_norm)
    return w * np.divide(wanted, lengths, out=np.zeros_like(lengths), where=lengths > 0)
