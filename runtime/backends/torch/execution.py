"""Execution of emitted text: compiled under a name of its own, so that tracebacks show it."""

from __future__ import annotations

import itertools
import linecache
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

import torch

from compiler.program import Evaluate, Forward, Gradient, Instruction, Program, Transform
from graphspec.diagnostics import Diagnostic, Span
from graphspec.graph import GraphSpec
from runtime.backends.torch.emission.module import Emitted
from runtime.backends.torch.messages import find_unused, interpret
from runtime.effects import find_functions, find_uses
from runtime.frames import describe, raised_in
from runtime.step import StepError

Call = Forward | Evaluate | Transform
"""The instructions that may call a user's code."""
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An emitted module that was executed: its globals, and what it takes to tell where its lines come from."""

    emitted: Emitted
    program: Program
    file: str
    names: dict[str, Any]

    def call(self, function: str, *arguments: object, **keywords: object) -> Any:
        """Call one of the module's functions."""
        return self.names[function](*arguments, **keywords)

    def start(self, mode: str) -> None:
        """Key the draws of a function that is called by itself, as ``step`` would."""
        if "clock" in self.names:
            self.names["clock"].start(mode)
        if "random" in self.names:
            self.names["random"].start(mode, 1)


def load_module(emitted: Emitted, program: Program) -> Loaded:
    """Execute an emitted module and return it; its text is registered so that tracebacks can show it."""
    file, lines = f"<stepgraph {program.name}>", emitted.text.splitlines(keepends=True)
    while file in linecache.cache and linecache.getlines(file) != lines:
        file = f"<stepgraph {program.name} {next(_numbers)}>"
    linecache.cache[file] = (len(emitted.text), None, lines, file)
    module = ModuleType(f"stepgraph_emitted_{next(_numbers)}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses look their module up while they are made
    try:
        exec(compile(emitted.text, file, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return Loaded(emitted=emitted, program=program, file=file, names=module.__dict__)


def call_checked(loaded: Loaded, spec: GraphSpec, function: str, *arguments: object) -> Any:
    """Call one of the module's functions; raise StepError with its place in the spec where it fails."""
    try:
        return loaded.call(function, *arguments)
    except Exception as error:
        found = diagnose(error, loaded, spec)
    raise StepError([found], spec.texts())


def diagnose(error: Exception, loaded: Loaded, spec: GraphSpec) -> Diagnostic:
    """Return what to tell the user of an error raised inside the emitted module.

    GS210 where the user's own code raised, with the user's frames; GS211 where an operation of the step failed; GS212
    where a loss does not reach all it is differentiated by; GS261 and GS262 from the checks of a debug build.
    """
    if _is_finding(error, loaded):
        return _tell_finding(error, spec)
    op = find_op(error, loaded)
    subject, span = _name_subject(spec, op), find_span(spec, op)
    message, notes, help = interpret(error)
    raised = raised_in(error)
    if raised:
        message, notes = f"{subject} raised {describe(error)}", (*_name_arguments(error, loaded, op), *raised)
        help = help or "the error comes from your code: the last line under `raised in`"
        return Diagnostic(code="GS210", message=message, span=span, notes=notes, help=help)
    message = f"{subject} failed: {message}"
    path = _find_misused(error, spec, op)
    if path is not None:
        span, help = spec.span("models", op, "args"), f"compare `args` with what {path} takes"
    unused = _name_unused(error, loaded, op)
    code = "GS212" if unused else "GS211"
    return Diagnostic(code=code, message=message, span=span, notes=unused or notes, help=help)


def _is_finding(error: Exception, loaded: Loaded) -> bool:
    """Return whether an error is what the checks of a debug build found."""
    kind = loaded.names.get("Finding")
    return kind is not None and isinstance(error, kind)


def _tell_finding(found: Any, spec: GraphSpec) -> Diagnostic:
    """Return what the checks of a debug build found, at the place of the op it began with."""
    span = find_span(spec, found.op)
    return Diagnostic(code=found.code, message=found.message, span=span, notes=found.notes, help=found.remedy)


def _find_misused(error: Exception, spec: GraphSpec, name: str) -> str | None:
    """Return the class of a model whose constructor does not take what the spec gives it."""
    model = spec.models.get(name)
    path = None if model is None else model.class_path("torch")
    if path is None or not isinstance(error, TypeError):
        return None
    return path if f"{path.partition(':')[2]}.__init__()" in str(error) else None


def _name_subject(spec: GraphSpec, name: str) -> str:
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


def find_op(error: BaseException, loaded: Loaded) -> str:
    """Return the op of the last line of the emitted module that an error went through and that belongs to one."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno or 0 for frame in frames if frame.filename == loaded.file]
    known = [loaded.emitted.places[line][0] for line in lines if line in loaded.emitted.places]
    return known[-1] if known else ""


def find_caller(frame: FrameType | None, loaded: Loaded) -> tuple[FrameType, str] | None:
    """Return the innermost frame of the emitted module that works on an op, from a frame outwards, and the op."""
    while frame is not None:
        if frame.f_code.co_filename == loaded.file and frame.f_lineno in loaded.emitted.places:
            return frame, loaded.emitted.places[frame.f_lineno][0]
        frame = frame.f_back
    return None


def find_arguments(frame: FrameType, op: str, loaded: Loaded) -> Iterator[tuple[Call, str, object]]:
    """Yield what the calls of an op are given, as (instruction, name, value), out of a frame of the emitted module."""
    for instruction in _instructions(loaded.program):
        if isinstance(instruction, (Forward, Evaluate, Transform)) and instruction.op == op:
            for name in find_uses(instruction):
                yield instruction, name, frame.f_locals.get(loaded.emitted.names.value(name))


def _name_arguments(error: BaseException, loaded: Loaded, op: str) -> tuple[str, ...]:
    """Return a note with the shapes and types of what an op was called with."""
    given = {
        name: f"{name}: {value.dtype} {list(value.shape)}".replace("torch.", "")
        for frame in _frames(error, loaded)
        for _, name, value in find_arguments(frame, op, loaded)
        if isinstance(value, torch.Tensor)
    }
    return (f"called with {', '.join(given.values())}",) if given else ()


def _name_unused(error: BaseException, loaded: Loaded, op: str) -> tuple[str, ...]:
    """Return a note with the parameters that a loss does not reach, where that is what a gradient failed on."""
    if "not have been used in the graph" not in str(error):
        return ()
    found = [each for each in _instructions(loaded.program) if isinstance(each, Gradient) and each.op == op]
    for frame in _frames(error, loaded):
        for gradient in found[:1]:
            loss = frame.f_locals.get(loaded.emitted.names.value(gradient.loss))
            models = {name: loaded.names["MODELS"][name] for name in gradient.models}
            if isinstance(loss, torch.Tensor) and (unused := find_unused(loss, models)):
                return (f"'{gradient.loss}' does not depend on {', '.join(unused)}",)
    return ()


def _instructions(program: Program) -> Iterator[Instruction]:
    """Yield the instructions of all functions."""
    for function in find_functions(program):
        yield from function.instructions


def _frames(error: BaseException, loaded: Loaded) -> Iterator[FrameType]:
    """Yield the frames of the emitted module that an error went through."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == loaded.file:
            yield trace.tb_frame
        trace = trace.tb_next
