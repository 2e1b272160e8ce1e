"""Warnings of the program, shown as without an audit: its own frames do not count among the callers."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from torch import nn
from torch.overrides import handle_torch_function

from runtime.backends.torch.audit.user_lines import is_recorder, is_runner, variables_of

_CALL = nn.Module._call_impl.__code__
_HANDING = handle_torch_function.__code__
_OWN_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def warn(
    original: Callable[..., None],
    message: Warning | str,
    category: type[Warning] | None = None,
    stacklevel: int = 1,
    source: Any = None,
    **options: Any,
) -> None:
    """Warn as `warnings.warn` does where no audit runs."""
    kind = type(message) if isinstance(message, Warning) else category or UserWarning
    if options or not (isinstance(kind, type) and issubclass(kind, Warning)):
        original(message, category, stacklevel, source, **options)
        return
    callers = _find_callers()
    frame, line = next(callers)
    for _ in range(stacklevel - 1):
        frame, line = next(callers, (None, 1))
    names = sys.__dict__ if frame is None else frame.f_globals
    warnings.warn_explicit(
        message,
        kind,
        "sys" if frame is None else frame.f_code.co_filename,
        line,
        names.get("__name__") or "<string>",
        names.setdefault("__warningregistry__", {}),
        names,
        source,
    )


def _find_callers() -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of the program with their lines, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    is_hooked, is_after_ours = False, True
    while frame is not None and not is_runner(frame.f_code):
        outer, code = frame.f_back, frame.f_code
        if code is _HANDING and is_after_ours and outer is not None:
            frame = outer.f_back  # the mode of the audit has called the same function again
            continue
        is_after_ours = is_recorder(code.co_filename)
        if is_hooked:
            is_hooked = False
            yield frame, _find_plain_line()
        elif code.co_qualname == "Module._call_impl.<locals>.inner" and outer is not None:
            module = variables_of(outer).get("self")
            is_hooked = not any(getattr(module, name, None) for name in _OWN_HOOKS)
            if not is_hooked:
                yield frame, frame.f_lineno
        elif not is_after_ours:
            yield frame, frame.f_lineno
        frame = outer


@functools.cache
def _find_plain_line() -> int:
    """Return the line at which a module without hooks calls its `forward`; those of the audit are hooks."""
    lines, first = inspect.getsourcelines(_CALL)
    return next(first + index for index, line in enumerate(lines) if "return forward_call(" in line)
