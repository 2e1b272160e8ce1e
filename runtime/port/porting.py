"""Port a script: record it, write the spec, and let both take the same steps."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from compiler import compile_step
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from graphspec.words import enumerate_words
from runtime.api import build
from runtime.audit.findings.catalogue import find_all, level_of
from runtime.audit.recording import find_recorder
from runtime.audit.session import run_script
from runtime.audit.trace import Draw, Update
from runtime.port.loop_iterations import Iteration, find_fired, find_iterations
from runtime.port.recorded_loop import Loop
from runtime.port.tape import Array, Derived, Stepped, Tape
from runtime.port.turns import split_turns
from runtime.port.values import TODO
from runtime.port.writing import Ported, Writer
from runtime.state import Plain, State
from runtime.step import Step, StepError

_MOST = 0.01
"""The part of the movement of a model by which steps that are the same may differ."""
_ASKED = ("warning", "question")
"""The levels of findings that may be meant."""
_ROUNDING = 16
"""How many last bits of a weight some steps may round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far the steps of the spec and those of the loop agree, from the same numbers."""

    steps: int
    losses: float
    """The greatest relative difference of a loss."""
    weights: float
    """The greatest difference of a parameter or buffer, relative to the greatest number of its tensor, from 1 up."""
    share: float
    """The greatest difference in a model beyond rounding, relative to how far its weights have moved at most."""
    dtype: str
    first: str
    """The first model that differs by more than rounding, in the trace."""

    @property
    def is_close(self) -> bool:
        """Return whether they agree up to rounding, which is small compared with how far the weights have moved."""
        is_small = max(self.losses, self.weights) <= (1e-8 if self.dtype == "float64" else 1e-4)
        return is_small and self.share <= _MOST


class Gap(NamedTuple):
    """How far a model is from that of the loop: as :class:`Agreement` has it."""

    model: str
    weights: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """What came of a script."""

    text: str
    todos: tuple[str, ...]
    questions: tuple[str, ...]
    agreement: Agreement | None
    problem: str = ""
    """Why the two were not compared."""


class NothingToPort(Exception):
    """A script has no steps that could be ported."""


def port_script(path: Path, arguments: Sequence[str], steps: int) -> tuple[Port, BaseException | None]:
    """Record some steps of a script and return its spec; and what ended the script, if it was no end of its own.

    Raises NothingToPort where the script took no step, KeyboardInterrupt where that ended it, and SpecError (GS217)
    where PyTorch is not installed.
    """
    recorder = find_recorder("torch", steps)
    recorder.start_tape()
    _main, problem, error = run_script(path, arguments)
    tape = recorder.finish_tape(error)
    if isinstance(problem, KeyboardInterrupt):
        raise problem
    if error and not any(True for _ in tape.trace.of(Update)):
        raise NothingToPort(f"the program ended with {error}")
    return port_tape(tape, re.sub(r"\W+", "-", path.stem) or "ported", path.name), problem


def port_tape(tape: Tape, name: str, file: str) -> Port:
    """Return the spec of a tape, and how far its steps agree with those on the tape."""
    parted, turns = split_turns(tape)
    iterations = find_iterations(parted)
    fired = find_fired(parted, iterations)
    if not any(fired.values()):
        raise NothingToPort("no optimizer took a step by the gradient of a recorded backward")
    last = max(each.iteration for fires in fired.values() for each in fires)
    whole = iterations[: last + 1]  # the end of the recording may have cut off one more
    stepping = {name: each for name, each in fired.items() if each}
    loop = Loop(tape=parted, iterations=whole, fired=stepping, turns=turns)
    iteration = max(loop.iterations, key=lambda each: (len(each.backwards), each.number))
    for drawn in ("named inputs", "inputs"):
        if not Writer(loop=loop, iteration=iteration, name=name).write().has_rows:
            loop = replace(loop, drawn=drawn)
    found = [(level_of(each), each) for each in find_all(tape.trace)]
    questions = tuple(f"{each.place}: {each.message}" for level, each in found if level in _ASKED)
    wrong = [f"{each.place}: error[{each.code}]: {each.message}" for level, each in found if level == "error"]
    fixed = replace(loop, has_rows=False)
    agreement, problem, todo = _try(loop, name, iteration)
    if todo and not (tried := _try(fixed, name, iteration))[2]:
        loop, (agreement, problem, todo) = fixed, tried
    if agreement is not None and not agreement.is_close:
        steps = [each for each in tape.entries if isinstance(each, Stepped) and agreement.first in loop.models_of(each)]
        where = f", first by the weights of {agreement.first} after {steps[0].place}" if steps else ""
        todo = f"its steps are not those of the loop{where}: something in it cannot be seen, or is left to do below"
    questions += Writer(loop=loop, iteration=iteration, name=name).write().questions
    first = (*([todo] if todo else []), *(f"mend the loop: {each}" for each in wrong))
    header = [
        f"Written by `stepgraph port {file}` from {len(loop.iterations)} of its steps; comments name its lines.",
        *(f"{TODO} {each}" for each in first),
        *(f"QUESTION {each}" for each in questions),
    ]
    written = Writer(loop=loop, iteration=iteration, name=name, header=header).write()
    todos = (*first, *written.todos)
    return Port(text=written.text, todos=todos, questions=questions, agreement=agreement, problem=problem)


def _try(loop: Loop, name: str, iteration: Iteration) -> tuple[Agreement | None, str, str]:
    """Return how far the spec of a loop agrees with it, why the two were not compared, and what must be done first."""
    try:
        compile_step(load(Writer(loop=loop, iteration=iteration, name=name).write().text))
        return _compare(loop, name, iteration), "", ""
    except (SpecError, StepError) as error:
        first = next(each for each in error.diagnostics if each.severity == "error")
        problem = f"error[{first.code}]: {first.message}"
        return None, problem, f"it does not run yet: {problem}"
    except NothingToPort as error:
        return None, str(error), ""


def _compare(loop: Loop, name: str, iteration: Iteration) -> Agreement:
    """Let the spec take the steps of the tape, with the values that it drew, and return how far the two agree."""
    tape = loop.tape
    if drawing := dict.fromkeys(each.model for each in tape.trace.of(Draw) if each.model):
        outer = [each for each in drawing if each in tape.models] or list(drawing)
        verb = "draws" if len(outer) == 1 else "draw"
        raise NothingToPort(f"{enumerate_words(outer, conjunction='and')} {verb} at random: the two have other numbers")
    ported = Writer(loop=loop, iteration=iteration, name=name, draws=True).write()
    dtype = "float64" if any(each.dtype == "float64" for each in tape.values) else "float32"
    spec = load(ported.text)
    modules = {
        own: copy.deepcopy(tape.models[other].module)
        for own, other in ported.models.items()
        if spec.models[own].class_ is not None
    }
    step = build(compile_step(spec), models=modules, dtype=dtype, device="cpu")
    # Let it begin with the numbers that the loop began with.
    state, begun = step.state(), tape.snapshots[0][1]
    arrays = dict(state.arrays)
    for own, other in ported.models.items():
        for number, inner in tape.models[other].tensors.items():
            key = f"models.{own}.{tape.models[other].prefix}{inner}"
            if number in begun and key in arrays:
                arrays[key] = begun[number].astype(arrays[key].dtype)
    counts = {**cast("Mapping[str, Plain]", state.counters["steps"]), "train": loop.ahead}
    counters: Mapping[str, Plain] = {**state.counters, "steps": counts}
    step.restore(State(arrays=arrays, counters=counters, backend=state.backend))
    losses, last, gaps, first = 0.0, dict[str, Array](), tuple[Gap, ...](), ""
    early = {own for own, other in ported.models.items() for each in loop.early if each.target == other}
    for each in loop.iterations:
        before = {key: value for key, value in step.state().arrays.items() if key.split(".")[1] in early}
        results = step(_find_batch(loop, each, ported, name, last))
        losses = max([losses, *_compare_losses(step, results, loop, each, ported)])
        gaps = tuple(_compare_weights({**step.state().arrays, **before}, loop, each, ported, dtype))
        if not first:
            apart = {gap.model for gap in gaps if gap.share > _MOST}
            stepped = (
                one for one in tape.entries if isinstance(one, Stepped) and each.first <= one.position < each.last
            )
            moved = [model for one in stepped for model in loop.models_of(one) & apart]
            first = next(iter((*moved, *sorted(apart))), "")
    return Agreement(
        steps=len(loop.iterations),
        losses=losses,
        weights=max((gap.weights for gap in gaps), default=0.0),
        share=max((gap.share for gap in gaps), default=0.0),
        dtype=dtype,
        first=first,
    )


def _compare_weights(
    arrays: Mapping[str, object], loop: Loop, iteration: Iteration, ported: Ported, dtype: str
) -> Iterator[Gap]:
    """Yield how far the weights of each model are from those of the loop after an iteration."""
    tape = loop.tape
    numbers = next((found for at, found in tape.snapshots if at >= iteration.last), dict[int, Array]())
    averages = {each.target for each in loop.averages if each.decay}
    for own, other in ported.models.items():
        weights = apart = moved = 0.0
        for number, inner in tape.models[other].tensors.items():
            if number not in numbers:
                continue
            meant = np.asarray(numbers[number], dtype="float64")
            found = np.asarray(arrays[f"models.{own}.{tape.models[other].prefix}{inner}"], dtype="float64")
            is_count = other in averages and numbers[number].dtype.kind in "iu"  # PyTorch averages these, too
            if meant.size and not is_count:
                gap, size = float(np.abs(found - meant).max()), max(1.0, float(np.abs(meant).max()))
                weights = max(weights, gap / size)
                apart = max(apart, gap - _ROUNDING * float(np.finfo(dtype).eps) * size)
                begun = tape.snapshots[0][1].get(number)
                moved = max(moved, float(np.abs(meant - begun).max()) if begun is not None else np.inf)
        yield Gap(model=other, weights=weights, share=apart / moved if moved else 0.0)


def _find_batch(
    loop: Loop, iteration: Iteration, ported: Ported, name: str, last: dict[str, Array]
) -> Mapping[str, object]:
    """Return the batch of an iteration; what it has no value for, because nothing asks for it, is the one before."""
    written = Writer(loop=loop, iteration=iteration, name=name, draws=True).write()
    same = {origin: written.inputs[key] for key, origin in written.origins.items()}
    for key, number in ported.inputs.items():
        found = same.get(ported.origins[key], written.inputs.get(key))
        if found is None and key in last:
            continue
        value = loop.tape.values[number if found is None else found]
        if value.data is None:
            raise NothingToPort(f"the numbers of '{key}' were not recorded")
        if (place := loop.rewritten.get(number)) is not None:
            raise NothingToPort(f"'{key}' is written in place at {place}: its numbers were not recorded")
        if (value.dtype, len(value.shape)) != (loop.tape.values[number].dtype, len(loop.tape.values[number].shape)):
            raise NothingToPort(f"'{key}' is another value in other steps")
        last[key] = value.data
    return dict(last)


def _compare_losses(
    step: Step, results: Mapping[str, object], loop: Loop, iteration: Iteration, ported: Ported
) -> list[float]:
    """Return the relative differences of the losses in an iteration."""
    numbers = {event.number for event in iteration.backwards}
    derived = {each.site: each for each in loop.tape.entries if isinstance(each, Derived) and each.backward in numbers}
    scales = {event.site: event.scale or 1.0 for event in iteration.backwards}
    found: list[float] = []
    for name, places in ported.losses.items():
        key = f"{name}.loss"
        seen = [place for place in places if place in derived]
        if key not in results or len(seen) != len(places):
            continue
        meant = sum(loss / scales[place] for place in seen for loss in derived[place].losses)
        value = float(step.numpy(results[key]).item())
        # The loop divides the loss of an update that accumulates.
        fires = next((loop.fired[optimizer] for optimizer, causes in loop.causes.items() if causes == places), ())
        windows = max((len(each.gathered) for each in fires), default=1)
        ratio = float(windows) if f"accumulate: {windows}" in ported.text else 1.0
        if not math.isnan(meant):
            found.append(abs(value - meant * ratio) / max(1.0, abs(meant * ratio)))
    return found
