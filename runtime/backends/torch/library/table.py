"""How emitted code calls each built-in function and layer; read without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.codegen.callee import (
    ATTENTION,
    CHANNELS,
    INTERNAL,
    NORM,
    POSITIONAL,
    REPLICAS,
    WINDOW,
    Callee,
    Resolved,
    Value,
    loss,
    recurrent,
    resolve,
    resolve_window,
)

AXES: Mapping[str, str] = {"axis": "dim", "keepdims": "keepdim"}
MODE: Mapping[str, str] = {"method": "mode"}


def _along(path: str, axis: int | None = None, *, gathered: bool = False, companions: tuple[str, ...] = ()) -> Callee:
    """Return a call along an axis, which PyTorch calls ``dim``; ``keepdims`` is ``keepdim``."""
    fills: dict[str, Value] = {} if axis is None else {"axis": axis}
    implied: dict[str, Value] = {"keepdim": False}
    return Callee(path=path, gathered=gathered, keywords=AXES, fills=fills, implied=implied, companions=companions)


LOSSES: Mapping[str, Callee] = {
    "cross_entropy": loss("cross_entropy", axis=1, label_smoothing=0.0),
    "nll": loss("nll"),
    "bce": loss("F.binary_cross_entropy", "bce"),
    "bce_with_logits": loss("F.binary_cross_entropy_with_logits", "bce_with_logits"),
    "mse": loss("F.mse_loss", "mse"),
    "l1": loss("F.l1_loss", "l1"),
    "huber": loss("F.huber_loss", "huber", delta=1.0),
    "kl_div": loss("kl_div", temperature=1.0),
    "hinge": loss("hinge"),
    "cosine": loss("cosine_distance"),
    "nt_xent": loss("nt_xent", temperature=0.5),
    "focal": loss("focal", alpha=0.25, gamma=2.0),
    "dice": loss("dice", axis=None, smooth=1e-7),
    "gaussian_nll": loss("gaussian_nll", full=False, eps=1e-6),
    "poisson_nll": loss("poisson_nll", log_input=True, full=False, eps=1e-8),
    "triplet_margin": loss("F.triplet_margin_loss", margin=1.0, swap=False),
    "ctc": loss("ctc", blank=0, zero_infinity=False),
    "wasserstein": loss("wasserstein", sign=1.0),
    "super_loss": loss("super_loss", threshold=None, regularization=1.0),
}

CALLS: Mapping[str, Callee] = {
    "minimum": Callee(path="torch.minimum", literal="minimum"),
    "maximum": Callee(path="torch.maximum", literal="maximum"),
    "outer": Callee(path="torch.outer"),
    "einsum": Callee(path="torch.einsum", before=("equation",)),
    "mean": _along("torch.mean", companions=("dim",)),
    "all_mean": Callee(path="torch.mean", fills={"dim": 0}),
    "sum": _along("torch.sum", companions=("dim",)),
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
    "log_softmax": _along("torch.log_softmax", -1),
    "logsumexp": Callee(path="logsumexp", implied={"axis": None, "keepdims": False}),
    "cumsum": _along("torch.cumsum", -1),
    "sort": Callee(
        path="torch.sort", keywords=AXES, fills={"axis": -1, "stable": True}, implied={"dim": -1, "descending": False}
    ),
    "topk": Callee(path="topk", positional=("k",), implied={"axis": -1, "largest": True}),
    "sigmoid": Callee(path="torch.sigmoid"),
    "softplus": Callee(path="F.softplus", fills={"threshold": 40.0}),  # 20 by default: off by 2e-9, with a slope of 1
    "tanh": Callee(path="torch.tanh"),
    "relu": Callee(path="torch.relu"),
    "concat": _along("torch.cat", 1, gathered=True),
    "stack": _along("torch.stack", 0, gathered=True),
    "split": Callee(path="split", positional=("sections",), implied={"axis": 1}),
    "split_rows": Callee(path="split_rows", positional=("count",)),
    "slice": Callee(path="cut", fills={"start": 0}, implied={"axis": 1}),
    "gather": Callee(path="torch.gather", first=("axis",), fills={"axis": 1}),
    "reshape": Callee(path="torch.reshape", positional=("shape",)),
    "expand": Callee(path="torch.Tensor.expand", positional=("shape",)),
    "permute": Callee(path="torch.permute", positional=("dims",)),
    "roll": Callee(path="torch.roll", positional=("shifts",), keywords={"axis": "dims"}, fills={"axis": -1}),
    "pad": Callee(path="F.pad", positional=("pad",), keywords=MODE, implied={"mode": "constant", "value": 0.0}),
    "interpolate": Callee(
        path="F.interpolate", keywords={**MODE, "factor": "scale_factor"}, implied={"mode": "nearest"}
    ),
    "one_hot": Callee(path="one_hot", positional=("classes",)),
    "argmax": _along("torch.argmax", 1),
    "where": Callee(path="torch.where", typed="where"),
    "lerp": Callee(path="interpolate"),
}
"""The calls that are no operators of Python, as arithmetic, comparisons, masks, ``subscript`` and ``stop`` are."""

METRICS: Mapping[str, Callee] = {"accuracy": Callee(path="accuracy"), "mean": Callee(path="torch.mean")}

FUNCTIONS: Mapping[str, Mapping[str, Callee]] = {
    "loss": LOSSES,
    "call": CALLS,
    "metric": METRICS,
    "internal": {**INTERNAL, **REPLICAS},
}
"""How each built-in function is called, by family and name."""

RANKS: Mapping[tuple[str, Value], str] = {
    ("sync", True): "SyncedBatchNorm",
    ("rank", 2): "nn.BatchNorm1d",
    ("rank", 3): "nn.BatchNorm1d",
    ("rank", 4): "nn.BatchNorm2d",
}
INSTANCES: Mapping[tuple[str, Value], str] = {("rank", 3): "nn.InstanceNorm1d", ("rank", 4): "nn.InstanceNorm2d"}

LAYERS: Mapping[str, Callee] = {
    "linear": Callee(path="nn.Linear", positional=("in_features", "out_features"), implied={"bias": True}),
    "conv1d": Callee(path="nn.Conv1d", positional=CHANNELS, implied=WINDOW),
    "conv2d": Callee(path="nn.Conv2d", positional=CHANNELS, implied=WINDOW),
    "conv_transpose2d": Callee(path="nn.ConvTranspose2d", positional=CHANNELS, implied={**WINDOW, "output_padding": 0}),
    "batch_norm": Callee(path="nn.BatchNorm2d", paths=RANKS, positional=("num_features",), implied=NORM),
    "instance_norm": Callee(
        path="nn.InstanceNorm2d", paths=INSTANCES, positional=("num_features",), implied={"eps": 1e-5, "affine": False}
    ),
    "layer_norm": Callee(path="nn.LayerNorm", positional=("normalized_shape",), implied=NORM),
    "rms_norm": Callee(path="nn.RMSNorm", positional=("normalized_shape",)),  # whose own `eps` is another
    "group_norm": Callee(path="nn.GroupNorm", positional=("num_groups", "num_channels"), implied=NORM),
    "spectral_norm": Callee(path="SpectralNorm"),
    "positional": POSITIONAL,
    "multi_head_attention": ATTENTION,
    "lstm": recurrent("LSTM"),
    "gru": recurrent("GRU"),
    "embedding": Callee(path="nn.Embedding", positional=("num_embeddings", "embedding_dim"), implied={"sparse": False}),
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


def resolve_function(
    family: str, name: str, options: Mapping[str, Value], *, literal: bool = False, typed: bool = False
) -> Resolved:
    """Return the call of a built-in function.

    ``literal``: one of its operands is a number; ``typed``: the type of the step is passed.
    """
    return resolve(FUNCTIONS[family][name], options, literal=literal, typed=typed)


def resolve_layer(kind: str, options: Mapping[str, Value]) -> Resolved:
    """Return the construction of a built-in layer from its options, sizes included."""
    return resolve_window(LAYERS[kind], options)
