"""Execution of emitted text: compiled under a name of its own, so that tracebacks show it."""

from __future__ import annotations

import itertools
import linecache
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Generic, Protocol, TypeVar, cast

from compiler.program import Program
from runtime.emission.module import Emitted
from runtime.support.clocks import Clock

KEPT = 64
"""How many pieces of support code are kept, the least used given up first."""
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
    names = _execute(emitted.own, file, _load_support(emitted.alone))
    return Loaded(emitted=emitted, program=program, file=file, names=names)


@lru_cache(maxsize=KEPT)
def _load_support(text: str) -> Mapping[str, object]:
    """Execute support code, once for all modules with the same.

    A framework may remember every class that it has ever seen, as TensorFlow does, and with a class all that its module
    holds: of a class in the module of a step that would be the step, with its weights and graphs.
    """
    file = f"<stepgraph support {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return {name: value for name, value in _execute(text, file, {}).items() if not name.startswith("__")}


def _execute(text: str, file: str, known: Mapping[str, object]) -> dict[str, object]:
    """Execute the text of a module in which some names are known, and return all its names."""
    module = ModuleType(f"stepgraph_emitted_{next(_numbers)}")
    module.__dict__.update(known)
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses look their module up while they are made
    try:
        exec(compile(text, file, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module.__dict__
