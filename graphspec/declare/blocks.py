"""Blocks: a part of a step that is written once, and the op that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, Strict, field_validator

from graphspec.declare.base import Declaration, problem
from graphspec.declare.fields import Args, Names, NamesOrNone, Share, Value, at_least_one
from graphspec.declare.inputs import Inputs, OperandField
from graphspec.declare.ops.base import OpBase, Reference
from graphspec.declare.schedules import ScheduleSpec

MOST_ITERATIONS = 64
"""Every iteration is written out in the code of a step, as every micro-batch is."""


class BlockSpec(Declaration):
    """A part of a step: ops that read its inputs and each other, and the values that other ops may read."""

    inputs: NamesOrNone = ()
    """The names under which its ops read what a use gives."""
    outputs: Names
    """The values of its ops that others may read: `action` of the use `next` is `next.action`."""
    args: Args = {}
    """Constants that a use may change, with their defaults; `${std}` inside the block is such a constant."""
    ops: dict[str, Value]
    """Its ops. They name their inputs, each other, and models of the document."""
    doc: str = ""
    """A remark, kept for readers."""


def find_use(op: str) -> str:
    """Return the use, not itself in a block, to which an op of a block belongs: the first part of its name.

    >>> find_use("now.inner.action")
    'now'
    """
    return op.partition(".")[0]


def find_written(op: str, user: str) -> tuple[str, str]:
    """Return two ops as one names the other: within a block or iteration by the names that they have there.

    >>> find_written("passes.1.step", "passes.1.other"), find_written("passes.1.step", "passes.2.step")
    (('step', 'other'), ('passes.1.step', 'passes.2.step'))
    """
    one, other = op.split("."), user.split(".")
    return (one[-1], other[-1]) if one[:-1] == other[:-1] else (op, user)


class UseInputs(Inputs):
    """The operands of a use, by keyword by the names of the block's inputs: they may be any that a value may have."""

    keyword: dict[str, OperandField] = {}


class UseOp(OpBase):
    """Stand for the ops of a block; its common fields hold for all of them."""

    use: str
    """The block."""
    inputs: UseInputs = UseInputs.model_construct()
    """What its inputs are: one reference, a list in their order, or a mapping by their names."""
    models: dict[str, str] = {}
    """Other models in place of those that the block names."""
    args: Args = {}
    """Constants in place of the block's defaults."""
    stop: bool = False
    """Whether the outputs are constants for every gradient."""

    @property
    def kind(self) -> Literal["use"]:
        """Return the key of this kind."""
        return "use"

    def defines(self, name: str) -> tuple[str, ...]:
        """Return no value: the outputs of the block are those of its ops."""
        return ()

    def operands(self) -> Iterator[Reference]:
        """Yield the inputs and the models."""
        for key, name in self.inputs.references():
            yield Reference(path=("inputs", key), name=name, role="value")
        for key, name in self.models.items():
            yield Reference(path=("models", key), name=name, role="called")


class _Container(OpBase):
    """An op that holds others: its common fields hold for all of them. Its outputs are values of its own."""

    def defines(self, name: str) -> tuple[str, ...]:
        """Return no value: the ops that it becomes define its outputs."""
        return ()

    def operands(self) -> Iterator[Reference]:
        """Yield nothing: the ops that it becomes read values."""
        yield from ()


class RepeatOp(_Container):
    """Repeat its ops: those of each iteration come after everything that the iteration before it writes."""

    repeat: Annotated[int, Strict(), Field(ge=1, le=MOST_ITERATIONS)] | ScheduleSpec
    """How often; or a piecewise schedule in steps, whose values never rise, or never fall."""
    ops: Annotated[dict[str, Value], at_least_one("op")]
    """The ops of an iteration. They read each other, and everything outside."""
    outputs: NamesOrNone = ()
    """Values of the iterations that others may read, stacked: `loss` of the op `critic` is `critic.loss`."""
    batch: Literal["reuse", "split", "next"] = "reuse"
    """The rows of an iteration: the whole batch, a part of it, or a batch of its own."""

    @field_validator("repeat")
    @classmethod
    def _check_schedule(cls, value: int | ScheduleSpec) -> int | ScheduleSpec:
        """Refuse schedules whose iterations do not come and go at known steps."""
        if not isinstance(value, ScheduleSpec):
            return value
        help = "write `repeat: {schedule: piecewise, at: {0: 1, 1000: 5}}`"
        is_counted = value.clock == "steps" or "clock" not in value.model_fields_set
        is_counted = is_counted and all(isinstance(moment, int) for moment, _ in value.moments)
        if not value.moments or not is_counted:
            raise problem("GS069", "`repeat` follows a piecewise schedule in steps, and no other", help=help)
        counts = [count for _, count in value.moments]
        if not all(each.is_integer() and 0 <= each <= MOST_ITERATIONS for each in counts) or not any(counts):
            message = f"a schedule of iterations has whole numbers from 0 to {MOST_ITERATIONS}, and not only 0"
            raise problem("GS069", message, help=help)
        if counts != sorted(counts) and counts != sorted(counts, reverse=True):
            message = "the number of iterations rises, or it falls, but not both"
            raise problem("GS069", message, help="an iteration has one start or one end: use two ops that repeat")
        return value

    @property
    def kind(self) -> Literal["repeat"]:
        """Return the key of this kind."""
        return "repeat"

    @property
    def most(self) -> int:
        """Return the greatest number of iterations of a step."""
        return self.repeat if isinstance(self.repeat, int) else int(max(count for _, count in self.repeat.moments))

    def find_span(self, number: int) -> tuple[int | None, int | None]:
        """Return the first and the last step that have an iteration; None where it is there from or to the end."""
        if isinstance(self.repeat, int):
            return None, None
        there = [moment for moment, count in self.repeat.moments if isinstance(moment, int) and count >= number]
        gone = [moment for moment, count in self.repeat.moments if isinstance(moment, int) and count < number]
        # A moment is how many steps there were before: what holds from 1000 on begins with step 1001.
        start = there[0] + 1 if there[0] > 0 else None
        return start, next((moment for moment in gone if moment > there[0]), None)

    def find_stages(self) -> Iterator[tuple[int, dict[str, int]]]:
        """Yield the numbers of iterations that there are, each with its first and last step where it has them."""
        if isinstance(self.repeat, int):
            yield self.repeat, {}
            return
        moments = [(at, int(count)) for at, count in self.repeat.moments if isinstance(at, int)]
        for count in dict.fromkeys(count for _, count in moments if count):
            first = next(at for at, each in moments if each == count)
            end = next((at for at, each in moments if at > first and each != count), None)
            yield count, {**({"start": first + 1} if first else {}), **({} if end is None else {"until": end})}


class Alternative(Declaration):
    """One of several alternatives: how often it is taken, and its ops."""

    p: Share
    """The probability of the alternative."""
    ops: dict[str, Value]
    """Its ops. They read each other, and everything outside."""


class ChooseOp(_Container):
    """Run the ops of one of several alternatives, drawn before the step."""

    choose: Annotated[tuple[Alternative, ...], Strict(False)]
    """The alternatives; their probabilities sum to 1."""
    outputs: NamesOrNone = ()
    """Values that every alternative has: those of the one that runs, as `views.image` of the op `views`."""

    @field_validator("choose")
    @classmethod
    def _check_sum(cls, value: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
        total = sum(each.p for each in value)
        if not value or abs(total - 1) > 1e-6:
            message = f"the probabilities of all alternatives sum to 1, found {total:g}"
            raise problem("GS069", message, help="for a part that runs or does not run write `sometimes`")
        return value

    @property
    def kind(self) -> Literal["choose"]:
        """Return the key of this kind."""
        return "choose"


class SometimesOp(_Container):
    """Run its ops in some steps, drawn before the step."""

    sometimes: Share
    """The probability that they run."""
    ops: Annotated[dict[str, Value], at_least_one("op")]
    """Its ops. They read each other, and everything outside."""
    else_: dict[str, str] = Field({}, alias="else")
    """Its outputs, and the values that they are in the steps without it: `image` of the op `flip` is `flip.image`."""

    @property
    def kind(self) -> Literal["sometimes"]:
        """Return the key of this kind."""
        return "sometimes"

    def operands(self) -> Iterator[Reference]:
        """Yield the values that stand in for its outputs."""
        for key, name in self.else_.items():
            yield Reference(path=("else", key), name=name, role="value")


CONTAINERS: dict[str, type[OpBase]] = {
    "use": UseOp,
    "repeat": RepeatOp,
    "choose": ChooseOp,
    "sometimes": SometimesOp,
}
"""What becomes other ops, by its key."""
