"""State: everything that training changes, by name, as arrays of the host and plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from graphspec.diagnostics import SpecError
from runtime.problems import problem

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.generic]
    Leaf: TypeAlias = np.generic | Array
else:
    Array = Leaf = object

Plain: TypeAlias = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
"""Plain data as in JSON; numbers that are not finite are refused."""
Tree: TypeAlias = "None | bool | int | float | str | Leaf | list[Tree] | tuple[Tree, ...] | Mapping[str, Tree]"
"""Plain data with arrays anywhere in it; numpy's scalars and tuples are read back as numbers and lists."""


class PlainModel(BaseModel):
    """A part of a file or a state that is plain data: frozen, and without conversions between types.

    Keys that it does not declare are ignored: what a later version adds need not be read.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    @classmethod
    def read(cls, plain: object) -> Self:
        """Return the model in plain data; raise ValueError, with the path, for the first field that does not fit."""
        try:
            return cls.model_validate(plain)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path, message = ".".join(map(str, first["loc"])), first["msg"]
            raise ValueError(f"{path!r}: {message[0].lower()}{message[1:]}") from None


ARRAY, ESCAPED = "array", "plain"
"""The key of a mapping that represents an array, and of one that represents a mapping with one of these keys."""

INTEGERS = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
KEPT = INTEGERS | {"bool", "float16", "float32", "float64"}
"""The types of arrays that a checkpoint keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rows that a process has of an array: those from ``begin`` on, of an array of this shape."""

    begin: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything that training changes, in the same form for every backend.

    A step can restore the state of a step of the other backend if its models, optimizers and metrics are built in.

    >>> from compiler import compile_step
    >>> from graphspec import load
    >>> from runtime import build
    >>> plan = compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
    >>> state = build(plan, device="cpu").state()
    >>> state.arrays["models.generator.0.weight"].shape, state.backend
    ((128, 16), 'torch')
    """

    arrays: Mapping[str, Array] = field(default_factory=dict[str, "Array"])
    """Arrays by name: ``models.<model>.<tensor>``, ``optimizers.<optimizer>.<slot>.<tensor>``, ``state.<name>``,
    ``metrics.<mode>.<op>.<field>``."""
    counters: Mapping[str, Plain] = field(default_factory=dict[str, "Plain"])
    """Counts by kind: ``steps``, ``gates``, ``applied``."""
    backend: str = ""
    """The framework of the step that it was read from, for messages; empty where it is not known."""
    parts: Mapping[str, Part] = field(default_factory=dict[str, Part])
    """The arrays of which it has only the rows of one process, by name; none where it was read whole."""


def flatten(tree: Tree, prefix: str) -> tuple[Plain, dict[str, Array]]:
    """Split a tree into plain data and arrays; each array is replaced by ``{"array": "<prefix>.<path>"}``.

    Raises SpecError: GS267 data that is neither plain nor an array, or a number that is not finite.
    """
    arrays: dict[str, Array] = {}
    return _flatten(tree, prefix, arrays), arrays


def unflatten(plain: Plain, arrays: Mapping[str, Array]) -> Tree:
    """Return the tree that :func:`flatten` split. Raises KeyError where ``arrays`` lacks one that it names."""
    match plain:
        case {"array": str(name), **others} if not others:
            return arrays[name]
        case {"plain": dict(inner), **others} if not others:
            return {key: unflatten(value, arrays) for key, value in inner.items()}
        case dict():
            return {key: unflatten(value, arrays) for key, value in plain.items()}
        case list():
            return [unflatten(value, arrays) for value in plain]
        case _:
            return plain


def find_arrays(plain: Plain) -> Iterator[str]:
    """Yield the names of the arrays that plain data refers to."""
    match plain:
        case {"array": str(name), **others} if not others:
            yield name
        case {"plain": dict(inner), **others} if not others:
            for value in inner.values():
                yield from find_arrays(value)
        case dict():
            for value in plain.values():
                yield from find_arrays(value)
        case list():
            for value in plain:
                yield from find_arrays(value)
        case _:
            return


def _flatten(tree: object, path: str, arrays: dict[str, Array]) -> Plain:
    """Return a tree as plain data; its arrays are added to ``arrays``. It comes from users, so it may be anything."""
    match tree:
        case None | bool() | str():
            return tree
        case int():
            return int(tree)
        case float():
            return _finite(float(tree), path)
        case Mapping():
            found: dict[str, Plain] = {}
            for key, value in cast("Mapping[object, object]", tree).items():
                if not isinstance(key, str):
                    raise _unkeepable(path, f"the key {key!r}", "text as keys")
                found[key] = _flatten(value, f"{path}.{key}", arrays)
            # One that could be taken for an array is wrapped.
            return {ESCAPED: found} if found.keys() in ({ARRAY}, {ESCAPED}) else found
        case list() | tuple():
            entries = cast("list[object]", tree)
            return [_flatten(value, f"{path}.{index}", arrays) for index, value in enumerate(entries)]
        case _:
            return _flatten_leaf(tree, path, arrays)


def _flatten_leaf(tree: object, path: str, arrays: dict[str, Array]) -> Plain:
    """Return the reference to an array, or a scalar of numpy as a number."""
    import numpy as np

    match tree:
        case np.bool_():
            return bool(tree)
        case np.integer():
            return int(tree)
        case np.floating() if tree.dtype.name in KEPT:
            return _finite(float(tree), path)
        case np.ndarray() if tree.dtype.name in KEPT:
            # Two arrays may share a path where keys have dots: the second is then called `<path>~2`.
            names = (path, *(f"{path}~{number}" for number in range(2, len(arrays) + 2)))
            name = next(each for each in names if each not in arrays)
            arrays[name] = tree.astype(tree.dtype.newbyteorder("="), copy=False)
            return {ARRAY: name}
        case _:
            kind = f"a value of type {type(tree).__module__}.{type(tree).__qualname__}".replace(" builtins.", " ")
            if isinstance(tree, np.ndarray):
                kind = f"an array of {cast('Array', tree).dtype}"
            raise _unkeepable(path, kind, "plain data or an array of numbers")


def _finite(number: float, path: str) -> float:
    """Return a finite number; raise SpecError for others."""
    if not math.isfinite(number):
        raise _unkeepable(path, f"the number {number}", "a finite number, or the number in an array")
    return number


def _unkeepable(path: str, found: str, expected: str) -> SpecError:
    """Return the error of data that a checkpoint cannot keep."""
    message = f"a checkpoint cannot keep {path}: found {found}, expected {expected}"
    return problem("GS267", message, help="return plain data: code is never stored in a checkpoint")
