"""Follow the location of a validation error: through the document, and through the classes that declare it.

Pydantic's locations go through classes: in addition to keys and indices they name branches of unions, and fields that a
validator made of other keys. Neither is in the document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

from pydantic import BaseModel, Tag

from graphspec.read.builder import Path, Plain

_MAPPINGS = (dict, Mapping)
_LISTS = (list, tuple, Sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Where a location leads: a path of the document, the branches of unions on the way, and the types that end it."""

    path: Path
    data: Plain
    types: tuple[object, ...]
    branches: tuple[tuple[Path, str], ...] = ()

    @property
    def models(self) -> tuple[type[BaseModel], ...]:
        """Return the classes that may declare what is at the path."""
        members = (member for annotation in self.types for _, member in _find_members(annotation))
        return tuple(member for member in members if isinstance(member, type) and issubclass(member, BaseModel))


def trace(location: Path, root: type[BaseModel], data: Plain) -> Trace:
    """Follow a location from the document's root; what leads nowhere in the document is left out of the path."""
    found = Trace(path=(), data=data, types=(root,))
    for part in location:
        found = _follow(found, part)
    return found


def _follow(found: Trace, part: str | int) -> Trace:
    """Take one step: into a branch of a union, or from a collection to what it holds."""
    members = [pair for annotation in found.types for pair in _find_members(annotation)]
    below = _find_below(found.data, part)
    is_union = len(members) > 1
    chosen = tuple(member for label, member in members if is_union and label == part)
    if chosen or (is_union and not below):
        return replace(found, types=chosen or found.types, branches=(*found.branches, (found.path, str(part))))
    types = tuple(inner for _, member in members for inner in _find_inner(member, part))
    if not below:
        return replace(found, types=types or found.types)
    return replace(found, path=(*found.path, part), data=below[0], types=types)


def _find_below(data: Plain, part: str | int) -> tuple[Plain, ...]:
    """Return what a collection has under a key or index, alone; nothing where it has none."""
    match data:
        case dict() if isinstance(part, str) and part in data:
            return (data[part],)
        case list() if isinstance(part, int) and 0 <= part < len(data):
            return (data[part],)
        case _:
            return ()


def _find_members(annotation: object) -> list[tuple[str, object]]:
    """Return the branches of a type with the labels that locations have for them; None is no branch."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        tags = [item.tag for item in arguments[1:] if isinstance(item, Tag)]
        return [(tags[0], arguments[0])] if tags else _find_members(arguments[0])
    if origin in (Union, UnionType):
        return [member for argument in arguments if argument is not type(None) for member in _find_members(argument)]
    return [(annotation.__name__ if isinstance(annotation, type) else str(annotation), annotation)]


def _find_inner(annotation: object, part: str | int) -> list[object]:
    """Return the types of what a collection or model holds under a key or index."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields.items()
        return [field.annotation for name, field in fields if part in (name, field.alias, field.validation_alias)]
    if not isinstance(origin, type) or not arguments:
        return []
    if issubclass(origin, _MAPPINGS):
        return [arguments[-1]]
    if not issubclass(origin, _LISTS) or not isinstance(part, int):
        return []
    is_fixed = issubclass(origin, tuple) and Ellipsis not in arguments
    return [arguments[part]] if is_fixed and part < len(arguments) else [arguments[0]]
