"""Ctrl-C and SIGTERM as a request: the first lets the step under way finish, a second Ctrl-C stops immediately."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """The user stopped the work; the message says what became of it."""


class Interrupt:
    """While entered, records whether Ctrl-C was pressed, or the process was asked to end."""

    def __init__(self) -> None:
        self.requested = False
        self.name = ""
        """The signal that asked."""

    def __enter__(self) -> Self:
        """Install the signal handlers."""
        self.before = {number: signal.signal(number, self._request) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the signal handlers."""
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
    """Let SIGTERM end the block as Ctrl-C does, with its cleanup."""

    def stop(number: int, frame: FrameType | None) -> None:
        """End what runs."""
        raise KeyboardInterrupt("asked to end")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
