"""Models: a user's class, built-in layers, one trainable tensor, or the likeness of another model."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, Strict, field_validator, model_validator

from graphspec.declare.base import Declaration, Deferred, below, problem
from graphspec.declare.fields import Args, NamesOrNone, Number, at_least_one
from graphspec.declare.functions import ClassName
from graphspec.declare.layers import Layer
from graphspec.declare.optimizers import OptimizerSpec
from graphspec.declare.parameters import Constraints, Groups, Regularizers
from graphspec.declare.precision import ComputeField
from graphspec.words import describe

BufferPolicy: TypeAlias = Literal["copy", "average", "ignore"]
Size = Annotated[int, Strict(), Field(ge=1)]


class ParameterSpec(Declaration):
    """One trainable tensor, such as a temperature or the weights of several losses."""

    shape: Annotated[tuple[Size, ...], Strict(False)]
    """Its sizes; `[]` is a scalar."""
    init: Literal["zeros", "ones", "normal", "uniform"] | Number = "zeros"
    """How it starts: zeros, ones, normal (std 1), uniform (from -1 to 1), or a number everywhere."""


class Traits(Declaration):
    """What the compiler may not import a class to find out; what is not declared is assumed at its worst."""

    buffers: bool | None = None
    """Whether the model has buffers that a call in train mode writes, such as BatchNorm's statistics."""
    rng: bool | None = None
    """Whether a call draws random numbers, such as Dropout's."""
    batch_coupled: bool | None = None
    """Whether the samples of a batch influence each other's results."""
    recomputes: bool | None = None
    """Whether parts of a call run again when its gradient is taken (activation checkpointing); assumed not to be."""
    ties: NamesOrNone = ()
    """Parameters of other models that this model shares, as `model.parameter`."""


_REASONS = {
    "args": "remove it; layers and parameters take none, and a likeness has those of its model",
    "traits": "remove it; what layers and parameters do is known exactly",
    "init": "remove it; it chooses between the other model's weights and new ones",
}


class ModelSpec(Declaration):
    """A model; exactly one of `class`, `layers`, `parameter` and `like` says what it is."""

    class_: Deferred[ClassName] | None = Field(None, alias="class")
    """The user's class, `pkg.mod:Name`, for every backend or per backend."""
    args: Args = {}
    """Keyword arguments of the class."""
    layers: (
        Annotated[tuple[Layer, ...], Strict(False), at_least_one("layer", help="add one, as in `[{linear: 64}]`")]
        | None
    ) = None
    """Built-in layers, in order; input sizes are inferred, channels first on every backend."""
    parameter: Deferred[ParameterSpec] | None = None
    """One trainable tensor; `forward` without inputs returns it."""
    like: str | None = None
    """The model whose architecture (and, with `init: copy`, initial weights) this one has."""
    init: Literal["copy", "fresh"] = "copy"
    """With `like`: start from the other's weights, or draw new ones."""
    optimizer: Deferred[OptimizerSpec] | None = None
    """What steps this model's parameters in every `update` of it that brings no optimizer of its own."""
    traits: Deferred[Traits] | None = None
    """What the compiler may take for granted about a `class`."""
    buffers: BufferPolicy | None = None
    """What an average over this model does with its buffers."""
    groups: Groups = ()
    """Parameters for which something is different when the model is updated; the others are in none."""
    weights: Annotated[str, Field(pattern=r"\.safetensors$")] | None = None
    """A safetensors file that the parameters and buffers start from; a relative path starts from the spec's folder."""
    precision: ComputeField | None = None
    """The type in which it computes, in place of the document's."""
    constraint: Constraints | None = None
    """What the parameters are projected onto after every update that brings no constraint of its own."""
    regularizer: Regularizers | None = None
    """Terms over the parameters, added once per step to what an update of the model differentiates."""

    @field_validator("weights", mode="before")
    @classmethod
    def _check_file(cls, value: object) -> object:
        if value is None or (isinstance(value, str) and value.endswith(".safetensors")):
            return value
        help = "`stepgraph export` writes such files, and `safetensors` converts others"
        raise problem("GS044", f"expected the path of a `.safetensors` file, found {describe(value)}", help=help)

    @model_validator(mode="after")
    def _check_source(self) -> ModelSpec:
        sources = {"class": self.class_, "layers": self.layers, "parameter": self.parameter, "like": self.like}
        given = [name for name, value in sources.items() if value is not None]
        if len(given) != 1:
            found = " and ".join(f"`{name}`" for name in given) or "none of them"
            message = f"a model has exactly one of {', '.join(sources)}; found {found}"
            help = "`class: pkg.mod:Name`, `layers: [...]`, `parameter: {shape, init}` or `like: other`"
            raise problem("GS053", message, help=help, at="key")
        return self

    @model_validator(mode="after")
    def _check_companions(self) -> ModelSpec:
        owners = {"args": self.class_, "traits": self.class_, "init": self.like}
        for name, owner in owners.items():
            if name in self.model_fields_set and owner is None:
                other = "like" if name == "init" else "class"
                message = f"`{name}` goes with `{other}`, which this model does not have"
                raise below((name,), problem("GS056", message, help=_REASONS[name], at="key"))
        return self

    @property
    def kind(self) -> Literal["class", "layers", "parameter", "like"]:
        """Return which of the four ways says what the model is."""
        if self.class_ is not None:
            return "class"
        if self.layers is not None:
            return "layers"
        return "parameter" if self.parameter is not None else "like"

    def class_path(self, backend: str) -> str | None:
        """Return the import path of the class on a backend, or None where it has none."""
        return self.class_.find(backend) if self.class_ is not None else None
