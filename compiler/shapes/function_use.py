"""One evaluation of a built-in function: what the rule of a function is given."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.operands import Constant, Shape
from compiler.shapes.dtype import Argument, is_not_floating, literal_dtype
from compiler.shapes.options import Options
from compiler.shapes.problem import ShapeProblem
from compiler.shapes.tensor_type import TensorType, format_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionUse:
    """A built-in function with the types of its operands; paths of problems go below its op."""

    name: str
    inputs: tuple[Argument, ...]
    options: Options
    reduction: str | None = None

    def tensor(self, index: int) -> TensorType:
        """Return the type of an operand; a literal is a tensor without dimensions."""
        operand = self.inputs[index]
        return TensorType((), literal_dtype(operand.value)) if isinstance(operand, Constant) else operand

    def tensors(self) -> tuple[TensorType, ...]:
        """Return the types of all operands."""
        return tuple(self.tensor(index) for index in range(len(self.inputs)))

    def is_literal(self, index: int) -> bool:
        """Return whether an operand is a number or boolean written in the spec."""
        return isinstance(self.inputs[index], Constant)

    def wrong_input(self, index: int, found: str, expected: str, help: str = "") -> ShapeProblem:
        """Return the error about an operand."""
        return ShapeProblem(("inputs", index), found, expected, help)

    def wrong_option(self, name: str, found: str, expected: str, help: str = "") -> ShapeProblem:
        """Return the error about an option."""
        return ShapeProblem(("args", name), found, expected, help)

    def require_floating(self, index: int) -> None:
        """Refuse integers and booleans (not literals)."""
        dtype = self.tensor(index).dtype
        if is_not_floating(dtype) and not self.is_literal(index):
            help = "declare the input it comes from with dtype float32"
            raise self.wrong_input(index, f"dtype {dtype}", f"a floating dtype for `{self.name}`", help)

    def axis(self, shape: Shape, name: str = "axis", *, new: int = 0) -> int:
        """Return an axis counted from 0; ``new`` is 1 where the axis is inserted."""
        return self.check_axis(self.options.integer(name), shape, name, new)

    def check_axis(self, axis: int, shape: Shape, name: str = "axis", new: int = 0) -> int:
        """Return ``axis`` counted from 0, or raise the error that it does not exist."""
        rank = max(len(shape) + new, 1)
        if -rank <= axis < rank:
            return axis % rank
        found = f"`{name}: {axis}` for a value of shape {format_shape(shape)}"
        raise self.wrong_option(name, found, f"an axis from {-rank} to {rank - 1}")
