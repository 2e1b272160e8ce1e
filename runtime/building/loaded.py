"""Execution of emitted text: compiled under a name of its own, so that tracebacks show it."""

from __future__ import annotations

import itertools
import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Generic, Protocol, TypeVar, cast

from compiler.program import Program
from runtime.emission.module import Emitted
from runtime.support.clocks import Clock

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
    module = ModuleType(f"stepgraph_emitted_{next(_numbers)}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses look their module up while they are made
    try:
        exec(compile(emitted.text, file, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return Loaded(emitted=emitted, program=program, file=file, names=module.__dict__)
