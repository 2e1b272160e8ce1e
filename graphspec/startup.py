"""What keeps commands fast: names of packages are imported on first use (PEP 562), and garbage collection is paused."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from threading import Lock


class _PausedCollection(ContextDecorator):
    """The pause of a collector that belongs to the process: it resumes when the last thread is done.

    Reading, compiling and building make what only grows, and it would scan that again and again.
    """

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


def import_lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that offers names of its modules.

    ``homes`` has for each name ``module:name``. A command imports only what it uses: `--help` needs no declarations.
    """

    def get(name: str) -> object:
        """Import a name, and keep it in the package."""
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].partition(":")
        with paused_collection:
            found: object = getattr(importlib.import_module(module), attribute)
        setattr(sys.modules[package], name, found)
        return found

    def listing() -> list[str]:
        """Return the names that there are, for completion."""
        return sorted({*vars(sys.modules[package]), *homes})

    return get, listing
