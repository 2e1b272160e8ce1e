"""Groups of parameters: what is different for some of a model's parameters when it is updated."""

from __future__ import annotations

from pydantic import model_validator

from graphspec.declaration import Declaration, below, problem
from graphspec.durations import Duration, DurationField
from graphspec.patterns import Pattern
from graphspec.scheduled import OwnFromZero


class FrozenSpec(Declaration):
    """How long parameters are frozen: `{until: 1 epochs}`."""

    until: DurationField
    """The last moment: the last step, the end of an epoch; they are stepped from then on."""


class GroupSpec(Declaration):
    """Parameters of a model by a pattern of their names, and what is different for them."""

    match: Pattern
    """A regular expression, searched in the names of the parameters: `bias$`, `^0[.]`."""
    lr_scale: OwnFromZero | None = None
    """What the learning rate is multiplied with."""
    weight_decay: OwnFromZero | None = None
    """The weight decay, in place of the optimizer's."""
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
        changes = [name for name in ("lr_scale", "weight_decay") if name in self.model_fields_set]
        if not changes and not self.frozen:
            help = "write `lr_scale`, `weight_decay` or `frozen: true`"
            raise problem("GS053", "a group says nothing of its parameters", help=help, at="key")
        if changes and self.is_frozen:
            help = "remove it, or `frozen: true`"
            raise below((changes[0],), problem("GS056", "nothing steps frozen parameters", help=help, at="key"))
        return self
