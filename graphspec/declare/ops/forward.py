"""``forward``: call a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Strict, WithJsonSchema, model_validator

from graphspec.declare.base import Declaration, below, problem
from graphspec.declare.fields import at_least_one
from graphspec.declare.inputs import Inputs
from graphspec.declare.names import NAME_PATTERN, is_name
from graphspec.declare.ops.base import OpBase, Reference
from graphspec.words import describe


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
        if isinstance(value, dict):
            return _read_tap(cast("dict[str, object]", value))
        if isinstance(value, Output):
            return value
        raise problem("GS044", f"expected an output, found {describe(value)}", help=_FORMS)


def _read_tap(value: dict[str, object]) -> dict[str, object]:
    """Return name and layer of `{h: {tap: layer4}}`."""
    for name, inner in value.items():
        if len(value) == 1 and isinstance(inner, dict) and inner.keys() == {"tap"}:
            tap = cast("dict[str, object]", inner)["tap"]
            return {"name": name, "tap": str(tap) if type(tap) is int else tap}
    raise problem("GS044", "expected an output: one name with the layer that is tapped", help=_FORMS)


def _listed(value: object) -> object:
    return [cast("object", value)] if isinstance(value, str | dict) else value


_FORMS = "write a name, or `{h: {tap: layer4}}` for what an inner layer gives"


def _check_method(name: str) -> str:
    if is_name(name):
        return name
    raise problem("GS044", f"expected the name of a method, found {describe(name)}", help="write it as in `encode`")


MethodName = Annotated[str, AfterValidator(_check_method), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})]

Outputs = Annotated[
    tuple[Output, ...],
    Strict(False),
    at_least_one("output"),
    BeforeValidator(_listed, json_schema_input_type=Output | list[Output]),
]


class ForwardOp(OpBase):
    """Call a model on values; defines what it returns."""

    forward: str
    """The model that is called."""
    inputs: Inputs = Inputs()
    """What it is called with: one reference, a list, or a mapping from argument names."""
    outputs: Outputs | None = None
    """Names of its results, where it has several or inner layers are tapped; these are the values then."""
    train: bool | None = None
    """Whether the model runs as in training. Default: in train mode, if some update owns the model."""
    method: MethodName | None = None
    """The method that is called in place of the model itself."""
    stop: bool = False
    """Whether the results are constants for every gradient."""
    snapshot: bool = False
    """Whether it reads clones of weights and buffers, so that later writes wait for no gradient through it."""
    checkpoint: bool = False
    """Whether its inner results are not kept for gradients, which run it again."""

    @model_validator(mode="after")
    def _check(self) -> ForwardOp:
        for found, reason in self._find_contradictions() if self.checkpoint else ():
            message = f"`checkpoint` does not go with {found}: {reason}"
            raise below(("checkpoint",), problem("GS053", message, help="remove one of them", at="key"))
        return self

    def _find_contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what contradicts that gradients run the call again, and why."""
        if self.stop:
            yield "`stop`", "no gradient runs through the call"
        if self.snapshot:
            yield "`snapshot`", "gradients run the model itself again, not a clone"
        if any(output.tap is not None for output in self.outputs or ()):
            yield "a tapped output", "what an inner layer gives would be kept"

    @property
    def kind(self) -> Literal["forward"]:
        """Return the key of this kind."""
        return "forward"

    def defines(self, name: str) -> tuple[str, ...]:
        """Return the outputs, or the op's own name where none are written."""
        return tuple(output.name for output in self.outputs) if self.outputs else (name,)

    def operands(self) -> Iterator[Reference]:
        """Yield the model and the inputs."""
        yield Reference(path=("forward",), name=self.forward, role="source")
        for key, name in self.inputs.references():
            yield Reference(path=("inputs", key), name=name, role="value")
