"""Execution of emitted text: compiled under a name of its own, so that tracebacks show it."""

from __future__ import annotations

import ast
import itertools
import linecache
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Generic, Protocol, TypeVar, cast

from compiler.ir.program import Program
from runtime.emission.imports import unite
from runtime.emission.module import Emitted
from runtime.emission.support import Support
from runtime.support.clocks import Clock

FUTURE = "from __future__ import annotations"
_numbers = itertools.count(1)
T = TypeVar("T")


class Startable(Protocol):
    """What a module's source of random numbers has."""

    def start(self, mode: str, number: int) -> None:
        """Key the draws of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[T]):
    """An emitted module that was executed: its globals, and what it takes to tell where its lines come from."""

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


def load_module(emitted: Emitted, program: Program) -> Loaded[object]:
    """Execute an emitted module and return it; its text is registered so that tracebacks can show it."""
    file, lines = f"<stepgraph {program.name}>", emitted.text.splitlines(keepends=True)
    while file in linecache.cache and linecache.getlines(file) != lines:
        file = f"<stepgraph {program.name} {next(_numbers)}>"
    linecache.cache[file] = (len(emitted.text), None, lines, file)
    module = _make_module()
    module.__dict__.update(_load_support(emitted.support, emitted.library))
    _execute(emitted.own, file, module)
    return Loaded(emitted=emitted, program=program, file=file, names=module.__dict__)


def _load_support(support: Support, library: str) -> Mapping[str, object]:
    """Return the definitions of support code; each is executed once, for all modules that use it.

    A framework may remember every class that it has ever seen, as TensorFlow does, and with a class all that its module
    holds: of a class in the module of a step that would be the step, with its weights and graphs. And functions that
    TensorFlow has traced need not be traced again for the next step.
    """
    module = _keep_module(library)
    missing = [each for each in support.definitions if each.name not in module.__dict__]
    if missing:
        file = f"<stepgraph support {next(_numbers)}>"
        imports = (ast.unparse(each) for each in unite(support.imports))
        text = "\n".join((FUTURE, *imports, *(f"\n\n{each.source}" for each in missing), ""))
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        _execute(text, file, module)
    return {each.name: module.__dict__[each.name] for each in support.definitions}


@cache
def _keep_module(library: str) -> ModuleType:
    """Return the module of a library's support code, with the definitions that were used so far."""
    return _make_module()


def _make_module() -> ModuleType:
    """Return an empty module with a name of its own."""
    return ModuleType(f"stepgraph_emitted_{next(_numbers)}")


def _execute(text: str, file: str, module: ModuleType) -> None:
    """Execute a text in a module."""
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses look their module up while they are made
    try:
        exec(compile(text, file, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
