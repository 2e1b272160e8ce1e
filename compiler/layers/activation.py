"""Layers that act on every element alone (softmax: along one axis), and dropout."""

from __future__ import annotations

from compiler.layers.resolved import LayerResult, LayerTraits
from compiler.layers.use import LayerUse
from compiler.shapes.tensor_type import format_shape


def activation(use: LayerUse) -> LayerResult:
    """Resolve an activation without options: relu, gelu, silu, tanh, sigmoid."""
    use.require_floating()
    return use.same()


def leaky_relu(use: LayerUse) -> LayerResult:
    """Resolve ``leaky_relu``."""
    use.require_floating()
    return use.same(options={"negative_slope": use.options.number("slope")})


def elu(use: LayerUse) -> LayerResult:
    """Resolve ``elu``."""
    use.require_floating()
    return use.same(options={"alpha": use.options.number("alpha")})


def softmax(use: LayerUse) -> LayerResult:
    """Resolve ``softmax``; along axis 0 it makes the samples of a batch depend on each other."""
    use.require_floating()
    axis, rank = use.options.integer("axis"), len(use.shape)
    if not -rank <= axis < rank:
        found = f"`axis: {axis}` for an input of shape {format_shape(use.shape)}"
        raise use.problem(found, f"an axis from {-rank} to {rank - 1} for `softmax`")
    return use.same(options={"dim": axis}, traits=LayerTraits(batch_coupled=axis % rank == 0))


def dropout(use: LayerUse) -> LayerResult:
    """Resolve ``dropout``: in train mode elements become 0 with probability ``p``, the others grow by 1/(1-p)."""
    use.require_floating()
    return use.same(options={"p": use.options.number("p")}, traits=LayerTraits(rng=True))
