"""What an audit asks of a framework: something that records."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from runtime.audit.trace import Trace
from runtime.engine.backend import needing
from runtime.port.tape import Tape

RECORDERS: Mapping[str, str] = {"torch": "runtime.backends.torch.audit.recorder:Recorder"}
"""By framework, what records a program; it is imported when an audit begins."""


class Enough(BaseException):
    """The steps that were asked for have been made. It is no Exception, so that the program does not handle it."""


@runtime_checkable
class Recorder(Protocol):
    """Records what a program does between `start` and `finish`, and changes nothing."""

    def start(self) -> None:
        """Begin to listen."""
        ...

    def start_tape(self) -> None:
        """Begin to listen, and note what the program makes of what as well."""
        ...

    def finish_tape(self, error: str = "") -> Tape:
        """Stop listening, let go of everything, and return the tape."""
        ...

    def finish(self, error: str = "") -> Trace:
        """Stop listening, let go of everything, and return the trace; ``error`` is what ended the program."""
        ...


def find_recorder(framework: str, steps: int | None) -> Recorder:
    """Return a recorder that stops a program after some steps of every optimizer, or not at all.

    Raises SpecError (GS217) where the framework is not installed.
    """
    module, _, attribute = RECORDERS[framework].partition(":")
    with needing("PyTorch", "torch"):
        recorder = getattr(importlib.import_module(module), attribute)(steps)
    assert isinstance(recorder, Recorder)
    return recorder
