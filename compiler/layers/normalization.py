"""Normalisation layers: batch_norm, layer_norm, group_norm."""

from __future__ import annotations

from compiler.layers.initial import ONES, ZEROS
from compiler.layers.resolved import LayerResult, LayerTraits
from compiler.layers.use import LayerUse
from compiler.program import TensorDecl


def batch_norm(use: LayerUse) -> LayerResult:
    """Resolve ``batch_norm`` over axis 1 of [batch, features], [batch, channels, length] or images."""
    use.require_floating()
    if len(use.shape) not in (2, 3, 4):
        raise use.wrong_input("[batch, channels, ...] with two to four axes", "use `flatten` or `reshape` before it")
    features, affine = use.require_size(1, "channels"), use.options.flag("affine")
    options = {"eps": use.options.number("eps"), "momentum": use.options.number("momentum"), "affine": affine}
    statistics = (
        use.tensor("running_mean", (features,), ZEROS),
        use.tensor("running_var", (features,), ONES),
        use.tensor("num_batches_tracked", (), ZEROS, dtype="int64"),
    )
    return use.same(
        options={"num_features": features, **options, "rank": len(use.shape)},
        parameters=_scale_and_offset(use, features) if affine else (),
        buffers=statistics,
        traits=LayerTraits(buffers=True, batch_coupled=True),
    )


def layer_norm(use: LayerUse) -> LayerResult:
    """Resolve ``layer_norm`` over the last axis."""
    use.require_floating()
    if len(use.shape) < 2:
        raise use.wrong_input("[batch, ..., features]", "give the input a batch axis")
    features = use.require_size(-1, "features")
    options = {"normalized_shape": features, "eps": use.options.number("eps")}
    return use.same(options=options, parameters=_scale_and_offset(use, features))


def group_norm(use: LayerUse) -> LayerResult:
    """Resolve ``group_norm`` over groups of axis 1 and all axes after it."""
    use.require_floating()
    if len(use.shape) < 2:
        raise use.wrong_input("[batch, channels, ...]", "give the input a batch axis")
    channels, groups = use.require_size(1, "channels"), use.options.integer("groups")
    if channels % groups:
        help = f"choose `groups` among the divisors of {channels}"
        raise use.problem(f"{channels} channels, `groups: {groups}`", "channels divisible by `groups`", help)
    options = {"num_groups": groups, "num_channels": channels, "eps": use.options.number("eps")}
    return use.same(options=options, parameters=_scale_and_offset(use, channels))


def _scale_and_offset(use: LayerUse, size: int) -> tuple[TensorDecl, ...]:
    """Return weight (ones) and bias (zeros)."""
    return use.tensor("weight", (size,), ONES), use.tensor("bias", (size,), ZEROS)
