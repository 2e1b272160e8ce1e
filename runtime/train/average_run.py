"""Averages that are made after a run, of its checkpoints: of any width, or uniform."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import numpy.typing as npt

from compiler.ir.instructions import Blend
from compiler.ir.value import Scheduled
from graphspec.declare.decays import DecaySpec
from graphspec.declare.ops import UpdateOp
from runtime.checkpoints import Store, read_checkpoint
from runtime.checkpoints.format import name_step
from runtime.codegen.averages import find_counted
from runtime.engine.backend import PackedModel
from runtime.export.posthoc import Fit, Profile, fit_profile
from runtime.folder import CHECKPOINTS
from runtime.problems import problem
from runtime.state import Array
from runtime.train.reopen import Reopened, reopen_run

CODE = "GS256"
WORST = 0.1
"""The largest error of a fit that is written."""
WIDTHS = tuple(round(0.005 * number, 3) for number in range(1, 58))
"""The widths that are tried where the wanted one does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageRequest:
    """What to average: the power averages of a run to a width, or else the weights of checkpoints.

    ``choice`` is the last checkpoint that counts: best, newest, or the number of a step.
    """

    folder: Path
    out: Path | None
    sigma_rel: float | None
    uniform: str = "step-*"
    """The names of the checkpoints whose weights are averaged, where no width is given."""
    averages: Sequence[str] = ()
    model: str | None = None
    choice: str = "newest"
    device: str = "cpu"
    allow: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """A file of averaged weights, and what it was made of."""

    path: Path
    model: str
    packed: PackedModel
    snapshots: tuple[str, ...]
    """The checkpoints, or the averages in them: ``wide at step-100``."""
    gamma: float | None = None
    fit: Fit | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """The tensors of a model in a checkpoint, and how much they count."""

    folder: Path
    model: str
    weight: float


def average_run(request: AverageRequest) -> Average:
    """Write an average over the checkpoints of a run as a safetensors file, with the names and types of its model.

    Floating-point numbers are averaged in float64; whole numbers, and what power averages copy, are the newest. Raises
    SpecError: GS256 there is nothing to average, or too little for that width; GS234, GS240-GS243 files that cannot be
    written or read; and what building the step raises.
    """
    run = reopen_run(request.folder, choice=request.choice, device=request.device, allow=request.allow, recalls=True)
    store = Store(request.folder / CHECKPOINTS, 1)
    steps = [step for step in store.steps() if step <= int(run.path.name.removeprefix("step-"))]
    model = request.model
    if model is not None and model not in run.step.sizes:
        raise problem(CODE, f"the run has no model '{model}'", help=f"it has {', '.join(run.step.sizes)}")
    if request.sigma_rel is None:
        return _average_uniformly(request, run, store, steps)
    return _reconstruct(request, run, store, steps, request.sigma_rel)


def _average_uniformly(request: AverageRequest, run: Reopened, store: Store, steps: Sequence[int]) -> Average:
    """Write the mean of the weights of a model in the checkpoints with names like ``step-*``."""
    found = [step for step in steps if fnmatchcase(name_step(step), request.uniform)]
    if not found:
        help = f"the run has {', '.join(map(name_step, steps))}"
        raise problem(CODE, f"no checkpoint is called '{request.uniform}'", help=help)
    trained = dict.fromkeys(name for op in run.spec.ops.values() if isinstance(op, UpdateOp) for name in op.update)
    if request.model is None and len(trained) != 1:
        raise problem(CODE, f"the run trains {', '.join(trained) or 'no model'}", help="name one with --model")
    model = request.model or next(iter(trained))
    newest = _tensors_of(read_checkpoint(store.path(found[-1])).arrays, model)
    whole = {name: array for name, array in newest.items() if array.dtype.kind != "f"}
    mean = _combine([Part(store.path(step), model, 1 / len(found)) for step in found], whole.keys())
    path = request.out or request.folder / f"{model}-uniform.safetensors"
    packed = _write(run, model, {**mean, **whole}, path)
    return Average(path=path, model=model, packed=packed, snapshots=tuple(map(name_step, found)))


def _reconstruct(
    request: AverageRequest, run: Reopened, store: Store, steps: Sequence[int], sigma_rel: float
) -> Average:
    """Write the average of a width at the last of some steps, as a combination of the power averages until then."""
    blends = _find_power_averages(run, request)
    stored = list(_find_stored(store, steps, blends))
    if not stored:
        help = "let it train until they have been taken"
        raise problem(CODE, f"no checkpoint holds a number of {', '.join(blends)} yet", help=help)
    profiles = [profile for _, _, profile in stored]
    gamma = find_gamma(sigma_rel)
    fit = fit_profile(profiles, _want(profiles, gamma))
    if fit.error > WORST:
        good = [s for s in WIDTHS if fit_profile(profiles, _want(profiles, find_gamma(s))).error <= WORST]
        message = (
            f"sigma_rel {sigma_rel:g} cannot be reconstructed from {len(profiles)} snapshots: the nearest profile that "
            f"they give is off by {fit.error:.0%}"
        )
        reach = f"these reach from {good[0]:g} to {good[-1]:g}; " if good else ""
        help = f"{reach}more checkpoints reach further: `run: {{checkpoint: {{every: 100 steps, keep: 1000}}}}`"
        raise problem(CODE, message, help=help)
    blend = blends[max(stored, key=lambda each: each[2].length)[0]]  # the others may have stopped before
    buffers = run.step.buffers(blend.source)
    own = _tensors_of(run.step.state().arrays, blend.target)
    kept = {name: array for name, array in own.items() if not _is_averaged(name, array, buffers, blend)}
    parts = [
        Part(store.path(step), blends[op].target, weight)
        for (op, step, _), weight in zip(stored, fit.weights, strict=True)
    ]
    path = request.out or request.folder / f"{blend.source}-sigma-rel-{sigma_rel:g}.safetensors"
    packed = _write(run, blend.source, {**_combine(parts, kept.keys()), **kept}, path)
    snapshots = tuple(f"{op} at {name_step(step)}" for op, step, _ in stored)
    return Average(path=path, model=blend.source, packed=packed, snapshots=snapshots, gamma=gamma, fit=fit)


def find_gamma(sigma_rel: float) -> float:
    """Return the exponent of the power average of a width.

    >>> round(find_gamma(0.1), 2), round(find_gamma(0.05), 2)
    (6.94, 16.97)
    """
    return DecaySpec.model_validate({"kind": "power", "sigma_rel": sigma_rel}).numbers["gamma"]


def _find_power_averages(run: Reopened, request: AverageRequest) -> Mapping[str, Blend]:
    """Return the averages to combine, by op; all of one model, and alike but for their widths."""
    counted = find_counted(run.step.plan.program)
    known = {op: each for op, each in counted.items() if _find_exponent(each) is not None}
    known = {op: each for op, each in known.items() if request.model in (None, each.source)}
    for name in request.averages:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            of = "" if request.model is None else f" of '{request.model}'"
            raise problem(CODE, f"the run has no power average '{name}'{of}", help=has)
    found = {op: each for op, each in known.items() if not request.averages or op in request.averages}
    if not found:
        help = (
            "train with two, as in `wide: {ema: net, decay: {kind: power, sigma_rel: 0.1}}` and one of 0.05, and keep "
            "their checkpoints: `run: {checkpoint: {every: 100 steps, keep: 1000}}`"
        )
        raise problem(CODE, "the run has no averages of kind power, every write of their model counted", help=help)
    ops = run.spec.ops
    (name, first), *others = found.items()
    for other, each in others:
        if each.source != first.source:
            help = f"name one model with --model, such as `--model {first.source}`"
            raise problem(CODE, f"'{name}' averages '{first.source}', and '{other}' '{each.source}'", help=help)
    for other, _ in others:
        for field in ("start", "match", "exclude", "buffers", "float_buffers"):
            if getattr(ops[name], field) != getattr(ops[other], field):
                help = "name those that belong together with --average"
                raise problem(CODE, f"'{name}' and '{other}' have another `{field}`", help=help)
    return found


def _find_exponent(blend: Blend) -> float | None:
    """Return gamma of a power average in which every write counts as its profile says; of others None."""
    decay, progress = blend.decay, blend.progress
    if not isinstance(decay, Scheduled) or decay.schedule.kind != "power" or progress is None:
        return None
    return decay.schedule.fields["gamma"] if progress.every == 1 or progress.compounds else None


def _find_stored(store: Store, steps: Iterable[int], blends: Mapping[str, Blend]) -> Iterator[tuple[str, int, Profile]]:
    """Yield the averages in some checkpoints, each with its op and step; those that had stopped only once."""
    seen: set[Profile] = set()
    for step in steps:
        counts = read_checkpoint(store.path(step)).sections.get("counters")
        averages = counts.get("averages") if isinstance(counts, dict) else None
        for op, blend in blends.items():
            times = averages.get(op) if isinstance(averages, dict) else None
            gamma, progress = _find_exponent(blend), blend.progress
            if not isinstance(times, int) or times < 1 or gamma is None or progress is None:
                continue
            profile = Profile(progress.first + progress.every * (times - 1), gamma, progress.every)
            if profile not in seen:
                seen.add(profile)
                yield op, step, profile


def _want(profiles: Sequence[Profile], gamma: float) -> Profile:
    """Return the profile of a width at the last of some writes, of as many of them as one of the others takes."""
    return Profile(max(each.length for each in profiles), gamma, min(each.every for each in profiles))


def _is_averaged(name: str, array: Array, buffers: Set[str], blend: Blend) -> bool:
    """Return whether the average holds an average of a tensor, not a copy."""
    if array.dtype.kind != "f":
        return False
    if name in buffers:
        return blend.buffers == "average"
    chosen = blend.match is None or re.search(blend.match, name) is not None
    return chosen and not (blend.exclude is not None and re.search(blend.exclude, name))


def _tensors_of(arrays: Mapping[str, Array], model: str) -> dict[str, Array]:
    """Return the tensors of a model by their own names."""
    prefix = f"models.{model}."
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _combine(parts: Iterable[Part], without: Set[str]) -> dict[str, Array]:
    """Return the weighted sums of the tensors of some checkpoints in float64; each checkpoint is read once."""
    totals: dict[str, npt.NDArray[np.float64]] = {}
    folder, arrays = None, dict[str, Array]()
    for part in parts:
        if part.folder != folder:
            folder, arrays = part.folder, dict(read_checkpoint(part.folder).arrays)
        for name, array in _tensors_of(arrays, part.model).items():
            if name not in without:
                term = part.weight * array.astype(np.float64)
                totals[name] = totals[name] + term if name in totals else term
    return dict(totals)


def _write(run: Reopened, model: str, tensors: Mapping[str, Array], path: Path) -> PackedModel:
    """Give a model other tensors, and write its file."""
    state, prefix = run.step.state(), f"models.{model}."
    own = {name: array for name, array in state.arrays.items() if name.startswith(prefix)}
    given = {name: np.asarray(tensors[name.removeprefix(prefix)]).astype(array.dtype) for name, array in own.items()}
    run.step.restore(replace(state, arrays={**state.arrays, **given}))
    return run.step.write_weights(model, path)
