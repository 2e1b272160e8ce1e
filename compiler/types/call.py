"""One evaluation of a built-in function: what the rule of a function is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import Struct

from compiler.ir.value import Constant, Shape
from compiler.types.dimension import Place, ShapeProblem, TensorType, format_shape
from compiler.types.dtype import Argument, is_not_floating, literal_dtype
from graphspec.declare.subscripts import Subscript


class Options(Struct, frozen=True, kw_only=True):
    """Plain options, defaults included; reading one as a type it does not have raises :class:`ShapeProblem`."""

    values: Mapping[str, object]
    place: Place = ()
    defaults: Mapping[str, object] = {}

    def raw(self, name: str) -> object:
        """Return the value as written, or its default, or None."""
        return self.values[name] if name in self.values else self.defaults.get(name)

    def has(self, name: str) -> bool:
        """Return whether the option is neither absent nor null."""
        return self.raw(name) is not None

    def integer(self, name: str) -> int:
        """Return a whole number."""
        value = self.raw(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise self._wrong(name, "a whole number")

    def number(self, name: str) -> int | float:
        """Return a number."""
        value = self.raw(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        raise self._wrong(name, "a number")

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self.raw(name)
        if isinstance(value, bool):
            return value
        raise self._wrong(name, "true or false")

    def word(self, name: str) -> str:
        """Return a text."""
        value = self.raw(name)
        if isinstance(value, str):
            return value
        raise self._wrong(name, "a name")

    def sizes(self, name: str) -> tuple[int | str, ...]:
        """Return a list of whole numbers and names; one alone is a list of one."""
        value = self.raw(name)
        items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)
        sizes = tuple(item for item in items if isinstance(item, int | str) and not isinstance(item, bool))
        if len(sizes) != len(items):
            raise self._wrong(name, "a list of sizes")
        return sizes

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers; one alone is a list of one."""
        sizes = tuple(size for size in self.sizes(name) if isinstance(size, int))
        if len(sizes) != len(self.sizes(name)):
            raise self._wrong(name, "a list of whole numbers")
        return sizes

    def subscript(self, name: str) -> Subscript:
        """Return what stands between brackets."""
        value = self.raw(name)
        if isinstance(value, Subscript):
            return value
        raise self._wrong(name, "a subscript")

    def pair(self, name: str) -> tuple[int, int]:
        """Return ``(height, width)``; one number sets both."""
        match self.integers(name):
            case (both,):
                return both, both
            case (height, width):
                return height, width
            case _:
                raise self._wrong(name, "a whole number or [height, width]")

    def _wrong(self, name: str, expected: str) -> ShapeProblem:
        found = f"`{name}: {self.raw(name)}`" if self.has(name) else f"no `{name}`"
        return ShapeProblem(self.place, found, f"`{name}` to be {expected}")


class FunctionUse(Struct, frozen=True, kw_only=True):
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
            if dtype == "bool":
                help = "make a mask numbers with `where(mask, 1.0, 0.0)`"
            raise self.wrong_input(index, f"dtype {dtype}", f"a floating-point dtype for `{self.name}`", help)

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
