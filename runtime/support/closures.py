"""Copies of objects that keep functions made inside them: such a function is to read the copy, not the original."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import cast


@contextmanager
def bound_again(owners: Iterable[object], memo: dict[int, object]) -> Generator[None]:
    """Make the functions in attributes of some objects anew, over what is deep-copied inside with this memo.

    ``copy.deepcopy`` keeps functions as they are: ``self.act = lambda x: self.layer(x)`` would call the original's.
    """
    seen: dict[int, object] = {}
    for owner in owners:
        see_values([*vars(owner).values()], seen)
    functions = [each for each in seen.values() if isinstance(each, FunctionType)]
    memo.update({id(each): blank_closure(each) for each in functions})
    yield
    for function in functions:
        made = cast("FunctionType", memo[id(function)])
        for cell, new in zip(function.__closure__ or (), made.__closure__ or (), strict=True):
            if cell != CellType():  # one that is not bound yet
                new.cell_contents = in_copy(cell.cell_contents, memo)


def see_values(values: Iterable[object], seen: dict[int, object]) -> None:
    """Find containers and functions over variables of others among values and in what they hold, by their ids."""
    for value in values:
        inner: Iterable[object] | None = None
        key = id(value)
        if isinstance(value, MethodType):
            inner = [value.__func__]
        elif isinstance(value, partial):
            inner = [cast("object", value.func), *value.args]
        elif type(value) in (dict, OrderedDict):
            inner = cast("dict[object, object]", value).values()
        elif type(value) in (list, tuple):
            inner = cast("Sequence[object]", value)
        elif isinstance(value, FunctionType) and value.__closure__:
            inner = [cell.cell_contents for cell in value.__closure__ if cell != CellType()]
        if inner is not None and key not in seen:
            seen[key] = cast("object", value)
            see_values(inner, seen)


def blank_closure(function: FunctionType) -> FunctionType:
    """Return a function of the same code, of which no variable is bound yet."""
    cells = tuple(CellType() for _ in function.__closure__ or ())
    made = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    return made


def in_copy(value: object, memo: dict[int, object]) -> object:
    """Return what a variable is in a copy: the copy's part for a part of the original, else what it was.

    What several functions share, as a dictionary that one fills and another reads, their copies share, too.
    """
    key = id(value)
    if key in memo:
        return memo[key]
    if isinstance(value, MethodType):
        return getattr(in_copy(value.__self__, memo), value.__name__)
    if type(value) is dict:
        made: dict[object, object] = {}
        memo[key] = made
        made.update({name: in_copy(each, memo) for name, each in cast("dict[object, object]", value).items()})
        return made
    if type(value) is list:
        items: list[object] = []
        memo[key] = items
        items.extend(in_copy(each, memo) for each in cast("list[object]", value))
        return items
    if type(value) is tuple:
        return tuple(in_copy(each, memo) for each in cast("tuple[object, ...]", value))
    return value
