"""One layer at its place in a model, with the tensor that comes in: what a layer's rule is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.layers.resolved import PURE, LayerResult, LayerTraits
from compiler.operands import Dimension, Plain, Shape
from compiler.program import Initializer, TensorDecl
from compiler.shapes.dtype import is_not_floating
from compiler.shapes.options import Options
from compiler.shapes.problem import Place, ShapeProblem
from compiler.shapes.tensor_type import format_shape
from graphspec.layers import Layer

AXES_OF_IMAGES = "[batch, channels, height, width]"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerUse:
    """A layer, where it stands (``place`` in the spec, ``path`` in parameter names), and its input."""

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
            raise self.problem(f"an input of dtype {self.dtype}", f"a floating dtype for `{self.layer.kind}`", help)

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
