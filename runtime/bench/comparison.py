"""A comparison: builds every variant of a step, compares what they return, and times them in turn."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from compiler.timing.gates import find_period, find_ungated, merge_alike
from compiler.timing.units import Pace
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import SpecError
from runtime import api
from runtime.bench.agreement import Agreement, Outputs, compare
from runtime.bench.batches import Sample, draw_batches, place_batches, read_batches
from runtime.bench.emitted import load_emitted
from runtime.bench.interleaving import SLICE, Run, Stopwatch, Timing, interleave
from runtime.bench.loops import Loop, Step, importable_beside
from runtime.bench.meter import Machine, Meter
from runtime.bench.variants import BUILT, EMITTED, JIT, OURS
from runtime.data import open_feed
from runtime.data.arrays import dataset_of
from runtime.engine.imports import importable
from runtime.interrupt import Interrupt
from runtime.problems import describe
from runtime.registry import find_backend
from runtime.terminal import counted, show
from runtime.train.allowed import require_all_allowed
from runtime.train.run import find_pace

if TYPE_CHECKING:
    from runtime.step import Step as BuiltStep

COMPARED = 3
"""The first steps whose outputs are compared: in the first, other updates do not show yet."""
LONGEST_PERIOD = 64
"""The most steps that a slice is made a multiple of."""


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """The options of the user; None means the default."""

    path: Path
    spec: GraphSpec
    backend: str = "torch"
    device: str = "auto"
    order: str = "fewest"
    seed: int | None = None
    allow: Sequence[str] = ()
    loops: Sequence[Loop] = ()
    jit: bool = False
    baseline: str | None = None
    """The name of a variant."""
    rounds: int = 30
    slice_ms: float = field(default_factory=lambda: SLICE)
    batches: int = 16
    rows: int = 64
    """The rows of a batch where the spec has no data."""
    threads: int | None = None
    working: Callable[[str], AbstractContextManager[None]] = field(default=lambda _: nullcontext())
    """Shows that something slow is under way."""
    tell: Callable[[str], None] = field(default=lambda _: None)
    """Shows a line in place of the one before; it is called between slices, so that nothing moves while a step runs."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all variants, in the order of the table."""
        return (*(loop.name for loop in self.loops), *(each for each in OURS if self.jit or each != JIT))

    @property
    def chosen_seed(self) -> int:
        """Return the seed of weights, random numbers and the order of samples."""
        return self.spec.seed if self.seed is None else self.seed


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A variant after its first steps: ``run`` takes one on the next batch; seconds to build it, and of those steps."""

    name: str
    run: Run
    build_seconds: float
    first_seconds: float
    steps: int
    """How many these were."""
    outputs: Sequence[Outputs]
    peak: int | None
    """The most bytes that a step allocates on top of what there is before it."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What was measured: the timings of every variant, empty where the user stopped before the first round ended."""

    request: BenchRequest
    machine: Machine
    sample: Sample
    variants: Mapping[str, Variant]
    agreements: Mapping[str, Agreement]
    timings: Mapping[str, Timing]
    baseline: str
    multiple: int
    """Of how many steps the number in a slice is a multiple."""
    left_out: Mapping[str, str]
    """Why variants could not be timed."""
    interrupted: str
    """The signal with which the user stopped; empty where none did."""

    @property
    def rounds(self) -> int:
        """Return how many rounds were measured."""
        return self.timings[self.baseline].rounds if self.timings else 0


def bench(request: BenchRequest) -> Comparison:
    """Build, compare and time the variants of a spec's step.

    Raises SpecError: any problem of spec and data, GS207 the device is not available, GS217 the framework is not
    installed, GS220 there are no batches, GS278 a loop by hand cannot be timed.
    """
    from compiler import compile_step

    spec, feed, pace = request.spec, None, Pace()
    with importable(request.path.parent), importable_beside(request.loops):
        compiled = partial(compile_step, spec, backend=request.backend, order=request.order)
        if "train" in spec.data:
            # Where some of it may not be imported, a plan shows the rest, without the lengths that only the data has.
            require_all_allowed(spec, ("train",), request.allow, lambda: compiled(pending=True).program)
            directory, seed = request.path.parent, request.chosen_seed
            feed = open_feed(spec, "train", seed=seed, allow=request.allow, directory=directory)
            pace = find_pace(spec, feed, None)
        plan = compiled(pace=pace)
        show(plan.warnings, spec.texts())
        with request.working("importing the framework"):
            meter = find_backend(request.backend).meter(request.device, request.threads)
        makers = {loop.name: loop.load() for loop in request.loops}  # now: it may import the framework, too
        with request.working(f"building {request.spec.name}"):
            began = time.perf_counter()
            built = api.build(plan, device=request.device, seed=request.chosen_seed, allow=request.allow)
            seconds = time.perf_counter() - began
            program = built.plan.program
            if feed is None:
                held = draw_batches(program, request.spec, request.rows, request.batches, request.chosen_seed)
            else:
                feed.attach(built)
                held = read_batches(feed, request.batches)
            sample = Sample(batches=place_batches(held, program, meter), is_read=feed is not None)
        workshop = _Workshop(request=request, meter=meter, built=built, seconds=seconds, sample=sample, makers=makers)
        models = {name: workshop.copy(name) for name in request.names if name != BUILT}
        variants, left_out = dict[str, Variant](), dict[str, str]()
        for name in request.names:
            with request.working(f"first steps of {name}"):
                try:
                    variants[name] = workshop.make(name, models.get(name))
                except _LeftOut as error:
                    left_out[name] = str(error)
        return _time(workshop, variants, left_out)


class _LeftOut(Exception):
    """A variant of ours cannot be timed; the message says why."""


@dataclass(frozen=True, kw_only=True)
class _Workshop:
    """What variants are made with; ``built`` is the variant `step` before its first step, made in ``seconds``."""

    request: BenchRequest
    meter: Meter
    built: BuiltStep
    seconds: float
    sample: Sample
    makers: Mapping[str, Callable[[Mapping[str, object]], object]]

    @property
    def multiple(self) -> int:
        """Return a number of steps after which the step does the same work again, as far as its clocks tell."""
        gates = self.built.plan.program.mode("train").gates
        merged, _ = merge_alike(gates, [find_ungated(gates)])
        return min(find_period(merged), LONGEST_PERIOD)

    def copy(self, name: str) -> dict[str, object] | None:
        """Return the models of a variant, with the same weights; None where ours have to make them from the seed.

        Raises SpecError: GS278 where those of a loop cannot be copied.
        """
        try:
            return self.meter.copy(self.built.models)
        except Exception as error:
            if name in OURS:
                return None
            help = "a copy is made with copy.deepcopy: keep graphs, files and locks out of the attributes of models"
            raise self._loop(name).blame(error, "copying the models raised", help) from error

    def make(self, name: str, models: Mapping[str, object] | None) -> Variant:
        """Return a variant over its models after its first steps.

        Raises _LeftOut for one of ours, SpecError (GS278) for a loop that fails.
        """
        if name == BUILT:
            return self._begin(name, self._name_set(self.built), self.seconds)
        began = time.perf_counter()
        if name not in OURS:
            loop = self._loop(name)
            step = loop.make(self.makers[name], models or {})
            return self._begin(name, step, time.perf_counter() - began)
        try:
            if name == JIT:
                return self._capture(models)
            module = load_emitted(api.emit(self.built.plan))
            module.build(seed=self.request.chosen_seed, device=self.built.device, models=models)
            return self._begin(name, self._name_set(module.step), time.perf_counter() - began)
        except _LeftOut:
            raise
        except Exception as error:
            reason = error.diagnostics[0].message if isinstance(error, SpecError) else describe(error)
            raise _LeftOut(reason) from error

    def _capture(self, models: Mapping[str, object] | None) -> Variant:
        """Return the step as one graph for each function that trains."""
        if self.request.backend != "torch":
            raise _LeftOut("every step of this framework is a graph already")
        began, reported = time.perf_counter(), list[str]()
        step = api.build(
            self.built.plan,
            device=self.request.device,
            seed=self.request.chosen_seed,
            allow=self.request.allow,
            models=models,
            jit="step",
            report=reported.append,
        )
        seconds = time.perf_counter() - began
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = self._begin(JIT, self._name_set(step), seconds)
        eager = [each for each in step.notes if _EAGERLY in each]
        eager += [str(each.message) for each in caught if _EAGERLY in str(each.message)]
        compiled = [each for each in reported if each.startswith(_COMPILED)]
        if not compiled:
            raise _LeftOut("; ".join(eager) or "nothing was compiled")
        return replace(made, notes=(*compiled, *eager))

    def _begin(self, name: str, step: Step, seconds: float) -> Variant:
        """Take the first steps of a variant, and keep what they return."""
        run, number = self._cycle(name, step), max(COMPARED, self.multiple)
        outputs, began = list[Outputs](), time.perf_counter()
        for _ in range(number):
            given = run()
            if len(outputs) < COMPARED:
                outputs.append(self._read(given))
            self.meter.wait(given)
        taken = time.perf_counter() - began
        peak = self.meter.peak(lambda: [run() for _ in range(self.multiple)])
        return Variant(
            name=name,
            run=run,
            build_seconds=seconds,
            first_seconds=taken,
            steps=number,
            outputs=outputs,
            peak=peak,
        )

    def _cycle(self, name: str, step: Step) -> Run:
        """Return a step that takes the batches in turn; what one by hand raises is reported with its option."""
        feed = itertools.cycle(self.sample.batches)

        def run() -> object:
            """Take a step."""
            try:
                return step(next(feed))
            except Exception as error:
                if name in OURS:
                    raise
                help = f"it gets a dictionary of tensors: {', '.join(self.sample.shapes)}"
                raise self._loop(name).blame(error, "its step(batch) raised", help) from error

        return run

    def _read(self, given: object) -> Outputs:
        """Return what a step has returned, as arrays by name; what are no numbers is left out."""
        if not isinstance(given, Mapping):
            return {}
        held = cast("Mapping[object, object]", given)
        arrays = {str(name): self.meter.array(value) for name, value in held.items()}
        return {name: array for name, array in arrays.items() if array is not None}

    def _name_set(self, step: Callable[..., object]) -> Step:
        """Return a step that is given the data set of its batch, where ops distinguish them."""
        if not self.built.plan.program.datasets:
            return step
        return lambda batch: step(batch, dataset=dataset_of(batch))

    def _loop(self, name: str) -> Loop:
        return next(each for each in self.request.loops if each.name == name)


_EAGERLY, _COMPILED = "runs eagerly", "compiled "
"""What notes of a captured step say of a function, and how a report of one begins."""


def _time(workshop: _Workshop, variants: Mapping[str, Variant], left_out: Mapping[str, str]) -> Comparison:
    """Time the variants until all rounds are measured, or the user stops."""
    request, meter = workshop.request, workshop.meter
    wanted = request.baseline or next((loop.name for loop in request.loops), EMITTED)
    baseline = wanted if wanted in variants else BUILT
    slices = itertools.count(1)
    with Interrupt() as interrupt:

        def is_over() -> bool:
            """Show how many rounds have ended, and return whether the user has stopped the measurement."""
            ended = max(next(slices) // len(variants) - 1, 0)  # the first slice of each variant warms up
            request.tell(f"timing {', '.join(variants)}: {ended} of {counted(request.rounds, 'round')}")
            return interrupt.poll()

        timings = interleave(
            {name: each.run for name, each in variants.items()},
            baseline,
            rounds=request.rounds,
            slice_ms=request.slice_ms,
            seed=request.chosen_seed,
            multiple=workshop.multiple,
            stopwatch=Stopwatch(wait=meter.wait),
            is_over=is_over,
        )
    request.tell("")
    reference = variants[BUILT].outputs
    return Comparison(
        request=request,
        machine=meter.describe(),
        sample=workshop.sample,
        variants=variants,
        agreements={name: compare(each.outputs, reference) for name, each in variants.items() if name != BUILT},
        timings=timings,
        baseline=baseline,
        multiple=workshop.multiple,
        left_out=left_out,
        interrupted=interrupt.name,
    )
