"""Training steps that somebody wrote by hand: functions in files that the user names."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from graphspec.diagnostics import SpecError
from graphspec.words import closest
from runtime.problems import describe, problem, raised_in

Step = Callable[[Mapping[str, object]], object]
"""A step: takes a batch, and returns its outputs by name."""
CODE = "GS278"
_FORM = re.compile(r"(?P<name>[\w.-]+)=(?P<file>.+\.py):(?P<function>[^\W\d]\w*)", re.ASCII)
_SHOWN = 8
_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A loop by hand: its name in the table, and the function that makes its step out of models."""

    name: str
    file: Path
    function: str

    def __str__(self) -> str:
        """Return the option that names it."""
        return f"--loop {self.name}={self.file}:{self.function}"

    def load(self) -> Callable[[Mapping[str, object]], object]:
        """Import the file and return the function. Raises SpecError: GS278 where that fails."""
        if not self.file.is_file():
            raise self.refuse(f"there is no file {str(self.file)!r}", help="a path is relative to the current folder")
        name = f"stepgraph_loop_{next(_numbers)}"
        spec = importlib.util.spec_from_file_location(name, self.file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look up their module
        try:
            spec.loader.exec_module(module)
        except SyntaxError as error:
            raise self.refuse(
                f"{self.file}:{error.lineno} is not valid Python: {error.msg}", help="correct that line"
            ) from error
        except (Exception, SystemExit) as error:
            help = "keep what trains below `if __name__ == '__main__':`, so that the file can be imported"
            raise self.blame(error, f"importing {str(self.file)!r} raised", help) from error
        found: object = getattr(module, self.function, None)
        if not callable(found):
            own = [name for name, each in vars(module).items() if getattr(each, "__module__", None) == module.__name__]
            near = closest(self.function, own, 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            has = f"it defines {', '.join(own[:_SHOWN])}" if own else "it defines no function"
            raise self.refuse(f"{str(self.file)!r} has no function {self.function!r}{meant}", help=has)
        return found

    def make(self, make: Callable[[Mapping[str, object]], object], models: Mapping[str, object]) -> Step:
        """Return the step of the loop over its own models. Raises SpecError: GS278 where that fails."""
        try:
            made = make(models)
        except Exception as error:
            named = ", ".join(models)
            help = f"it gets a dictionary of the models of the spec: {named or 'none'}"
            raise self.blame(error, f"{self.function}(models) raised", help) from error
        if not callable(made):
            message = f"{self.function}(models) returned {type(made).__name__}"
            raise self.refuse(message, help="return a function `step(batch)`, which takes one step")
        return cast("Step", made)

    def refuse(self, message: str, *, notes: tuple[str, ...] = (), help: str = "") -> SpecError:
        """Return the error of the loop, which names its option."""
        return problem(CODE, f"`{self}`: {message}", notes=notes, help=help)

    def blame(self, error: BaseException, doing: str, help: str) -> SpecError:
        """Return the error of what the user's code raised, with its lines."""
        return self.refuse(f"{doing} {describe(error)}", notes=raised_in(error), help=help)


def read_loop(text: str) -> Loop:
    """Return the loop that `NAME=FILE.py:FUNCTION` names; raise ValueError for another text."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form NAME=FILE.py:FUNCTION")
    return Loop(name=match["name"], file=Path(match["file"]), function=match["function"])


@contextmanager
def importable_beside(loops: Iterable[Loop]) -> Generator[None]:
    """Let files of loops import what lies next to them within the block, after everything installed."""
    before = list(sys.path)
    sys.path += [str(loop.file.resolve().parent) for loop in loops]
    try:
        yield
    finally:
        sys.path[:] = before
