"""``forward``: call a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, cast

from pydantic import BeforeValidator, Strict, WithJsonSchema, field_validator, model_validator

from graphspec.declare.base import Declaration, below, problem
from graphspec.declare.fields import NAME_PATTERN, at_least_one, is_name, listed_item
from graphspec.declare.inputs import Inputs
from graphspec.declare.ops.base import OpBase, Reference
from graphspec.words import describe

_FORMS = "write a name, or `{h: {tap: layer4}}` for what an inner layer gives"


class Output(Declaration):
    """One result of a model: `y`, or `{h: {tap: layer4}}` for what an inner layer gives."""

    name: str
    """The value's name."""
    tap: str | None = None
    """The path of the inner layer: `encoder.2`, or the index of a layer in `layers`."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, Output):
            return value
        if not isinstance(value, dict):
            raise problem("GS044", f"expected an output, found {describe(value)}", help=_FORMS)
        for name, inner in cast("dict[str, object]", value).items():
            if len(cast("dict[str, object]", value)) == 1 and isinstance(inner, dict) and inner.keys() == {"tap"}:
                tap = cast("dict[str, object]", inner)["tap"]
                return {"name": name, "tap": str(tap) if type(tap) is int else tap}
        raise problem("GS044", "expected an output: one name with the layer that is tapped", help=_FORMS)


Outputs = Annotated[
    tuple[Output, ...],
    Strict(False),
    at_least_one("output"),
    BeforeValidator(listed_item, json_schema_input_type=Output | list[Output]),
]


class ForwardOp(OpBase):
    """Call a model on values; defines what it returns."""

    forward: str
    """The model that is called, or a derived one."""
    inputs: Inputs = Inputs.model_construct()
    """What it is called with: one reference, a list, or a mapping from argument names."""
    outputs: Outputs | None = None
    """Names of its results, where it has several or inner layers are tapped; these are the values then."""
    train: bool | None = None
    """Whether the model runs as in training. Default: in train mode, if some update owns the model."""
    method: Annotated[str, WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})] | None = None
    """The method that is called in place of the model itself."""
    stop: bool = False
    """Whether the results are constants for every gradient."""
    snapshot: bool = False
    """Whether it reads clones of weights and buffers, so that later writes wait for no gradient through it."""
    checkpoint: bool = False
    """Whether its inner results are not kept for gradients, which run it again."""

    @field_validator("method")
    @classmethod
    def _check_method(cls, name: str | None) -> str | None:
        if name is not None and not is_name(name):
            help = "write it as in `encode`"
            raise problem("GS044", f"expected the name of a method, found {describe(name)}", help=help)
        return name

    @model_validator(mode="after")
    def _check_checkpoint(self) -> ForwardOp:
        """Refuse what contradicts that gradients run the call again."""
        tapped = any(output.tap is not None for output in self.outputs or ())
        contradictions = (
            (self.stop, "`stop`", "no gradient runs through the call"),
            (self.snapshot, "`snapshot`", "gradients run the model itself again, not a clone"),
            (tapped, "a tapped output", "what an inner layer gives would be kept"),
        )
        for is_found, found, reason in contradictions:
            if self.checkpoint and is_found:
                message = f"`checkpoint` does not go with {found}: {reason}"
                raise below(("checkpoint",), problem("GS053", message, help="remove one of them", at="key"))
        return self

    @property
    def kind(self) -> Literal["forward"]:
        """Return the key of this kind."""
        return "forward"

    def defines(self, name: str) -> tuple[str, ...]:
        """Return the outputs, or the op's own name where none are written."""
        return tuple(output.name for output in self.outputs) if self.outputs else (name,)

    def operands(self) -> Iterator[Reference]:
        """Yield the model and the inputs."""
        yield Reference(path=("forward",), name=self.forward, role="called")
        for key, name in self.inputs.references():
            yield Reference(path=("inputs", key), name=name, role="value")
