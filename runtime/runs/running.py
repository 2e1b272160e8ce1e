"""The way of a run: the data is opened, the step compiled and built, trained, and told about."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.timing.units import Pace, find_batch
from graphspec.evaluation import find_role, find_told
from graphspec.graph import GraphSpec
from graphspec.rendering import render
from runtime import api, pacing
from runtime.checkpoints.versions import find_versions
from runtime.data import AnyFeed, open_feed
from runtime.data.inspection import Inspector
from runtime.folder import make_folder
from runtime.imports import importable
from runtime.interrupt import terminable
from runtime.runs.agenda import find_agenda, find_length
from runtime.runs.fingerprint import fingerprint
from runtime.runs.gallery import find_image_mode
from runtime.runs.loop import Outcome
from runtime.runs.metrics import scalars
from runtime.runs.past import Past, find_past
from runtime.runs.progress import working
from runtime.runs.record import Record
from runtime.runs.session import Request, Session
from runtime.runs.summary import introduce, sum_up
from runtime.terminal import show

if TYPE_CHECKING:
    from compiler import Plan
    from runtime.step import Step

DEFAULT = "torch"
"""The framework of a new run where nobody asks for one."""


def perform(request: Request) -> Outcome:
    """Run a spec from its data to its files, or go on with a run.

    Raises SpecError for whatever is wrong in spec, data or run; a folder that nothing was written to is removed.
    """
    with importable(request.path.parent), terminable():
        session = prepare(request)
        with _tidied(session.folder):
            introduce(session, request.stream)
            outcome = session.train()
    sum_up(outcome, session.folder, request.stream)
    return outcome


def retake(request: Request, folder: Path) -> Mapping[str, float]:
    """Take a step again that ``--debug nan`` kept; return its outputs of one number.

    Raises SpecError: what the step raised then, where it does again; GS240-GS242, GS263, GS264 a folder that does not
    hold such a step.
    """
    from runtime.debugging import find_framework, find_seed, replay

    with importable(request.path.parent), terminable():
        seed = find_seed(folder)
        backend = request.backend or find_framework(folder)
        plan = _compile(request, backend, pacing.find_pace(request.spec, request.path) or Pace())
        step = _build(request, plan, seed, weights=False)
        outputs = replay(folder, step)
    return scalars({name: step.numpy(value) for name, value in outputs.items()})


def prepare(request: Request) -> Session:
    """Return the run, ready to train; the data is opened before a framework is imported, so that errors come early."""
    past = find_past(request.spec, request.out, request.backend) if request.resume else None
    seed = _find_seed(request, past)
    feed = _open(request, "train", seed)
    judged = (
        None
        if request.spec.run.eval is None
        else _open(request, find_role(request.spec), seed, find_told(request.spec))
    )
    wanted = request.steps if request.steps is not None or past is None else past.record.steps or None
    pace = find_pace(request.spec, feed, wanted)
    agenda = find_agenda(request.spec, pace)
    plan = _compile(request, request.backend or (DEFAULT if past is None else past.record.backend), pace)
    step = _build(request, plan, seed, weights=past is None)
    for each in (feed, judged):
        if each is not None:
            each.attach(step)
    if request.spec.run.check_data:
        for part in feed.parts:
            part.inspector = Inspector.of(step.plan, dataset=part.place.dataset)
    folder = make_folder(request.spec.name, request.out) if past is None else past.folder
    return Session(
        request=request,
        record=_describe(request, step, seed, wanted, folder),
        past=past,
        agenda=agenda,
        step=step,
        feed=feed,
        judged=judged,
        folder=folder,
    )


def find_pace(spec: GraphSpec, feed: AnyFeed, wanted: int | None) -> Pace:
    """Return how long an epoch, a step and the run are, where that is known before it begins."""
    return Pace(epoch=feed.length, batch=find_batch(spec), run=find_length(spec, feed.length, wanted))


def _find_seed(request: Request, past: Past | None) -> int:
    """Return the seed: the one asked for, that of the run that goes on, or the spec's."""
    if request.seed is not None:
        return request.seed
    changed = past is None or any(change.path == "seed" for change in past.changes)
    return request.spec.seed if past is None or changed else past.record.seed


def _open(request: Request, role: str, seed: int, dataset: str | None = None) -> AnyFeed:
    return open_feed(request.spec, role, seed=seed, allow=request.allow, directory=request.path.parent, dataset=dataset)


def _compile(request: Request, backend: str, pace: Pace) -> Plan:
    """Return the plan after printing its warnings."""
    from compiler import compile_step

    plan = compile_step(request.spec, backend=backend, order=request.order, pace=pace)
    show(plan.warnings, request.spec.texts())
    if request.spec.run.images is not None:
        find_image_mode(request.spec, plan.program)
    return plan


def _build(request: Request, plan: Plan, seed: int, *, weights: bool) -> Step:
    with working(request.stream, f"building {request.spec.name}", moving=request.moving):
        return api.build(
            plan,
            device=request.device,
            seed=seed,
            allow=request.allow,
            debug=request.debug is not None,
            jit_compile=request.jit_compile,
            weights=weights,  # a run that goes on restores its own
        )


def _describe(request: Request, step: Step, seed: int, wanted: int | None, folder: Path) -> Record:
    """Return the record of a run; its ``steps`` are those asked for, 0 where the spec says how many."""
    return Record(
        name=request.spec.name,
        versions=find_versions(step.plan.program.backend),
        seed=seed,
        device=step.device,
        backend=step.plan.program.backend,
        order=request.order,
        steps=wanted or 0,
        spec=render(request.spec),
        overrides=tuple(request.overrides),
        plan=fingerprint(step.plan),
        source=step.source,
        allow=tuple(request.allow),
        spec_path=_find_way(folder, request.path),
        pace=step.plan.pace,
    )


def _find_way(folder: Path, path: Path) -> str:
    """Return a path as it is found from a folder, so that both may be moved together."""
    try:
        return os.path.relpath(path, folder)
    except ValueError:  # on another drive of Windows
        return os.path.abspath(path)


@contextmanager
def _tidied(folder: Path) -> Generator[None]:
    """Remove a folder that nothing was written to."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            folder.rmdir()  # only an empty one goes
        raise
