"""Attribution: to which op of a spec, and to which place in it, a line of an emitted module belongs."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from types import FrameType

from compiler.ir.instructions import Evaluate, Forward, Instruction, Transform
from compiler.ir.program import Program
from graphspec.diagnostics import Span
from graphspec.graph import GraphSpec
from runtime.building.loaded import Loaded
from runtime.effects import find_functions, find_uses
from runtime.emission.scope import is_write

Call = Forward | Evaluate | Transform
"""The instructions that may call a user's code."""


def name_subject(spec: GraphSpec, name: str) -> str:
    """Return how a message calls an op, model or input."""
    for kind, known in (("op", spec.ops), ("model", spec.models), ("input", spec.inputs)):
        if name in known:
            return f"{kind} '{name}'"
    return "the step"


def find_span(spec: GraphSpec, name: str) -> Span | None:
    """Return where an op, model or input is declared; None for what no spec names."""
    for kind, known in (("ops", spec.ops), ("models", spec.models), ("inputs", spec.inputs)):
        if name in known:
            return spec.span(kind, name, key=True)
    return None


def find_op(error: BaseException, loaded: Loaded[object]) -> str:
    """Return the op of the last line of the emitted module that an error went through and that belongs to one."""
    frames = traceback.extract_tb(error.__traceback__)
    return find_named(((frame.filename, frame.lineno or 0) for frame in frames), loaded)


def find_named(lines: Iterable[tuple[str, int]], loaded: Loaded[object]) -> str:
    """Return the op of the last of some lines, each (file, number), that belongs to one; empty where none does."""
    places = loaded.emitted.places
    known = [places[line][0] for file, line in lines if file == loaded.file and line in places]
    return known[-1] if known else ""


def find_caller(frame: FrameType | None, loaded: Loaded[object]) -> tuple[FrameType, str] | None:
    """Return the innermost frame of the emitted module that works on an op, from a frame outwards, and the op."""
    while frame is not None:
        if frame.f_code.co_filename == loaded.file and frame.f_lineno in loaded.emitted.places:
            return frame, loaded.emitted.places[frame.f_lineno][0]
        frame = frame.f_back
    return None


def find_arguments(frame: FrameType, op: str, loaded: Loaded[object]) -> Iterator[tuple[Call, str, object]]:
    """Yield what the calls of an op are given, as (instruction, name, value), out of a frame of the emitted module."""
    names = loaded.emitted.names
    running = (each for each in find_functions(loaded.program) if names.function(each.name) == frame.f_code.co_name)
    for instruction in (instruction for function in running for instruction in function.instructions):
        if isinstance(instruction, (Forward, Evaluate, Transform)) and instruction.op == op:
            for name in find_uses(instruction):
                yield instruction, name, frame.f_locals.get(names.value(name))


def has_begun(error: BaseException, loaded: Loaded[object], mode: str, *, traced: bool) -> bool:
    """Return whether a step that raised had begun to change what outlives it.

    The line of the emitted module at which it stopped tells. Where functions are ``traced``, an error inside one comes
    from making a graph, which changes nothing; a graph that runs counts as one write.
    """
    functions = loaded.program.mode(mode).functions
    if not any(is_write(each) for function in functions for each in function.instructions):
        return False
    stops = list(find_stops(error, loaded))
    if not stops:
        return True  # interrupted between the step and who called it
    frame, line = stops[-1]
    if traced and frame.f_code.co_name in {loaded.emitted.names.function(each.name) for each in functions}:
        return False
    return any(frame.f_code.co_firstlineno < each <= line for each in loaded.emitted.writes)


def find_stops(error: BaseException, loaded: Loaded[object]) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of the emitted module that an error went through, each with the line at which it did."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == loaded.file:
            yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def find_instructions(program: Program) -> Iterator[Instruction]:
    """Yield the instructions of all functions."""
    for function in find_functions(program):
        yield from function.instructions


def find_frames(error: BaseException, loaded: Loaded[object]) -> Iterator[FrameType]:
    """Yield the frames of the emitted module that an error went through."""
    yield from (frame for frame, _ in find_stops(error, loaded))
