"""Precision: the type in which models compute, and how losses are scaled so that gradients do not underflow in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias, cast, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AllowInfNan, BeforeValidator, Strict, WithJsonSchema, field_validator, model_validator

from graphspec.declare.base import Declaration, Deferred, below, problem
from graphspec.declare.fields import Count, PositiveNumber
from graphspec.words import describe

Compute: TypeAlias = Literal["float32", "bfloat16", "float16"]
Scale = Annotated[PositiveNumber, Ge(1.1754943508222875e-38), Le(3.4028234663852886e38)]
"""A number that float32 holds with all its digits."""
Share = Annotated[float, Strict(), AllowInfNan(False), Gt(0), Lt(1)]

_TYPES: Mapping[str, Compute] = {
    "fp32": "float32",
    "float": "float32",
    "bf16": "bfloat16",
    "mixed_bfloat16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "mixed_float16": "float16",
}
"""The frameworks' aliases of the types."""
TYPE_NAMES = (
    *get_args(Compute),
    *_TYPES,
    *(f"{framework}.{name}" for framework in ("torch", "tf") for name in (*get_args(Compute), "half", "float")),
)
"""Every word for a type to compute in."""

OTHER_NAMES: Mapping[str, str] = {
    "init_scale": "initial",
    "initial_scale": "initial",
    "initial_loss_scale": "initial",
    "growth_interval": "growth_steps",
    "dynamic_growth_steps": "growth_steps",
    "increment_period": "growth_steps",
    "multiplier": "growth_factor",
}
"""What PyTorch's GradScaler and TensorFlow's LossScaleOptimizer and DynamicLossScale call the fields.

TensorFlow's `multiplier` says two of them: the scale grows by it, and is divided by it after an overflow.
"""


def _read_type(value: object) -> object:
    """Return the type that one of its names means: `half`, `torch.bfloat16`, `mixed_float16`."""
    if not isinstance(value, str):
        return value
    plain = value.removeprefix("torch.").removeprefix("tf.")
    return _TYPES.get(plain, plain)


ComputeField = Annotated[
    Compute, BeforeValidator(_read_type), WithJsonSchema({"type": "string", "enum": [*TYPE_NAMES]})
]


def _read_names(written: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a loss scale under their own names; raise where one is written under two."""
    found: dict[str, object] = {}
    for key, value in written.items():
        name = OTHER_NAMES.get(key, key)
        if name in found:
            help = f"they are two names of `{name}`; keep one"
            raise below((key,), problem("GS053", f"`{key}` repeats another key", help=help, at="key"))
        found[name] = value
    multiplier = written.get("multiplier")
    if isinstance(multiplier, int | float) and multiplier > 1:
        found.setdefault("backoff_factor", 1 / multiplier)
    return found


class LossScaleSpec(Declaration):
    """A loss scale: losses are multiplied by it before they are differentiated, gradients divided by it after."""

    kind: Literal["none", "fixed", "dynamic"] = "dynamic"
    """`dynamic`: it grows while gradients are finite and shrinks when one is not; `fixed`: it never changes."""
    initial: Scale = 32768.0
    """The scale at the start; a fixed one keeps it."""
    growth_steps: Count = 2000
    """After how many steps in a row with finite gradients it grows."""
    growth_factor: Annotated[float, Strict(), AllowInfNan(False), Gt(1)] = 2.0
    """What it is multiplied by then; where the product is no float32 it stays."""
    backoff_factor: Share = 0.5
    """What it is multiplied by after a step in which a gradient is not finite."""
    min_scale: Scale = 1.0
    """What it never goes below."""
    max_consecutive_skips: Count | None = None
    """How many steps in a row may have a gradient that is not finite; one more ends the run with an error."""

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: object) -> object:
        """Read `dynamic`, `none`, a number, and a mapping with other frameworks' names of the fields."""
        if isinstance(value, str):
            return {"kind": value}
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"kind": "fixed", "initial": value}
        if isinstance(value, bool):
            message = f"expected `dynamic`, `none`, a number or a mapping as `loss_scale`, found {describe(value)}"
            raise problem("GS041", message, help="write `loss_scale: dynamic`, or the number that losses are scaled by")
        return _read_names(cast("dict[str, object]", value)) if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _check(self) -> LossScaleSpec:
        if self.kind == "dynamic" and self.initial < self.min_scale:
            message = f"the scale starts at {self.initial:g}, below `min_scale: {self.min_scale:g}`"
            raise below(("initial",), problem("GS053", message, help="lower `min_scale` too"))
        if self.kind == "none" and self.initial != 32768.0:
            message = f"`initial: {self.initial:g}` is the scale at the start, and there is none"
            raise below(("initial",), problem("GS056", message, help="remove it", at="key"))
        for name in ("growth_steps", "growth_factor", "backoff_factor", "min_scale") if self.kind != "dynamic" else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                message = f"`{name}` goes with `kind: dynamic`; a {self.kind} scale does not change"
                raise below((name,), problem("GS056", message, help="remove it", at="key"))
        return self


class PrecisionSpec(Declaration):
    """In which type models compute: `bfloat16`, or `{compute: float16, loss_scale: dynamic}`."""

    compute: ComputeField = "float32"
    """The type of the operands of layers that multiply matrices and convolve; all other numbers are float32."""
    params: Literal["float32"] = "float32"
    """The type of parameters, of what optimizers keep, and of gradients."""
    loss_scale: Deferred[LossScaleSpec] | None = None
    """How losses are scaled; without a word `dynamic` where something is computed in float16, else `none`."""

    @field_validator("params", mode="before")
    @classmethod
    def _check_params(cls, value: object) -> object:
        """Refuse another type than float32, which belongs to `compute`."""
        found = _read_type(value)
        if found in ("float16", "bfloat16"):
            help = f"write `compute: {found}`; what is added to a parameter in a step is often too little for {found}"
            raise problem("GS043", f"parameters are float32 in every step, not {found}", help=help)
        return found

    @model_validator(mode="before")
    @classmethod
    def _read_word(cls, value: object) -> object:
        """Read the name of a type as that in which models compute."""
        if isinstance(value, bool | int | float):
            message = f"expected the name of a type, or a mapping, as `precision`, found {describe(value)}"
            raise problem("GS041", message, help="write `precision: float16`, or `precision: {compute: float16}`")
        return {"compute": value} if isinstance(value, str) else value
