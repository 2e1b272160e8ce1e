"""Tell what kind of op a mapping is, by its one kind key."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

from pydantic import BeforeValidator, Discriminator, Tag

from graphspec.declaration import below, not_built, problem
from graphspec.ops import KINDS, Op, OpBase
from graphspec.suggestions import closest
from graphspec.wording import enumerate_names

NOT_BUILT = ("adapt", "repeat", "choose", "sometimes")
"""Kinds that the language has and this version does not execute."""

SECOND = ("loss", "copy")
"""Keys that are kinds only where no other kind key is present."""


def _tag(value: object) -> str | None:
    """Return the tag of an op's class: its kind in angle brackets, which no key of a document is."""
    if isinstance(value, OpBase):
        return f"<{value.kind}>"
    return f"<{find_kinds(cast('dict[str, object]', value))[0]}>"


def find_kinds(op: Mapping[str, object]) -> tuple[str, ...]:
    """Return every kind key of an op as written; `loss` and `copy` count only where there is no other."""
    first = tuple(key for key in op if key in (*KINDS, *NOT_BUILT) and key not in SECOND)
    return first or tuple(key for key in op if key in SECOND)


def _find_strays(op: Mapping[str, object]) -> tuple[str, ...]:
    """Return `loss` and `copy` beside kinds that have no such field: a further kind was meant."""
    kinds = find_kinds(op)
    if not kinds or any(kind in SECOND or kind not in KINDS for kind in kinds):
        return ()
    fields = {field for kind in kinds for field in KINDS[kind].model_fields}
    return tuple(key for key in SECOND if key in op and key not in fields)


def _check(value: object) -> object:
    """Refuse what is not an op of exactly one kind that is built."""
    if isinstance(value, OpBase):
        return value
    if not isinstance(value, dict):
        raise problem("GS051", "expected an op: a mapping with one kind key", help=_forms())
    op = cast("dict[str, object]", value)
    match (*find_kinds(op), *_find_strays(op)):
        case ():
            raise _kindless(op)
        case (kind,):
            if kind in NOT_BUILT:
                raise below((kind,), not_built(f"the op kind `{kind}`", help=_forms()))
            return op
        case found:
            message = f"an op has one kind, found {enumerate_names(found)}"
            help = "split it into several ops, or remove what is too much"
            raise below((found[-1],), problem("GS052", message, help=help, at="key"))


def _kindless(op: Mapping[str, object]) -> Exception:
    for key in op:
        for near in closest(key, KINDS, 1):
            label = f"did you mean '{near}'?"
            message = f"no kind of op is named '{key}'"
            return below((key,), problem("GS051", message, label=label, help=_forms(), at="key"))
    return problem("GS051", "this op has no kind", help=_forms(), at="key")


def _forms() -> str:
    return f"an op has exactly one of the keys {', '.join(sorted(KINDS))}"


if TYPE_CHECKING:
    OpField: TypeAlias = Op
else:
    OpField = Annotated[
        reduce(lambda one, other: one | other, (Annotated[op, Tag(f"<{kind}>")] for kind, op in KINDS.items())),
        Discriminator(_tag),
        BeforeValidator(_check),
    ]
    """An op as a field of the document: the kind picks the class."""
