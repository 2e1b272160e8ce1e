"""What the rule of one layer is given, and what it finds."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from compiler.ir.program import Initializer, LayerDecl, TensorDecl
from compiler.ir.value import Dimension, Plain, Shape
from compiler.types.call import Options
from compiler.types.dimension import Place, ShapeProblem, format_shape
from compiler.types.dtype import is_not_floating
from graphspec.declare.layers import Layer


class LayerTraits(Struct, frozen=True, kw_only=True):
    """What the schedule must know: written buffers, random draws, samples of a batch that influence each other."""

    buffers: bool = False
    rng: bool = False
    batch_coupled: bool = False

    def __or__(self, other: LayerTraits) -> LayerTraits:
        """Return the traits of two layers together."""
        return LayerTraits(
            buffers=self.buffers or other.buffers,
            rng=self.rng or other.rng,
            batch_coupled=self.batch_coupled or other.batch_coupled,
        )


PURE = LayerTraits()


class LayerResult(Struct, frozen=True, kw_only=True):
    """What the rule of one layer finds: its result, its options with every size, its tensors by their full names."""

    output: Shape
    dtype: str | None
    options: Mapping[str, Plain] = {}
    parameters: tuple[TensorDecl, ...] = ()
    buffers: tuple[TensorDecl, ...] = ()
    traits: LayerTraits = PURE
    layers: tuple[LayerDecl, ...] = ()


AXES_OF_IMAGES = "[batch, channels, height, width]"


class LayerUse(Struct, frozen=True, kw_only=True):
    """A layer, where it is (``place`` in the spec, ``path`` in parameter names), and its input."""

    layer: Layer
    options: Options
    place: Place
    path: str
    shape: Shape
    dtype: str | None

    def problem(self, found: str, expected: str, help: str = "") -> ShapeProblem:
        """Return the error about this layer."""
        return ShapeProblem(self.place, found, expected, help)

    def wrong_input(self, axes: str, help: str) -> ShapeProblem:
        """Return the error that says which axes the input should have."""
        return self.problem(f"an input of shape {format_shape(self.shape)}", f"{axes} for `{self.layer.kind}`", help)

    def require_floating(self) -> None:
        """Refuse integers and booleans."""
        if is_not_floating(self.dtype):
            help = "declare the input with dtype float32, or begin with an `embedding` if these are indices"
            raise self.problem(
                f"an input of dtype {self.dtype}", f"a floating-point dtype for `{self.layer.kind}`", help
            )

    def require_image(self) -> tuple[Dimension, Dimension, Dimension, Dimension]:
        """Return batch, channels, height and width of a floating image."""
        self.require_floating()
        match self.shape:
            case (batch, channels, height, width):
                return batch, channels, height, width
            case _:
                help = "give the input four axes, for example with `{reshape: [channels, height, width]}` before it"
                raise self.wrong_input(AXES_OF_IMAGES, help)

    def require_size(self, axis: int, what: str) -> int:
        """Return the size of an axis that decides the size of a parameter."""
        size = self.shape[axis]
        if isinstance(size, int):
            return size
        found = f"`{size}`, a size that is not known before the step runs, in the input {format_shape(self.shape)}"
        help = "give the input of the model a number for this axis; its parameters need it"
        raise self.problem(found, f"a known number of {what} for `{self.layer.kind}`", help)

    def tensor(self, name: str, shape: tuple[int, ...], initializer: Initializer, dtype: str = "float32") -> TensorDecl:
        """Return a parameter or buffer of this layer under its full name."""
        return TensorDecl(name=f"{self.path}.{name}", shape=shape, initializer=initializer, dtype=dtype)

    def same(
        self,
        options: Mapping[str, Plain] | None = None,
        parameters: tuple[TensorDecl, ...] = (),
        buffers: tuple[TensorDecl, ...] = (),
        traits: LayerTraits = PURE,
    ) -> LayerResult:
        """Return the result of a layer that keeps shape and dtype."""
        return LayerResult(
            output=self.shape,
            dtype=self.dtype,
            options=options or {},
            parameters=parameters,
            buffers=buffers,
            traits=traits,
        )


ZEROS = Initializer(kind="zeros")
ONES = Initializer(kind="ones")
STANDARD_NORMAL = Initializer(kind="normal", bound=1.0)


def fan_in_uniform(fan_in: int) -> Initializer:
    """Return uniform within 1/sqrt(fan_in).

    For biases PyTorch writes it so; for weights it writes kaiming_uniform with a = sqrt(5), whose bound is
    sqrt(3) * sqrt(2 / (1 + a^2)) / sqrt(fan_in), the same number (He et al. 2015, arXiv:1502.01852).
    """
    return Initializer(kind="uniform", bound=1.0 / math.sqrt(fan_in))


def require_room(use: LayerUse, spatial: list[Dimension]) -> list[Dimension]:
    """Return height and width of the result; refuse what leaves no pixel."""
    if any(isinstance(size, int) and size < 1 for size in spatial):
        found = f"a result of height and width {format_shape(tuple(spatial))} from {format_shape(use.shape)}"
        help = "use a smaller kernel, a smaller stride or more padding, or fewer layers that shrink the image"
        raise use.problem(found, f"at least one pixel after `{use.layer.kind}`", help)
    return spatial


def weight_and_bias(use: LayerUse, shape: tuple[int, ...], planes: int, out: int) -> tuple[TensorDecl, ...]:
    """Return weight and bias, drawn within the bound of ``planes`` kernels of inputs."""
    initializer = fan_in_uniform(planes * math.prod(shape[2:]))
    weight = use.tensor("weight", shape, initializer)
    return (weight, use.tensor("bias", (out,), initializer)) if use.options.flag("bias") else (weight,)


def scale_and_offset(use: LayerUse, size: int) -> tuple[TensorDecl, ...]:
    """Return weight (ones) and bias (zeros)."""
    return use.tensor("weight", (size,), ONES), use.tensor("bias", (size,), ZEROS)
