"""Reading and compiling build what only grows: a garbage collector would scan it again and again, and find nothing."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def paused_collection() -> Generator[None]:
    """Pause Python's collector of cycles; what is not in a cycle is freed as always."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
