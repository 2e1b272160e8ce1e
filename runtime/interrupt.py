"""Ctrl-C as a request: the first one lets the step under way finish, the second one stops at once."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self


class Interrupted(Exception):
    """Tell that the user stopped the work, and what became of it."""


class Interrupt:
    """While entered, tells whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        """Take over Ctrl-C."""
        self.before = signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give Ctrl-C back."""
        signal.signal(signal.SIGINT, self.before)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt("pressed twice")
        self.requested = True
