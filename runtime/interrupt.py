"""Ctrl-C and SIGTERM as a request: the first lets the step under way finish, a second Ctrl-C stops at once."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """Tell that the user stopped the work, and what became of it."""


class Interrupt:
    """While entered, tells whether Ctrl-C was pressed, or the process was asked to end."""

    def __init__(self) -> None:
        self.requested = False
        self.name = ""
        """The signal that asked."""

    def __enter__(self) -> Self:
        """Take over the signals."""
        self.before = {number: signal.signal(number, self._request) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt("pressed twice")
        self.ask(signal.Signals(number).name)

    def ask(self, name: str) -> None:
        """Ask for an end by the name of a signal."""
        self.requested = True
        self.name = name


@contextmanager
def terminable() -> Generator[None]:
    """Let SIGTERM end what runs inside as Ctrl-C does: with what is under way cleaned up."""

    def stop(number: int, frame: FrameType | None) -> None:
        """End what runs."""
        raise KeyboardInterrupt("asked to end")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
