"""Groups of parameters: what is different for some of a model's parameters when it is updated."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, model_validator

from graphspec.declaration import Declaration, below, not_built, problem
from graphspec.fields import NumberFromZero
from graphspec.patterns import Pattern


def _only_always(value: object) -> object:
    if isinstance(value, dict):
        raise not_built("a mapping for `frozen`", help="write `frozen: true`; it is then never stepped")
    return value


class GroupSpec(Declaration):
    """Parameters of a model by a pattern of their names, and what is different for them."""

    match: Pattern
    """A regular expression, searched in the names of the parameters: `bias$`, `^0[.]`."""
    lr_scale: NumberFromZero | None = None
    """What the learning rate is multiplied with."""
    weight_decay: NumberFromZero | None = None
    """The weight decay, in place of the optimizer's."""
    frozen: Annotated[bool, BeforeValidator(_only_always)] = False
    """Whether they are never stepped: no gradient is taken for them, and the optimizer keeps nothing for them."""

    @model_validator(mode="after")
    def _check(self) -> GroupSpec:
        changes = [name for name in ("lr_scale", "weight_decay") if name in self.model_fields_set]
        if not changes and not self.frozen:
            help = "write `lr_scale`, `weight_decay` or `frozen: true`"
            raise problem("GS053", "a group says nothing of its parameters", help=help, at="key")
        if changes and self.frozen:
            help = "remove it, or `frozen: true`"
            raise below((changes[0],), problem("GS056", "nothing steps frozen parameters", help=help, at="key"))
        return self
