"""The arguments that a module was made with, found again among its attributes and tried out."""

from __future__ import annotations

import contextlib
import inspect
import io
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import nn

_PLAIN = (bool, int, float, str)


def find_arguments(module: nn.Module) -> Mapping[str, Any] | None:
    """Return arguments with which the class makes the same module, but for its weights; None where none are found.

    Those that have no default are looked for among the attributes of the same name, then those that differ from theirs.
    What is made counts as the same if it prints alike, and has the same shapes and plain attributes.
    """
    try:
        parameters = inspect.signature(type(module)).parameters.values()
    except (TypeError, ValueError):
        return None
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    needed = [each.name for each in named if each.default is each.empty]
    values = ((each.name, getattr(module, each.name, None)) for each in named)
    known = {name: _as_list(value) for name, value in values if _is_plain(value)}
    if not known.keys() >= {*needed}:
        return None
    others = [each.name for each in named if each.name in known and known[each.name] != _as_list(each.default)]
    for names in (needed, others):
        given = {name: known[name] for name in names}
        with _unheard():
            try:
                made = type(module)(**given)
            except Exception:
                continue
            if _describe(made) == _describe(module):
                return given
    return None


def _is_plain(value: object) -> bool:
    """Return whether a value can be written in a spec: a number, a text, or a list of these."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(each, _PLAIN) for each in cast("Sequence[object]", value))
    return isinstance(value, _PLAIN)


def _as_list(value: Any) -> Any:
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def _describe(module: nn.Module) -> tuple[object, ...]:
    shapes = {name: tuple(each.shape) for name, each in module.state_dict().items()}
    plain = {name: _as_list(each) for name, each in vars(module).items() if _is_plain(each) and name != "training"}
    return repr(module), shapes, plain


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """Leave random numbers as they are, and show nothing of what is printed."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]), contextlib.redirect_stdout(io.StringIO()):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
