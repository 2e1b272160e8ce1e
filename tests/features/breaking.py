"""Functions of a user that raise where a test says so, and interrupts at any line of an emitted module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

FAILING: set[str] = set()
"""The functions that raise."""


class Unlucky(Exception):
    """What the functions raise."""


def first(x: Any) -> Any:
    """Return a tensor, or raise."""
    return _pass("first", x)


def second(x: Any) -> Any:
    """Return a tensor, or raise."""
    return _pass("second", x)


def third(x: Any) -> Any:
    """Return a tensor, or raise."""
    return _pass("third", x)


def _pass(name: str, x: Any) -> Any:
    """Return a tensor; raise Unlucky where the function is to fail, in a graph of TensorFlow when that runs."""
    if type(x).__module__.startswith("torch"):
        _raise(name)
        return x * 1.0
    import tensorflow as tf

    def look(value: Any) -> Any:
        """Raise, or return the value."""
        _raise(name)
        return value

    return tf.ensure_shape(tf.py_function(look, [x], x.dtype), x.shape) + 0.0 * x


def _raise(name: str) -> None:
    if name in FAILING:
        raise Unlucky(name)


@contextmanager
def failing(name: str) -> Iterator[None]:
    """Let one of the functions raise."""
    FAILING.add(name)
    try:
        yield
    finally:
        FAILING.discard(name)


class Interrupt:
    """Counts the lines of emitted modules that run, and raises KeyboardInterrupt at one of them."""

    def __init__(self, at: int = -1) -> None:
        self.at, self.count = at, 0

    def __enter__(self) -> Interrupt:
        self.before = sys.gettrace()
        self.recording = "torch" not in sys.modules or sys.modules["torch"].is_grad_enabled()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)
        if "torch" in sys.modules:  # Python leaves no context that is interrupted at its own line
            sys.modules["torch"].set_grad_enabled(self.recording)

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        """Follow frames of emitted code line by line."""
        if not frame.f_code.co_filename.startswith("<stepgraph"):
            return None
        if event == "line":
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt
        return self.trace
