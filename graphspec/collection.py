"""Reading, compiling and building make what only grows: a garbage collector would scan it again and again in vain."""

from __future__ import annotations

import gc
from contextlib import ContextDecorator
from threading import Lock


class _PausedCollection(ContextDecorator):
    """The pause of a collector that belongs to the process: it resumes when the last thread is done."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._depth = 0
        self._was_enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._was_enabled:
                gc.enable()


paused_collection = _PausedCollection()
"""Pauses Python's collector of cycles, as a context or a decorator; what is not in a cycle is freed as always."""
