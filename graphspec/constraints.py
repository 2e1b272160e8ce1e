"""Constraints: what parameters are projected onto after every step."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, Strict, model_validator

from graphspec.declaration import Declaration, below, problem
from graphspec.fields import at_least_one
from graphspec.functions import FunctionName
from graphspec.names import is_path
from graphspec.patterns import Pattern
from graphspec.scheduled import OwnNumber, OwnPositive
from graphspec.schedules import ScheduleSpec
from graphspec.suggestions import closest

ConstraintKind: TypeAlias = Literal["clip", "non_negative", "unit_norm", "max_norm", "function"]
KINDS: tuple[ConstraintKind, ...] = ("clip", "non_negative", "unit_norm", "max_norm", "function")
NORMS = ("unit_norm", "max_norm")
MAX_NORM = 2.0
"""What `max_norm` means without a number, as in Keras."""
Axis = Annotated[int, Strict()]


def _read_word(word: str) -> dict[str, object]:
    """Return the mapping that a short form stands for: `non_negative`, `unit_norm`, `max_norm`, `pkg.mod:fn`."""
    if word in ("non_negative", "unit_norm"):
        return {word: True}
    if word == "max_norm":
        return {word: MAX_NORM}
    if is_path(word):
        return {"function": word}
    near = closest(word, KINDS)
    label = f"did you mean '{near[0]}'?" if near else ""
    help = "write `non_negative`, `unit_norm`, `{max_norm: 2}`, `{clip: [-1, 1]}` or `pkg.mod:fn`"
    raise problem("GS110", f"no constraint is named '{word}'", label=label, help=help)


class ConstraintSpec(Declaration):
    """A projection of parameters: `{clip: [-1, 1]}`, `non_negative`, `unit_norm`, `{max_norm: 2}` or `pkg.mod:fn`."""

    clip: Annotated[tuple[OwnNumber, OwnNumber], Strict(False)] | None = None
    """The least and the greatest value of an element; where schedules cross, the greatest holds."""
    non_negative: Literal[True] | None = None
    """Elements below 0 become 0."""
    unit_norm: Literal[True] | None = None
    """Every norm becomes 1."""
    max_norm: OwnPositive | None = None
    """Norms above this become this."""
    function: FunctionName | None = None
    """A user's function from a tensor to a tensor of the same shape."""
    axis: Axis | Annotated[tuple[Axis, ...], Strict(False), Field(min_length=1)] | None = None
    """The axes over which a norm is taken; all but the first where none is written, the only one of a vector."""
    match: Pattern | None = None
    """Which parameters, by their names; all that are stepped where it is not written."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        return _read_word(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> ConstraintSpec:
        given = self._find_given()
        if len(given) != 1:
            found = " and ".join(f"`{kind}`" for kind in given) or "none of them"
            help = "write several constraints as a list"
            raise problem("GS053", f"a constraint has exactly one of {', '.join(KINDS)}; found {found}", help=help)
        if self.axis is not None and given[0] not in NORMS:
            message = f"`axis` goes with `unit_norm` or `max_norm`, found `{given[0]}`"
            raise below(("axis",), problem("GS056", message, help="remove it", at="key"))
        low, high = self.clip or (0.0, 0.0)
        if not (isinstance(low, ScheduleSpec) or isinstance(high, ScheduleSpec)) and low > high:
            message = f"expected the least value before the greatest, found {low:g} and {high:g}"
            raise below(("clip",), problem("GS044", message, help="write `clip: [low, high]`"))
        if self.function is not None and self.function.is_builtin:
            raise below(("function",), problem("GS054", "expected the path of a function", help="write `pkg.mod:fn`"))
        return self

    @property
    def kind(self) -> ConstraintKind:
        """Return which of the ways it is."""
        return self._find_given()[0]

    def _find_given(self) -> list[ConstraintKind]:
        values = (self.clip, self.non_negative, self.unit_norm, self.max_norm, self.function)
        return [kind for kind, value in zip(KINDS, values, strict=True) if value is not None]


def _listed(value: object) -> object:
    """Make one constraint a list of one."""
    alone: list[object] = [value]
    return alone if isinstance(value, str | dict) else value


Constraints = Annotated[
    tuple[ConstraintSpec, ...],
    Strict(False),
    at_least_one("constraint"),
    BeforeValidator(_listed, json_schema_input_type=ConstraintSpec | list[ConstraintSpec]),
]
"""One constraint, or several that are applied one after another."""
