"""Execution of emitted text: compiled under a unique file name, so that tracebacks show it."""

from __future__ import annotations

import ast
import itertools
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Generic, Protocol, TypeVar, cast

from msgspec import Struct

from compiler.ir.instructions import Evaluate, Forward, Transform
from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Span
from runtime.codegen.module import Emitted, unite
from runtime.codegen.resources import find_functions, find_uses
from runtime.codegen.scope import is_write
from runtime.codegen.support_code import Support
from runtime.support.clocks import Clock

FUTURE = "from __future__ import annotations"
_numbers = itertools.count(1)
_libraries: dict[str, ModuleType] = {}
"""The module of every library's support code, with the definitions used so far."""
T = TypeVar("T")


class Startable(Protocol):
    """The interface of a module's source of random numbers."""

    def start(self, mode: str, number: int) -> None:
        """Key the draws of a step."""


class Loaded(Struct, Generic[T], frozen=True, kw_only=True):
    """An emitted module that was executed: its globals, and what maps its lines to the spec."""

    emitted: Emitted
    program: Program
    file: str
    names: dict[str, T]

    def call(self, function: str, *arguments: object, **keywords: object) -> T:
        """Call one of the module's functions."""
        called = cast("Callable[..., T]", self.names[function])
        return called(*arguments, **keywords)

    def start(self, mode: str) -> None:
        """Key the draws of a function that is called by itself, as ``step`` would."""
        if "clock" in self.names:
            cast("Clock", self.names["clock"]).start(mode)
        if "random" in self.names:
            cast("Startable", self.names["random"]).start(mode, 1)


def load_module(emitted: Emitted, program: Program, *, alone: bool = False) -> Loaded[object]:
    """Execute an emitted module and return it; its text is registered so that tracebacks can show it.

    ``alone``: with support code of its own. A compiler that follows calls looks up globals of one module.
    """
    file, lines = f"<stepgraph {program.name}>", emitted.text.splitlines(keepends=True)
    while file in linecache.cache and linecache.getlines(file) != lines:
        file = f"<stepgraph {program.name} {next(_numbers)}>"
    linecache.cache[file] = (len(emitted.text), None, lines, file)
    module = _make_module()
    if not alone:
        module.__dict__.update(_load_support(emitted.support, emitted.library))
    _execute(emitted.text if alone else emitted.own, file, module)
    return Loaded(emitted=emitted, program=program, file=file, names=module.__dict__)


def _load_support(support: Support, library: str) -> Mapping[str, object]:
    """Return the definitions of support code; each is executed once, for all modules that use it.

    A framework may keep every class alive that it has ever seen, as TensorFlow does, and with it all globals of the
    class's module: in the module of a step these are the step itself, with its weights and graphs. Besides, functions
    that TensorFlow has traced need not be traced again for the next step.
    """
    module = _libraries.setdefault(library, _make_module())
    missing = [each for each in support.definitions if each.name not in module.__dict__]
    if missing:
        file = f"<stepgraph support {next(_numbers)}>"
        imports = (ast.unparse(each) for each in unite(support.imports))
        text = "\n".join((FUTURE, *imports, *(f"\n\n{each.source}" for each in missing), ""))
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        _execute(text, file, module)
    return {each.name: module.__dict__[each.name] for each in support.definitions}


def _make_module() -> ModuleType:
    """Return an empty module with a unique name."""
    return ModuleType(f"stepgraph_emitted_{next(_numbers)}")


def _execute(text: str, file: str, module: ModuleType) -> None:
    """Execute a text in a module."""
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses look up their module while they are created
    try:
        exec(compile(text, file, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]


Call = Forward | Evaluate | Transform
"""The instructions that may call user code."""


def name_subject(spec: GraphSpec, name: str) -> str:
    """Return how a message calls an op, model or input."""
    for kind, known in (("op", spec.ops), ("model", spec.models), ("input", spec.inputs)):
        if name in known:
            return f"{kind} '{name}'"
    return "the step"


def find_span(spec: GraphSpec, name: str) -> Span | None:
    """Return where an op, model or input is declared; None for names that are not in the spec."""
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
    """Return whether a step that raised had already changed state that outlives it.

    This follows from the line of the emitted module at which it stopped. Where functions are ``traced``, an error
    inside one comes from building a graph, which changes nothing; a graph that runs counts as one write.
    """
    functions = loaded.program.mode(mode).functions
    if not any(is_write(each) for function in functions for each in function.instructions):
        return False
    names = loaded.emitted.names
    called = {"step", *(names.function(each.name) for each in functions)}  # not the support code in the same file
    stops = [each for each in find_stops(error, loaded) if each[0].f_code.co_qualname in called]
    if not stops:
        return True  # interrupted between the step and its caller
    frame, line = stops[-1]
    if traced and frame.f_code.co_name != "step":
        return False
    return any(frame.f_code.co_firstlineno < each <= line for each in loaded.emitted.writes)


def find_stops(error: BaseException, loaded: Loaded[object]) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of the emitted module that an error passed through, each with its line there."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == loaded.file:
            yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def find_frames(error: BaseException, loaded: Loaded[object]) -> Iterator[FrameType]:
    """Yield the frames of the emitted module that an error passed through."""
    yield from (frame for frame, _ in find_stops(error, loaded))
