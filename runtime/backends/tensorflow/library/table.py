"""How emitted code calls each built-in function and layer; read without TensorFlow."""

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


def _over(path: str) -> Callee:
    """Return a call over axes."""
    return Callee(path=path, implied={"axis": None, "keepdims": False})


LOSSES: Mapping[str, Callee] = {
    "cross_entropy": loss("cross_entropy", axis=1, label_smoothing=0.0),
    "nll": loss("nll"),
    "bce": loss("bce"),
    "bce_with_logits": loss("bce_with_logits"),
    "mse": loss("mse"),
    "l1": loss("l1"),
    "huber": loss("huber", delta=1.0),
    "kl_div": loss("kl_div", temperature=1.0),
    "hinge": loss("hinge"),
    "cosine": loss("cosine_distance"),
    "nt_xent": loss("nt_xent", temperature=0.5),
    "focal": loss("focal", alpha=0.25, gamma=2.0),
    "dice": loss("dice", axis=None, smooth=1e-7),
    "gaussian_nll": loss("gaussian_nll", full=False, eps=1e-6),
    "poisson_nll": loss("poisson_nll", log_input=True, full=False, eps=1e-8),
    "triplet_margin": loss("triplet_margin", margin=1.0, swap=False),
    "ctc": loss("ctc", blank=0, zero_infinity=False),
    "wasserstein": loss("wasserstein", sign=1.0),
    "super_loss": loss("super_loss", threshold=None, regularization=1.0),
}

CALLS: Mapping[str, Callee] = {
    "add": Callee(path="add"),
    "sub": Callee(path="sub"),
    "mul": Callee(path="mul"),
    "div": Callee(path="div"),
    "neg": Callee(path="tf.negative"),
    "pow": Callee(path="power"),
    "minimum": Callee(path="minimum"),
    "maximum": Callee(path="maximum"),
    "less": Callee(path="less"),
    "less_equal": Callee(path="less_equal"),
    "greater": Callee(path="greater"),
    "greater_equal": Callee(path="greater_equal"),
    "equal": Callee(path="equal"),
    "not_equal": Callee(path="not_equal"),
    "matmul": Callee(path="matmul"),
    "outer": Callee(path="outer"),
    "einsum": Callee(path="tf.einsum", before=("equation",)),
    "mean": _over("tf.reduce_mean"),
    "all_mean": Callee(path="tf.reduce_mean", fills={"axis": 0}),
    "sum": _over("reduce_sum"),
    "max": _over("tf.reduce_max"),
    "min": _over("tf.reduce_min"),
    "sqrt": Callee(path="sqrt"),
    "square": Callee(path="tf.square"),
    "exp": Callee(path="exp"),
    "log": Callee(path="log"),
    "abs": Callee(path="absolute"),
    "sign": Callee(path="sign"),
    "clip": Callee(path="clip"),
    "norm": _over("norm"),
    "normalize": Callee(path="normalize", implied={"axis": -1}),
    "softmax": Callee(path="tf.nn.softmax", implied={"axis": -1}),
    "log_softmax": Callee(path="tf.nn.log_softmax", implied={"axis": -1}),
    "logsumexp": _over("tf.reduce_logsumexp"),
    "cumsum": Callee(path="cumsum", implied={"axis": -1}),
    "sort": Callee(path="sort", implied={"axis": -1, "descending": False}),
    "topk": Callee(path="topk", positional=("k",), implied={"axis": -1, "largest": True}),
    "sigmoid": Callee(path="sigmoid"),
    "softplus": Callee(path="tf.math.softplus"),
    "tanh": Callee(path="tanh"),
    "relu": Callee(path="relu"),
    "concat": Callee(path="concat", gathered=True, implied={"axis": 1}),
    "stack": Callee(path="stack", gathered=True, implied={"axis": 0}),
    "split": Callee(path="split", positional=("sections",), implied={"axis": 1}),
    "split_rows": Callee(path="split_rows", positional=("count",)),
    "slice": Callee(path="cut", implied={"start": 0, "axis": 1}),
    "gather": Callee(path="take_along", implied={"axis": 1}),
    "reshape": Callee(path="tf.reshape", positional=("shape",)),
    "expand": Callee(path="expand", positional=("shape",)),
    "permute": Callee(path="tf.transpose", positional=("dims",)),
    "roll": Callee(path="tf.roll", positional=("shifts",), fills={"axis": -1}),
    "pad": Callee(path="pad", positional=("pad",), implied={"method": "constant", "value": 0.0}),
    "interpolate": Callee(path="resize", implied={"method": "nearest"}),
    "one_hot": Callee(path="one_hot", positional=("classes",)),
    "argmax": Callee(path="argmax", implied={"axis": 1}),
    "where": Callee(path="where"),
    "lerp": Callee(path="interpolate"),
    "stop": Callee(path="tf.stop_gradient"),
}
"""Right for operands of any types; those of masks, and ``subscript``, are Python's operators always."""

FLOATING: Mapping[str, Callee] = {
    "sum": _over("tf.reduce_sum"),
    "sqrt": Callee(path="tf.sqrt"),
    "exp": Callee(path="tf.exp"),
    "log": Callee(path="tf.math.log"),
    "sigmoid": Callee(path="tf.sigmoid"),
    "tanh": Callee(path="tf.tanh"),
    "concat": Callee(path="tf.concat", gathered=True, fills={"axis": 1}),
    "stack": Callee(path="tf.stack", gathered=True, implied={"axis": 0}),
    "where": Callee(path="tf.where"),
}
"""TensorFlow's own, the same where the operands are floating tensors of one type; so are Python's operators."""

CONSTANT: Mapping[str, Callee] = {"minimum": Callee(path="tf.minimum"), "maximum": Callee(path="tf.maximum")}
"""TensorFlow's own, the same for such operands where no gradient passes: it shares none between equal operands."""

METRICS: Mapping[str, Callee] = {"accuracy": Callee(path="accuracy"), "mean": Callee(path="tf.reduce_mean")}

FUNCTIONS: Mapping[str, Mapping[str, Callee]] = {
    "loss": LOSSES,
    "call": CALLS,
    "metric": METRICS,
    "internal": {**INTERNAL, **REPLICAS},
}
"""How each built-in function is called, by family and name."""


LAYERS: Mapping[str, Callee] = {
    "linear": Callee(path="Linear", positional=("in_features", "out_features"), implied={"bias": True}),
    "conv1d": Callee(path="Conv1d", positional=CHANNELS, implied=WINDOW),
    "conv2d": Callee(path="Conv2d", positional=CHANNELS, implied=WINDOW),
    "conv_transpose2d": Callee(
        path="ConvTranspose2d",
        positional=CHANNELS,
        implied={**WINDOW, "output_padding": 0},
        unused=("dilation", "groups"),  # there is one value only
    ),
    "batch_norm": Callee(path="BatchNorm", positional=("num_features",), implied=NORM, unused=("rank", "sync")),
    "instance_norm": Callee(
        path="InstanceNorm",
        positional=("num_features",),
        implied={"eps": 1e-5, "affine": False},
        unused=("rank",),
    ),
    "layer_norm": Callee(path="LayerNorm", positional=("normalized_shape",), implied=NORM),
    "rms_norm": Callee(path="RMSNorm", positional=("normalized_shape",), implied=NORM),
    "group_norm": Callee(path="GroupNorm", positional=("num_groups", "num_channels"), implied=NORM),
    "spectral_norm": Callee(path="SpectralNorm"),
    "positional": POSITIONAL,
    "multi_head_attention": ATTENTION,
    "lstm": recurrent("LSTM"),
    "gru": recurrent("GRU"),
    "embedding": Callee(path="Embedding", positional=("num_embeddings", "embedding_dim"), unused=("sparse",)),
    "dropout": Callee(path="Dropout", positional=("p",)),
    "flatten": Callee(path="Flatten"),
    "reshape": Callee(path="Reshape", positional=("shape",)),
    "avg_pool": Callee(path="AvgPool", positional=("kernel_size",), implied={"padding": 0}),
    "max_pool": Callee(path="MaxPool", positional=("kernel_size",), implied={"padding": 0}),
    "global_avg_pool": Callee(path="GlobalAvgPool"),
    "upsample": Callee(path="Upsample", positional=("scale_factor",), implied={"mode": "nearest"}),
    "residual": Callee(path="Residual"),
    "relu": Callee(path="ReLU"),
    "leaky_relu": Callee(path="LeakyReLU", positional=("negative_slope",)),
    "gelu": Callee(path="GELU"),
    "silu": Callee(path="SiLU"),
    "elu": Callee(path="ELU", implied={"alpha": 1.0}),
    "tanh": Callee(path="Tanh"),
    "sigmoid": Callee(path="Sigmoid"),
    "softmax": Callee(path="Softmax", implied={"dim": -1}),
    "identity": Callee(path="Identity"),
}
"""How each built-in layer is constructed; the layers inside a ``residual`` are its positional arguments."""


def resolve_function(
    family: str, name: str, options: Mapping[str, Value], *, floating: bool = False, constant: bool = False
) -> Resolved:
    """Return the call of a built-in function.

    ``floating``: all operands are floating tensors of one type; ``constant``: no gradient passes.
    """
    own = {**FLOATING, **(CONSTANT if constant else {})} if floating and family == "call" else {}
    return resolve(own.get(name, FUNCTIONS[family][name]), options)


def resolve_layer(kind: str, options: Mapping[str, Value]) -> Resolved:
    """Return the construction of a built-in layer from its options, sizes included."""
    return resolve_window(LAYERS[kind], options)
