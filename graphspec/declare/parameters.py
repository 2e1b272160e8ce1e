"""Groups of parameters: what is different for some of a model's parameters when it is updated."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

from graphspec.declare.base import Declaration, Deferred, below, problem
from graphspec.declare.durations import Duration, DurationField
from graphspec.declare.fields import at_least_one, is_path, listed_item
from graphspec.declare.functions import FunctionName
from graphspec.declare.matching import UnmatchableError, read_pattern
from graphspec.declare.optimizers import OptimizerSpec
from graphspec.declare.schedules import OwnFromZero, OwnNumber, OwnPositive, ScheduleSpec
from graphspec.words import did_you_mean, quote


def _check_pattern(pattern: str) -> str:
    try:
        read_pattern(pattern)
    except UnmatchableError as error:
        help = "write a shorter one, or several groups: names, `.*`, and negative lookaheads, as in `^(?!head)`"
        raise problem("GS060", f"the pattern {quote(pattern)} is not taken: {error}", help=help) from error
    except re.error as error:
        help = "write a Python regular expression, as in `weight$`; a plain name works too"
        found = f"{quote(pattern)}: {error.msg} at character {(error.pos or 0) + 1}"
        raise problem("GS044", f"expected a regular expression, found {found}", help=help) from error
    return pattern


Pattern = Annotated[str, AfterValidator(_check_pattern)]
"""A regular expression of Python, searched in the names of a model's parameters."""


class FrozenSpec(Declaration):
    """How long parameters are frozen: `{until: 1 epochs}`."""

    until: DurationField
    """The last moment: the last step, the end of an epoch; they are stepped from then on."""


class GroupSpec(Declaration):
    """Parameters of a model by a pattern of their names, and what is different for them."""

    match: Pattern = ".*"
    """A regular expression, searched in the names of the parameters: `bias$`, `^0[.]`; left out, all of the model."""
    lr_scale: OwnFromZero | None = None
    """What the learning rate is multiplied with."""
    weight_decay: OwnFromZero | None = None
    """The weight decay, in place of the optimizer's."""
    optimizer: Deferred[OptimizerSpec] | None = None
    """The rule that steps them, in place of the model's or the update's: one by name, with its own count and slots."""
    frozen: bool | FrozenSpec = False
    """Whether they are never stepped: no gradient is taken for them, and the optimizer keeps nothing for them.

    Or until when: `{until: 1 epochs}`. No gradient is taken for them until then; the optimizer keeps its slots.
    """

    @property
    def is_frozen(self) -> bool:
        """Return whether they are never stepped."""
        return self.frozen is True

    @property
    def until(self) -> Duration | None:
        """Return until when they are frozen; None where that does not end, or they never are."""
        return self.frozen.until if isinstance(self.frozen, FrozenSpec) else None

    @model_validator(mode="after")
    def _check(self) -> GroupSpec:
        changes = [name for name in ("lr_scale", "weight_decay", "optimizer") if name in self.model_fields_set]
        if not changes and not self.frozen:
            help = "write `lr_scale`, `weight_decay`, `optimizer` or `frozen: true`"
            raise problem("GS053", "a group says nothing of its parameters", help=help, at="key")
        if self.optimizer is not None and changes[0] != "optimizer":
            help = f"write {'the rate' if changes[0] == 'lr_scale' else 'it'} in `optimizer`"
            message = f"`{changes[0]}` changes the other optimizer, found one of its own"
            raise below((changes[0],), problem("GS056", message, help=help, at="key"))
        if self.optimizer is not None and self.optimizer.name is None:
            help = "write `optimizer: {name: adamw, lr: 1e-3}`"
            raise below(("optimizer",), problem("GS056", "the optimizer of a group is one rule by its name", help=help))
        if changes and self.is_frozen:
            help = "remove it, or `frozen: true`"
            raise below((changes[0],), problem("GS056", "nothing steps frozen parameters", help=help, at="key"))
        return self


_OneOrMore = Deferred[GroupSpec] | Annotated[list[Deferred[GroupSpec]], Field(min_length=1)]
Groups = Annotated[
    tuple[Deferred[GroupSpec], ...],
    Strict(False),
    at_least_one("group"),
    BeforeValidator(listed_item, json_schema_input_type=_OneOrMore),
]
"""One group, or several, of which each parameter is in the first that fits."""


ConstraintKind: TypeAlias = Literal["clip", "non_negative", "unit_norm", "max_norm", "function"]
KINDS: tuple[ConstraintKind, ...] = ("clip", "non_negative", "unit_norm", "max_norm", "function")
NORMS = ("unit_norm", "max_norm")
MAX_NORM = 2.0
"""What `max_norm` means without a number, as in Keras."""
Axis = Annotated[int, Strict()]


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
    def _read_short(cls, value: object) -> object:
        """Return the mapping that a short form means: `non_negative`, `unit_norm`, `max_norm`, `pkg.mod:fn`."""
        match value:
            case "non_negative" | "unit_norm":
                return {value: True}
            case "max_norm":
                return {value: MAX_NORM}
            case str() if is_path(value):
                return {"function": value}
            case str():
                help = "write `non_negative`, `unit_norm`, `{max_norm: 2}`, `{clip: [-1, 1]}` or `pkg.mod:fn`"
                label = did_you_mean(value, KINDS)
                raise problem("GS110", f"no constraint is named '{value}'", label=label, help=help)
            case _:
                return value

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


Constraints = Annotated[
    tuple[Deferred[ConstraintSpec], ...],
    Strict(False),
    at_least_one("constraint"),
    BeforeValidator(listed_item, json_schema_input_type=Deferred[ConstraintSpec] | list[Deferred[ConstraintSpec]]),
]
"""One constraint, or several that are applied one after another."""


class RegularizerSpec(Declaration):
    """A term over parameters: `{l1: 0.01}`, `{l2: 0.5}`, both, or `pkg.mod:fn` from a tensor to a number."""

    l1: OwnFromZero | None = None
    """What the sum of the absolute values is multiplied with."""
    l2: OwnFromZero | None = None
    """What the sum of the squares is multiplied with."""
    function: FunctionName | None = None
    """A user's function from a tensor to a number; the numbers of all parameters are added."""
    match: Pattern | None = None
    """Which parameters, by their names; all that are stepped where it is not written."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if is_path(value):
            return {"function": value}
        help = "write `{l1: 0.01}`, `{l2: 0.01}`, both in one mapping, or `pkg.mod:fn`"
        raise problem("GS110", f"no regularizer is named '{value}'", help=help)

    @model_validator(mode="after")
    def _check(self) -> RegularizerSpec:
        has_norms = self.l1 is not None or self.l2 is not None
        if has_norms == (self.function is not None):
            found = "both" if has_norms else "neither"
            help = "write several regularizers as a list"
            raise problem("GS053", f"a regularizer has `l1`, `l2` or a `function`, found {found}", help=help)
        if self.function is not None and self.function.is_builtin:
            raise below(("function",), problem("GS054", "expected the path of a function", help="write `pkg.mod:fn`"))
        return self


Regularizers = Annotated[
    tuple[Deferred[RegularizerSpec], ...],
    Strict(False),
    at_least_one("regularizer"),
    BeforeValidator(listed_item, json_schema_input_type=Deferred[RegularizerSpec] | list[Deferred[RegularizerSpec]]),
]
"""One regularizer, or several that are added."""
