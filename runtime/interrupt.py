"""Ctrl-C and SIGTERM as a request: the first lets the step under way finish, a second Ctrl-C stops immediately."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """The user stopped the work; the message says what became of it."""


class AskedToEnd(KeyboardInterrupt):
    """SIGTERM has ended the work as Ctrl-C does."""


class Interrupt:
    """While entered, records whether Ctrl-C was pressed, or the process was asked to end.

    ``agree``: gives the maximum over all processes of a run, so that all end after the same step.
    ``is_over``: whether the run has ended already, in another process; a signal then ends this one at once.
    """

    def __init__(
        self, agree: Callable[[int], int] = lambda number: number, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self.requested = False
        self.name = ""
        """The signal that asked."""
        self._asked = 0
        self._agree, self._is_over = agree, is_over

    def poll(self) -> bool:
        """Return whether an end is requested, of any process; all of them ask at the same point of a run."""
        if not self.requested and (number := self._agree(self._asked)):
            self.requested, self.name = True, signal.Signals(number).name
        return self.requested

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
        if self._asked and number == signal.SIGINT:
            raise KeyboardInterrupt("pressed twice")
        self.ask(signal.Signals(number).name)
        if self._is_over():
            raise KeyboardInterrupt("another process has ended the run")

    def ask(self, name: str) -> None:
        """Ask for an end by the name of a signal."""
        self._asked = signal.Signals[name].value


@contextmanager
def terminable() -> Generator[None]:
    """Let SIGTERM end the block as Ctrl-C does, with its cleanup, by AskedToEnd."""

    def stop(number: int, frame: FrameType | None) -> None:
        """End what runs."""
        raise AskedToEnd("asked to end")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
