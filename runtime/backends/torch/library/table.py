"""How emitted code calls each built-in function and layer; read without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Value: TypeAlias = None | bool | int | float | str | tuple["Value", ...] | Mapping[str, "Value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """What is called for a built-in: ``F.mse_loss``, or a definition of this library by its name."""

    path: str
    literal: str = ""
    """What is called instead where an operand is a number, and the callee takes tensors only."""
    gathered: bool = False
    """The operands are passed as one tuple."""
    keywords: Mapping[str, str] = field(default_factory=dict[str, str])
    """The keyword of an option whose name differs."""
    fills: Mapping[str, Value] = field(default_factory=dict[str, Value])
    """What the language means by an option that is not written."""
    implied: Mapping[str, Value] = field(default_factory=dict[str, Value])
    """The callee's own defaults, by keyword: equal values are not passed."""
    positional: tuple[str, ...] = ()
    """Options that follow the operands without a keyword."""
    first: tuple[str, ...] = ()
    """Options that stand between the first operand and the others."""
    beside: tuple[str, ...] = ()
    """Keywords that must stand beside others, as None where they are not given."""
    paths: Mapping[tuple[str, Value], str] = field(default_factory=dict[tuple[str, Value], str])
    """The path by the value of an option that chooses it and is not passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A call: its path, the values after the first operand, those after all operands, and those by keyword."""

    path: str
    gathered: bool = False
    first: tuple[Value, ...] = ()
    positional: tuple[Value, ...] = ()
    keywords: Mapping[str, Value] = field(default_factory=dict[str, Value])


REDUCTION: Mapping[str, Value] = {"reduction": "mean"}


def _plain(path: str, literal: str = "", **implied: Value) -> Callee:
    """Return a loss whose options are those of the callee."""
    return Callee(path=path, literal=literal, implied={**REDUCTION, **implied})


AXES: Mapping[str, str] = {"axis": "dim", "keepdims": "keepdim"}


def _along(path: str, axis: int | None = None, *, gathered: bool = False, beside: tuple[str, ...] = ()) -> Callee:
    """Return a call along an axis, which PyTorch calls ``dim``; ``keepdims`` is ``keepdim``."""
    fills: dict[str, Value] = {} if axis is None else {"axis": axis}
    implied: dict[str, Value] = {"keepdim": False}
    return Callee(path=path, gathered=gathered, keywords=AXES, fills=fills, implied=implied, beside=beside)


LOSSES: Mapping[str, Callee] = {
    "cross_entropy": _plain("cross_entropy", axis=1, label_smoothing=0.0),
    "nll": _plain("nll"),
    "bce": _plain("F.binary_cross_entropy", "bce"),
    "bce_with_logits": _plain("F.binary_cross_entropy_with_logits", "bce_with_logits"),
    "mse": _plain("F.mse_loss", "mse"),
    "l1": _plain("F.l1_loss", "l1"),
    "huber": _plain("F.huber_loss", "huber", delta=1.0),
    "kl_div": _plain("kl_div", temperature=1.0),
    "hinge": _plain("hinge"),
    "cosine": _plain("cosine_distance"),
    "nt_xent": _plain("nt_xent", temperature=0.5),
    "wasserstein": _plain("wasserstein", sign=1.0),
}

CALLS: Mapping[str, Callee] = {
    "mean": _along("torch.mean", beside=("dim",)),
    "sum": _along("torch.sum", beside=("dim",)),
    "max": _along("torch.amax"),
    "min": _along("torch.amin"),
    "sqrt": Callee(path="torch.sqrt"),
    "square": Callee(path="torch.square"),
    "exp": Callee(path="torch.exp"),
    "log": Callee(path="torch.log"),
    "abs": Callee(path="torch.abs"),
    "sign": Callee(path="torch.sign"),
    "clip": Callee(path="torch.clamp"),
    "norm": _along("torch.linalg.vector_norm"),
    "normalize": _along("F.normalize", -1),
    "softmax": _along("torch.softmax", -1),
    "sigmoid": Callee(path="torch.sigmoid"),
    "tanh": Callee(path="torch.tanh"),
    "relu": Callee(path="torch.relu"),
    "concat": _along("torch.cat", 1, gathered=True),
    "stack": _along("torch.stack", 0, gathered=True),
    "split": Callee(path="split", positional=("sections",), implied={"axis": 1}),
    "slice": Callee(path="cut", fills={"start": 0}, implied={"axis": 1}),
    "gather": Callee(path="torch.gather", first=("axis",), fills={"axis": 1}),
    "reshape": Callee(path="torch.reshape", positional=("shape",)),
    "permute": Callee(path="torch.permute", positional=("dims",)),
    "one_hot": Callee(path="one_hot", positional=("classes",)),
    "argmax": _along("torch.argmax", 1),
    "where": Callee(path="torch.where"),
    "lerp": Callee(path="interpolate"),
}
"""The calls that are no operators of Python: ``add``, ``sub``, ``mul``, ``div``, ``matmul``, ``neg``, ``stop`` are."""

METRICS: Mapping[str, Callee] = {"accuracy": Callee(path="accuracy"), "mean": Callee(path="torch.mean")}

FUNCTIONS: Mapping[str, Mapping[str, Callee]] = {"loss": LOSSES, "call": CALLS, "metric": METRICS}
"""How each built-in function is called, by family and name."""

WINDOW: Mapping[str, Value] = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "bias": True}
NORM: Mapping[str, Value] = {"eps": 1e-5, "momentum": 0.1, "affine": True}
RANKS: Mapping[tuple[str, Value], str] = {
    ("rank", 2): "nn.BatchNorm1d",
    ("rank", 3): "nn.BatchNorm1d",
    ("rank", 4): "nn.BatchNorm2d",
}
CHANNELS = ("in_channels", "out_channels", "kernel_size")

LAYERS: Mapping[str, Callee] = {
    "linear": Callee(path="nn.Linear", positional=("in_features", "out_features"), implied={"bias": True}),
    "conv2d": Callee(path="nn.Conv2d", positional=CHANNELS, implied=WINDOW),
    "conv_transpose2d": Callee(path="nn.ConvTranspose2d", positional=CHANNELS, implied={**WINDOW, "output_padding": 0}),
    "batch_norm": Callee(path="nn.BatchNorm2d", paths=RANKS, positional=("num_features",), implied=NORM),
    "layer_norm": Callee(path="nn.LayerNorm", positional=("normalized_shape",), implied=NORM),
    "group_norm": Callee(path="nn.GroupNorm", positional=("num_groups", "num_channels"), implied=NORM),
    "embedding": Callee(path="nn.Embedding", positional=("num_embeddings", "embedding_dim")),
    "dropout": Callee(path="Dropout", positional=("p",)),
    "flatten": Callee(path="nn.Flatten"),
    "reshape": Callee(path="Reshape", positional=("shape",)),
    "avg_pool": Callee(path="nn.AvgPool2d", positional=("kernel_size",), implied={"padding": 0}),
    "max_pool": Callee(path="nn.MaxPool2d", positional=("kernel_size",), implied={"padding": 0}),
    "global_avg_pool": Callee(path="GlobalAvgPool"),
    "upsample": Callee(path="nn.Upsample", implied={"mode": "nearest"}),
    "residual": Callee(path="Residual"),
    "relu": Callee(path="nn.ReLU"),
    "leaky_relu": Callee(path="nn.LeakyReLU", positional=("negative_slope",)),
    "gelu": Callee(path="nn.GELU"),
    "silu": Callee(path="nn.SiLU"),
    "elu": Callee(path="nn.ELU", implied={"alpha": 1.0}),
    "tanh": Callee(path="nn.Tanh"),
    "sigmoid": Callee(path="nn.Sigmoid"),
    "softmax": Callee(path="nn.Softmax"),
    "identity": Callee(path="nn.Identity"),
}
"""How each built-in layer is constructed; the layers inside a ``residual`` are its positional arguments."""

PAIRS = ("kernel_size", "stride", "padding", "dilation", "output_padding")
"""Options (height, width) that read better as one number where both are equal."""
SIZES = ("shape", "dims")
"""Options that are always passed as a tuple."""


def resolve_function(family: str, name: str, options: Mapping[str, Value], *, literal: bool = False) -> Resolved:
    """Return the call of a built-in function; ``literal`` says that one of its operands is a number."""
    callee = FUNCTIONS[family][name]
    path = callee.literal if literal and callee.literal else callee.path
    return _resolve(callee, path, options)


def resolve_layer(kind: str, options: Mapping[str, Value]) -> Resolved:
    """Return the construction of a built-in layer from its options, sizes included."""
    options = {name: _one_number(value) if name in PAIRS else value for name, value in options.items()}
    if kind in ("avg_pool", "max_pool") and options.get("stride") == options.get("kernel_size"):
        del options["stride"]
    callee = LAYERS[kind]
    path = next((path for (name, value), path in callee.paths.items() if options.get(name) == value), callee.path)
    chosen = {name for name, _ in callee.paths}
    return _resolve(callee, path, {name: value for name, value in options.items() if name not in chosen})


def _resolve(callee: Callee, path: str, options: Mapping[str, Value]) -> Resolved:
    """Return a call with every option in its place; None and the callee's own defaults are left out."""
    values = {name: _tuple(value) if name in SIZES else value for name, value in {**callee.fills, **options}.items()}
    return Resolved(
        path=path,
        gathered=callee.gathered,
        first=tuple(values[name] for name in callee.first),
        positional=tuple(values[name] for name in callee.positional),
        keywords=_keywords(callee, values),
    )


def _keywords(callee: Callee, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return the options that are passed by keyword and say something."""
    placed = {*callee.first, *callee.positional}
    named = {callee.keywords.get(name, name): value for name, value in values.items() if name not in placed}
    told = {name: value for name, value in named.items() if value is not None and callee.implied.get(name) != value}
    return {**dict.fromkeys(callee.beside), **told} if told else {}


def _one_number(value: Value) -> Value:
    """Return (k, k) as k."""
    return value[0] if isinstance(value, tuple) and len(value) == 2 and value[0] == value[1] else value


def _tuple(value: Value) -> Value:
    """Return a single size as a tuple."""
    return value if isinstance(value, tuple) else (value,)
