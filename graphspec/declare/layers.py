"""Layers: the building blocks of ``layers:`` models, known exactly and the same on every backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from pydantic import Field, model_validator

from graphspec.declare.base import Declaration, problem
from graphspec.declare.fields import Value
from graphspec.declare.options import Option


def _whole(name: str, meaning: str, *, default: int | None = None, minimum: int = 1) -> Option:
    return Option(
        name=name, kind="int", meaning=meaning, default=default, required=default is None, minimum=float(minimum)
    )


def _pair(name: str, meaning: str, *, default: int | None = None, minimum: int = 1, required: bool = False) -> Option:
    return Option(name=name, kind="pair", meaning=meaning, default=default, required=required, minimum=float(minimum))


def _positive(name: str, meaning: str, default: float) -> Option:
    return Option(name=name, kind="number", meaning=meaning, default=default, above=0.0)


OUT = _whole("out", "number of output features or channels")
KERNEL = _pair("kernel", "size of the window: a number, or [height, width]", required=True)
STRIDE = _pair("stride", "step of the window: a number, or [height, width]", default=1)
PADDING = _pair("padding", "zeros added on every side: a number, or [height, width]", default=0, minimum=0)
BIAS = Option(name="bias", kind="bool", default=True, meaning="whether a learned offset is added")
EPS = _positive("eps", "added to the variance", 1e-5)
POOL = (KERNEL, _pair("stride", "step of the window (default: the kernel)"), PADDING)

AFFINE = Option(name="affine", kind="bool", default=True, meaning="whether scale and offset are learned")
RECURRENT = (
    _whole("size", "length of the state at each position"),
    Option(name="bidirectional", kind="bool", default=False, meaning="whether a second state runs from the end"),
    Option(name="last", kind="bool", default=False, meaning="whether only the final state is the result"),
)

HOLDING = frozenset({"residual", "spectral_norm"})
"""Layers that are written with a list of layers inside."""
BUFFERED = frozenset({"batch_norm", "spectral_norm"})
"""Layers with buffers, which they write in train mode."""
COUPLED = frozenset({"batch_norm"})
"""Layers that make the samples of a batch depend on each other in train mode."""


def draws(kind: str, options: Mapping[str, object]) -> bool:
    """Return whether a layer draws random numbers in train mode: dropout, or an attention with some."""
    return kind == "dropout" or bool(options.get("dropout"))


LAYERS: Mapping[str, tuple[Option, ...]] = {
    "linear": (OUT, BIAS),
    "conv1d": (
        OUT,
        _whole("kernel", "size of the window"),
        _whole("stride", "step of the window", default=1),
        _whole("padding", "zeros added at both ends", default=0, minimum=0),
        _whole("dilation", "distance between the window's taps", default=1),
        _whole("groups", "number of groups of channels", default=1),
        BIAS,
    ),
    "conv2d": (
        OUT,
        KERNEL,
        STRIDE,
        PADDING,
        _pair("dilation", "distance between the window's taps", default=1),
        _whole("groups", "number of groups of channels", default=1),
        BIAS,
    ),
    "conv_transpose2d": (
        OUT,
        KERNEL,
        STRIDE,
        PADDING,
        _pair("output_padding", "rows and columns added at one end", default=0, minimum=0),
        BIAS,
    ),
    "batch_norm": (
        EPS,
        Option(
            name="momentum",
            kind="number",
            default=0.1,
            minimum=0.0,
            maximum=1.0,
            meaning="weight of the new batch in the running statistics",
        ),
        AFFINE,
        Option(name="sync", kind="bool", default=False, meaning="whether the batch is that of all processes"),
    ),
    "instance_norm": (EPS, replace(AFFINE, default=False)),
    "layer_norm": (EPS,),
    "rms_norm": (EPS,),
    "group_norm": (_whole("groups", "number of groups of channels, each normalized together"), EPS),
    "spectral_norm": (),
    "positional": (
        Option(
            name="count",
            kind="int",
            default=None,
            minimum=1.0,
            meaning="the largest number of positions (default: that of the input)",
        ),
        Option(
            name="method",
            kind="choice",
            default="learned",
            choices=("learned", "sinusoidal"),
            meaning="whether what is added is learned, or sines and cosines",
        ),
    ),
    "multi_head_attention": (
        _whole("heads", "number of heads, each with its share of the features"),
        Option(name="causal", kind="bool", default=False, meaning="whether positions see only those up to themselves"),
        Option(
            name="dropout",
            kind="number",
            default=0.0,
            minimum=0.0,
            below=1.0,
            meaning="fraction of the weights of positions that is dropped",
        ),
        BIAS,
    ),
    "lstm": RECURRENT,
    "gru": RECURRENT,
    "embedding": (
        _whole("count", "number of different indices"),
        _whole("size", "length of each vector"),
        Option(name="sparse", kind="bool", default=False, meaning="whether its gradient is kept as rows"),
    ),
    "dropout": (
        Option(name="p", kind="number", default=0.5, minimum=0.0, below=1.0, meaning="fraction of elements dropped"),
    ),
    "flatten": (),
    "reshape": (Option(name="shape", kind="sizes", required=True, meaning="sizes without the batch; one may be -1"),),
    "avg_pool": POOL,
    "max_pool": POOL,
    "global_avg_pool": (),
    "upsample": (
        _whole("factor", "factor for height and width"),
        Option(
            name="mode",
            kind="choice",
            choices=("nearest", "bilinear"),
            default="nearest",
            meaning="how new pixels are computed",
        ),
    ),
    "residual": (),
    "relu": (),
    "leaky_relu": (Option(name="slope", kind="number", default=0.01, minimum=0.0, meaning="slope below 0"),),
    "gelu": (),
    "silu": (),
    "elu": (_positive("alpha", "the limit below 0", 1.0),),
    "tanh": (),
    "sigmoid": (),
    "softmax": (Option(name="axis", kind="int", default=-1, meaning="the axis whose elements sum to 1"),),
    "identity": (),
}
"""The options of every layer; a bare value sets the first: ``{linear: 64}`` is ``{linear: {out: 64}}``."""


LAYER_MEANINGS: Mapping[str, str] = {
    "linear": "the product x W^T + b over the last axis",
    "conv1d": "convolution over the positions of a sequence",
    "conv2d": "convolution over height and width",
    "conv_transpose2d": "transposed convolution over height and width",
    "batch_norm": "axis 1 normalized over all others: by the batch in train mode, else by running statistics",
    "instance_norm": "every channel of every sample normalized over all axes after it",
    "layer_norm": "the last axis normalized",
    "rms_norm": "the last axis divided by the root of its mean square",
    "group_norm": "groups of channels normalized, each with all axes after them",
    "spectral_norm": "the layer inside, its weight divided by its largest singular value",
    "positional": "the input plus a vector for every position",
    "multi_head_attention": "self-attention: every position a weighted sum over positions, for each head",
    "lstm": "the states of an LSTM along a sequence",
    "gru": "the states of a GRU along a sequence",
    "embedding": "a learned row for every index",
    "dropout": "in train mode every element 0 with probability p, the others divided by 1 - p",
    "flatten": "all axes but the batch as one",
    "reshape": "the same elements in another shape; the batch is kept",
    "avg_pool": "mean over a window that moves over height and width",
    "max_pool": "greatest over a window that moves over height and width",
    "global_avg_pool": "mean over height and width",
    "upsample": "height and width times a factor",
    "residual": "the sum x + layers(x)",
    "relu": "the greater of 0 and x",
    "leaky_relu": "the input above 0, else slope x",
    "gelu": "the product of x and the normal CDF of x",
    "silu": "the product x sigmoid(x)",
    "elu": "the input above 0, else alpha (exp(x) - 1)",
    "tanh": "hyperbolic tangent",
    "sigmoid": "1 / (1 + exp(-x))",
    "softmax": "the shares exp(x) / sum(exp(x))",
    "identity": "the input itself",
}
"""What every layer gives, in a few words."""


class Layer(Declaration):
    """One layer: `relu`, `{linear: 64}`, `{conv2d: {out: 32, kernel: 3}}` or `{residual: [...]}`."""

    kind: str
    """Its kind, a key of :data:`LAYERS` once the spec is checked."""
    options: dict[str, Value] = {}
    """What is written, with a bare value under the name of the first option; no defaults."""
    layers: tuple[Layer, ...] = Field((), alias="residual")
    """The inner layers of a container: `residual`, `spectral_norm`."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        if isinstance(value, str):
            return {"kind": value}
        if isinstance(value, Layer):
            return value
        if not isinstance(value, dict) or len(cast("dict[str, object]", value)) != 1:
            help = "write `relu`, `{linear: 64}` or `{conv2d: {out: 32, kernel: 3}}`; each layer is its own list item"
            raise problem("GS055", "expected a layer: its name, or a mapping with one key, its name", help=help)
        kind, given = next(iter(cast("dict[str, object]", value).items()))
        first = LAYERS.get(kind, ())[:1]
        match given:
            case list() if kind in HOLDING:
                return {"kind": kind, "residual": tuple(cast("list[object]", given))}
            case dict():
                return {"kind": kind, "options": cast("dict[str, object]", given)}
            case None:
                return {"kind": kind, "options": {}}
            case _:
                return {"kind": kind, "options": {first[0].name if first else "": given}}
