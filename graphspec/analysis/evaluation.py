"""Evaluation: on which data and in which mode a run evaluates, and what the figures it goes by mean."""

from __future__ import annotations

from collections.abc import Mapping

from graphspec.analysis.datasets import find_inputs
from graphspec.analysis.modes import find_reaches
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import MODES, EmaOp, LossOp, MetricOp, ModeName
from graphspec.declare.run import BestSpec, Goal, StopSpec

ROLES = ("test", "eval")
"""The sets that `run.eval` takes where it names none, the first of them that `data` has."""

GOALS: Mapping[str, Goal] = {"accuracy": "max"}
"""What is better of a metric of the library, where that is the same in every use."""


def find_role(spec: GraphSpec) -> str:
    """Return the name under `data` of the set that a run evaluates on, whether `data` has it or not."""
    written = None if spec.run.eval is None else spec.run.eval.data
    return written or next((role for role in ROLES if role in spec.data), ROLES[0])


def find_eval_dataset(spec: GraphSpec) -> str | None:
    """Return the data set that `run.eval` gives its batches; None where it names none."""
    return None if spec.run.eval is None else spec.run.eval.dataset


def find_eval_mode(spec: GraphSpec) -> ModeName:
    """Return the mode in which a run is evaluated."""
    return "eval" if spec.run.eval is None else spec.run.eval.mode


def find_recomputed(spec: GraphSpec) -> Mapping[str, str]:
    """Return the averages whose statistics are computed anew before every evaluation, each with its set of data."""
    found: dict[str, str] = {}
    for name, op in spec.ops.items():
        if isinstance(op, EmaOp) and op.use.recompute_buffers is not None:
            found[name] = op.use.recompute_buffers
    return found


def find_image_role(spec: GraphSpec) -> str:
    """Return the name under `data` of the set whose batch the value of `run.images` is computed from."""
    written = None if spec.run.images is None else spec.run.images.data
    return written or "train"


def find_unread(spec: GraphSpec) -> tuple[str, ...]:
    """Return the sets of data that no run reads: a command alone evaluates on them."""
    read = {"train", *find_recomputed(spec).values()}
    read |= {find_role(spec)} if spec.run.eval is not None else set()
    read |= {find_image_role(spec)} if spec.run.images is not None else set()
    return tuple(role for role in spec.data if role not in read)


def find_image_mode(spec: GraphSpec) -> ModeName | None:
    """Return the mode other than train that makes the value of `run.images`; None where only training makes it."""
    if spec.run.images is None:
        return None
    value = spec.run.images.value
    return next((mode for mode in MODES if mode != "train" and value in find_returned(spec, mode)), None)


def find_role_modes(spec: GraphSpec, role: str) -> frozenset[ModeName]:
    """Return the modes whose steps take the batches of a set of data.

    Steps of training take those of `train`. The mode in which the value of `run.images` is made takes those of the set
    that it names, else of `train`. All others are for evaluations, and so are those that averages are recomputed on.
    """
    shown = find_image_mode(spec) if role == find_image_role(spec) else None
    modes: list[ModeName] = [] if shown is None else [shown]
    if role == "train":
        modes.append("train")
    if role in find_recomputed(spec).values() or (role != "train" and (shown is None or role == find_role(spec))):
        modes.append(find_eval_mode(spec))
    return frozenset(modes)


def find_batch_inputs(spec: GraphSpec, role: str, dataset: str | None) -> tuple[str, ...]:
    """Return the inputs that the batches of a set of data must have; ``dataset`` is the data set of its batches.

    Where a step takes several batches, each of them has the inputs that the last one has.
    """
    needed = find_inputs(spec, dataset, find_role_modes(spec, role))
    return tuple(dict.fromkeys(spec.inputs[each].of or each for each in needed))


def find_watched_mode(spec: GraphSpec) -> ModeName:
    """Return the mode whose outputs `run.best` and `run.stop` go by: that of `run.eval`, else train."""
    return "train" if spec.run.eval is None else spec.run.eval.mode


def find_returned(spec: GraphSpec, mode: ModeName) -> tuple[str, ...]:
    """Return the values that a step of a mode returns: `outputs`, or metrics and, in train mode, losses."""
    reaches = find_reaches(spec)
    values: list[str] = []
    for name, op in spec.ops.items():
        is_shown = spec.outputs is not None or isinstance(op, MetricOp) or (mode == "train" and isinstance(op, LossOp))
        if is_shown and mode in reaches[name].modes:
            values.extend(op.defines(name))
    return tuple(values if spec.outputs is None else filter(frozenset(values).__contains__, spec.outputs))


def find_goal(spec: GraphSpec, watch: BestSpec | StopSpec) -> Goal | None:
    """Return whether less or more of a watched figure is better; None where neither the spec nor its op says so."""
    if watch.mode is not None:
        return watch.mode
    match next((op for name, op in spec.ops.items() if watch.metric in op.defines(name)), None):
        case LossOp():
            return "min"
        case MetricOp(metric=function) if function.is_builtin:
            return GOALS.get(function.name("torch"))
        case _:
            return None
