"""Resolve the layers of sequences [batch, positions, features], and the convolution of [batch, channels, length]."""

from __future__ import annotations

import math

from compiler.ir.program import Initializer
from compiler.ir.value import Dimension
from compiler.types.arrangement import window_count
from compiler.types.dimension import format_shape
from compiler.types.layer import (
    STANDARD_NORMAL,
    ZEROS,
    LayerResult,
    LayerTraits,
    LayerUse,
    fan_in_uniform,
    weight_and_bias,
)


def conv1d(use: LayerUse) -> LayerResult:
    """Resolve ``conv1d``; weight [out, in/groups, kernel]."""
    use.require_floating()
    if len(use.shape) != 3:
        raise use.wrong_input("[batch, channels, length]", "give the input three axes, for example with `reshape`")
    channels, out, groups = use.require_size(1, "channels"), use.options.integer("out"), use.options.integer("groups")
    for count, what in ((channels, "channels in"), (out, "channels out")):
        if count % groups:
            raise use.problem(f"{count} {what}, `groups: {groups}`", "a number of channels divisible by `groups`")
    window = {name: use.options.integer(name) for name in ("kernel", "stride", "padding", "dilation")}
    length = window_count(use.shape[2], **window)
    if isinstance(length, int) and length < 1:
        found = f"a result of length {length} from {format_shape(use.shape)}"
        raise use.problem(found, "at least one position after `conv1d`", "use a smaller kernel, or more padding")
    rest = {name: window[name] for name in ("stride", "padding", "dilation")}
    return LayerResult(
        output=(use.shape[0], out, length),
        dtype=use.dtype,
        options={
            "in_channels": channels,
            "out_channels": out,
            "kernel_size": window["kernel"],
            **rest,
            "groups": groups,
            "bias": use.options.flag("bias"),
        },
        parameters=weight_and_bias(use, (out, channels // groups, window["kernel"]), channels // groups, out),
    )


def positional(use: LayerUse) -> LayerResult:
    """Resolve ``positional``: a learned table [count, features], or sines and cosines without a limit."""
    positions, features = _require_sequence(use)
    is_learned, has_count = use.options.word("method") == "learned", use.options.has("count")
    if not is_learned:
        if has_count:
            raise use.problem("`count` with `method: sinusoidal`", "no `count`", "sines have no last position")
        return use.same(options={"method": "sinusoidal"})
    count = use.options.integer("count") if has_count else use.require_size(1, "positions, or `count`,")
    if isinstance(positions, int) and positions > count:
        raise use.wrong_input(f"at most {count} positions", "raise `count`")
    return use.same(
        options={"count": count, "features": features, "method": "learned"},
        parameters=(use.tensor("weight", (count, features), STANDARD_NORMAL),),
    )


def attention(use: LayerUse) -> LayerResult:
    """Resolve ``multi_head_attention``; its tensors and their initial values are those of ``nn.MultiheadAttention``.

    The three projections of the input are one matrix, drawn by the rule of Glorot & Bengio (2010), section 4.2.1.
    """
    _, features = _require_sequence(use)
    heads, bias, dropout = use.options.integer("heads"), use.options.flag("bias"), use.options.number("dropout")
    if features % heads:
        help = f"choose `heads` among the divisors of {features}"
        raise use.problem(f"{features} features, `heads: {heads}`", "features divisible by `heads`", help)
    glorot = Initializer(kind="uniform", bound=math.sqrt(6 / (features + 3 * features)))
    weight = use.tensor("in_proj_weight", (3 * features, features), glorot)
    offset = use.tensor("in_proj_bias", (3 * features,), ZEROS)
    out = use.tensor("out_proj.weight", (features, features), fan_in_uniform(features))
    last = use.tensor("out_proj.bias", (features,), ZEROS)
    return use.same(
        options={
            "embed_dim": features,
            "num_heads": heads,
            "causal": use.options.flag("causal"),
            "dropout": dropout,
            "bias": bias,
        },
        parameters=(weight, offset, out, last) if bias else (weight, out),
        traits=LayerTraits(rng=dropout > 0),
    )


GATES = {"lstm": 4, "gru": 3}


def recurrent(use: LayerUse) -> LayerResult:
    """Resolve ``lstm`` and ``gru``; tensors have the names of PyTorch, all drawn within 1/sqrt(size)."""
    positions, features = _require_sequence(use)
    size, both = use.options.integer("size"), use.options.flag("bidirectional")
    rows, initializer = GATES[use.layer.kind] * size, fan_in_uniform(size)
    shapes = {"weight_ih": (rows, features), "weight_hh": (rows, size), "bias_ih": (rows,), "bias_hh": (rows,)}
    width, last = size * (1 + both), use.options.flag("last")
    return LayerResult(
        output=(use.shape[0], width) if last else (use.shape[0], positions, width),
        dtype=use.dtype,
        options={"input_size": features, "hidden_size": size, "bidirectional": both, "last": last},
        parameters=tuple(
            use.tensor(f"{name}_l0{suffix}", shape, initializer)
            for suffix in ("", "_reverse")[: 1 + both]
            for name, shape in shapes.items()
        ),
    )


def _require_sequence(use: LayerUse) -> tuple[Dimension, int]:
    """Return the positions and features of a floating sequence [batch, positions, features]."""
    use.require_floating()
    if len(use.shape) != 3:
        help = "give the input three axes, for example with `{reshape: [positions, features]}` before it"
        raise use.wrong_input("[batch, positions, features]", help)
    return use.shape[1], use.require_size(2, "features")
