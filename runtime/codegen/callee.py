"""Callees: how emitted code calls built-in functions, and the call for given options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from compiler.ir.value import Setting

Value: TypeAlias = Setting

PAIRS = ("kernel_size", "stride", "padding", "dilation", "output_padding")
"""Options (height, width) of layers that are written as one number where both are equal."""
SIZES = ("shape", "dims")
"""Options that are always passed as a tuple."""


class Callee(Struct, frozen=True, kw_only=True):
    """The callee of a built-in: ``F.mse_loss``, or a definition of the library by its name."""

    path: str
    literal: str = ""
    """The callee where an operand is a number and the usual one only takes tensors."""
    typed: str = ""
    """The callee where the result is in the type of the step, which follows what else is passed."""
    gathered: bool = False
    """The operands are passed as one tuple."""
    keywords: Mapping[str, str] = {}
    """The keyword of an option whose name differs."""
    fills: Mapping[str, Value] = {}
    """The values of the language for options that are left out."""
    implied: Mapping[str, Value] = {}
    """The callee's own defaults, by keyword: equal values are not passed."""
    positional: tuple[str, ...] = ()
    """Options that follow the operands without a keyword."""
    before: tuple[str, ...] = ()
    """Options before the operands."""
    first: tuple[str, ...] = ()
    """Options between the first operand and the others."""
    companions: tuple[str, ...] = ()
    """Keywords that must accompany others, None where they are not given."""
    paths: Mapping[tuple[str, Value], str] = {}
    """The path by the value of an option that selects it and is not passed."""
    unused: tuple[str, ...] = ()
    """Options that the callee need not know."""


class Resolved(Struct, frozen=True, kw_only=True):
    """A call: its path, the values before and after the first operand, those after all, and those by keyword."""

    path: str
    gathered: bool = False
    before: tuple[Value, ...] = ()
    first: tuple[Value, ...] = ()
    positional: tuple[Value, ...] = ()
    keywords: Mapping[str, Value] = {}


def loss(path: str, literal: str = "", **implied: Value) -> Callee:
    """Return a loss whose options are those of the callee; every loss is a mean unless it says otherwise."""
    return Callee(path=path, literal=literal, implied={"reduction": "mean", **implied})


def recurrent(path: str) -> Callee:
    """Return a recurrent layer."""
    sizes = ("input_size", "hidden_size")
    return Callee(path=path, positional=sizes, implied={"bidirectional": False, "last": False})


INTERNAL: Mapping[str, Callee] = {
    "micro_batches": Callee(path="parts", positional=("count",), implied={"axis": 0}),
    "row_shares": Callee(path="row_shares", positional=("count",), implied={"axis": 0}),
    "weigh": Callee(path="weigh"),
    "quotient": Callee(path="quotient"),
    "inverse": Callee(path="inverse"),
}
"""What micro-batches need: definitions of every library."""
REPLICAS: Mapping[str, Callee] = {
    "rank_share": Callee(path="replicas.share"),
    "rank_shares": Callee(path="replicas.shares", positional=("count",), implied={"axis": 0}),
    "own_rows": Callee(path="replicas.own_rows", implied={"axis": 0}),
}
"""What replicas need: methods of the register of processes, where a backend has one."""
WINDOW: Mapping[str, Value] = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "bias": True}
NORM: Mapping[str, Value] = {"eps": 1e-5, "momentum": 0.1, "affine": True}
POSITIONAL = Callee(
    path="PositionalEmbedding",
    paths={("method", "sinusoidal"): "SinusoidalPositions", ("method", "learned"): "PositionalEmbedding"},
    positional=("count", "features"),
)
ATTENTION = Callee(
    path="MultiHeadAttention",
    positional=("embed_dim", "num_heads"),
    implied={"causal": False, "dropout": 0.0, "bias": True},
)
CHANNELS = ("in_channels", "out_channels", "kernel_size")
"""Defaults and positions of the options of layers."""


def resolve(callee: Callee, options: Mapping[str, Value], *, literal: bool = False, typed: bool = False) -> Resolved:
    """Return a call with every option in its place; None and the callee's own defaults are left out.

    ``literal``: one of the operands is a number; ``typed``: the type of the step is passed.
    """
    choosing = {name for name, _ in callee.paths}
    chosen = next((path for (name, value), path in callee.paths.items() if options.get(name) == value), callee.path)
    given = {name: value for name, value in options.items() if name not in choosing and name not in callee.unused}
    values = {
        name: value if name not in SIZES or isinstance(value, tuple) else (value,)
        for name, value in {**callee.fills, **given}.items()
    }
    placed = {*callee.before, *callee.first, *callee.positional}
    named = {callee.keywords.get(name, name): value for name, value in values.items() if name not in placed}
    passed = {name: value for name, value in named.items() if value is not None and callee.implied.get(name) != value}
    return Resolved(
        path=(typed and callee.typed) or (literal and callee.literal) or chosen,
        gathered=callee.gathered,
        before=tuple(values[name] for name in callee.before),
        first=tuple(values[name] for name in callee.first),
        positional=tuple(values[name] for name in callee.positional if name in values),
        keywords={**dict.fromkeys(callee.companions), **passed} if passed else {},
    )


def resolve_window(callee: Callee, options: Mapping[str, Value]) -> Resolved:
    """Return the construction of a layer: pairs of equal sizes as one number, a stride that is the window left out."""
    options = dict(options)
    for name in PAIRS:
        value = options.get(name)
        if isinstance(value, tuple) and len(value) == 2 and value[0] == value[1]:
            options[name] = value[0]
    if callee.path in POOLS and options.get("stride") == options.get("kernel_size"):
        del options["stride"]
    return resolve(callee, options)


POOLS = ("AvgPool", "MaxPool", "nn.AvgPool2d", "nn.MaxPool2d")
"""Layers whose stride is their window's size by default."""
