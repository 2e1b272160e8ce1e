"""``adapt``: weights that are a value, a step of a model away from its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Strict, model_validator

from graphspec.declare.base import Declaration, Reader, problem
from graphspec.declare.fields import at_least_one, is_name, listed_item
from graphspec.declare.ops.base import OpBase, Reference
from graphspec.declare.parameters import Pattern
from graphspec.declare.schedules import NUMBER, ScheduledNumber, ScheduleSpec

Rate: TypeAlias = Annotated[
    float | str | ScheduleSpec,
    Reader(
        lambda value: value if isinstance(value, str) and is_name(value) else NUMBER.read(value), ScheduledNumber | str
    ),
]
"""A finite number, a schedule of train steps, or the name of a model that is a `parameter`."""


class AdaptGroup(Declaration):
    """Parameters by a pattern of their names, and their learning rate: `{match: "^0[.]", lr: 0.0}`."""

    match: Pattern
    """A regular expression, searched in the names of the parameters; the first group that fits counts."""
    lr: Rate
    """The learning rate of these parameters."""


AdaptGroups = Annotated[
    tuple[AdaptGroup, ...],
    Strict(False),
    at_least_one("group"),
    BeforeValidator(listed_item, json_schema_input_type=AdaptGroup | list[AdaptGroup]),
]


class AdaptOp(OpBase):
    """Define a derived model: the weights of a model, minus a learning rate times a gradient; it writes nothing."""

    adapt: str
    """The model, or another derived model, that it begins with."""
    loss: str | None = None
    """The value whose gradient is taken, with respect to `adapt`."""
    gradients: str | None = None
    """A gradient set over the model, in place of a loss."""
    lr: Rate
    """The learning rate: a number, a schedule, or a model that is a `parameter`."""
    groups: AdaptGroups = ()
    """Other learning rates for some parameters, by patterns of their names."""
    order: Literal[1, 2] = 2
    """Whether other gradients run back through the gradient (2), or take it as a constant (1)."""

    @model_validator(mode="after")
    def _check_source(self) -> AdaptOp:
        if (self.loss is None) == (self.gradients is None):
            found = "neither" if self.loss is None else "both"
            help = "`loss: inner_loss`, or `gradients: my_gradients` from a `gradient` or `transform` op"
            raise problem("GS053", f"an adapt has a `loss` or `gradients`, found {found}", help=help, at="key")
        return self

    @property
    def kind(self) -> Literal["adapt"]:
        """Return the key of this kind."""
        return "adapt"

    @property
    def rates(self) -> Iterator[tuple[tuple[str | int, ...], float | str | ScheduleSpec]]:
        """Yield every learning rate with its place below the op, that of all other parameters first."""
        yield ("lr",), self.lr
        for index, group in enumerate(self.groups):
            yield ("groups", index, "lr"), group.lr

    def operands(self) -> Iterator[Reference]:
        """Yield the model, the loss or the gradient set, and the learning rates that are parameters."""
        yield Reference(path=("adapt",), name=self.adapt, role="adapted")
        if self.loss is not None:
            yield Reference(path=("loss",), name=self.loss, role="loss")
        if self.gradients is not None:
            yield Reference(path=("gradients",), name=self.gradients, role="gradients")
        for path, rate in self.rates:
            if isinstance(rate, str):
                yield Reference(path=path, name=rate, role="rate")
