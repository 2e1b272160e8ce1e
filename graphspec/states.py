"""States: tensors that outlive a step and that no optimizer trains, such as a queue or a running centre."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import PlainValidator, Strict, WithJsonSchema, model_validator

from graphspec.declaration import Declaration, below, problem
from graphspec.fields import Number
from graphspec.inputs import DType

Beginning: TypeAlias = Literal["zeros", "ones", "normal", "uniform", "unit_normal"]
FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})


def _fixed(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if isinstance(value, str):
        help = "a state outlives its batch: keep a mean over the rows, or a queue with a size of its own"
        raise problem("GS044", f"a state has sizes of its own, found the free size {value!r}", help=help)
    raise problem("GS044", f"expected a size, found {value!r}", help="a whole number from 1 up")


FixedSize = Annotated[int, PlainValidator(_fixed), WithJsonSchema({"type": "integer", "minimum": 1})]


class StateSpec(Declaration):
    """A tensor that outlives the step: ops read it by its name, an `assign` writes it."""

    shape: Annotated[tuple[FixedSize, ...], Strict(False)]
    """Its sizes; `[]` is a scalar."""
    dtype: DType = "float32"
    """The type of its elements; a floating one becomes the type of the step, as that of an input does."""
    init: Beginning | Number = 0.0
    """How it starts: a number everywhere, zeros, ones, normal (std 1), uniform (from -1 to 1), or unit_normal: normal
    numbers, scaled to length 1 along the last axis."""

    @model_validator(mode="after")
    def _check(self) -> StateSpec:
        is_drawn = self.init in ("normal", "uniform", "unit_normal")
        if is_drawn and self.dtype not in FLOATS:
            message = f"`init: {self.init}` draws real numbers, which {self.dtype} does not hold"
            raise below(("init",), problem("GS044", message, help="write a whole number"))
        if isinstance(self.init, float) and self.dtype not in FLOATS and not self.init.is_integer():
            message = f"`init: {self.init}` is no number of type {self.dtype}"
            raise below(("init",), problem("GS044", message, help="write a whole number"))
        if self.init == "unit_normal" and not self.shape:
            message = "`init: unit_normal` scales rows, and a single number has none"
            raise below(("init",), problem("GS044", message, help="write `normal`, or give it a shape"))
        return self
