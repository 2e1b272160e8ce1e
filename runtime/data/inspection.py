"""Inspection: checks every batch for numbers that are not finite and labels out of range, before it is used."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from compiler.ir.instructions import Evaluate, Forward
from compiler.ir.program import LayerDecl, Program
from compiler.ir.value import Dimension, Ref
from compiler.plan.plan import Plan
from graphspec.diagnostics import SpecError
from runtime.data.arrays import Array, Batch
from runtime.data.place import Place
from runtime.terminal import counted

_WHOLE = frozenset({"int64", "int32", "uint8"})
_SAME_ELEMENTS = frozenset({"reshape", "expand", "permute", "stop"})
"""Functions whose result has exactly the elements of their operand."""
_SAME_LAYERS = frozenset({"flatten", "reshape", "identity"})


class Label(Struct, frozen=True, kw_only=True):
    """One use of an input: its values are from 0 to ``count`` - 1; None where the compiler does not know how many."""

    input: str
    count: int | None
    use: str
    """What needs them, for messages: ``the target of cross_entropy in 'loss'``."""


def find_labels(plan: Plan) -> tuple[Label, ...]:
    """Return every use of an input as class numbers or indices, in any mode, each once."""
    inputs = {name: declared.of or name for name, declared in plan.spec.inputs.items() if declared.dtype in _WHOLE}
    """The values that have the elements of an input, and that input."""
    found: dict[Label, None] = {}
    for mode in plan.program.modes:
        for instruction in (each for function in mode.functions for each in function.instructions):
            match instruction:
                case Evaluate(function=function) if function.builtin and function.name in _SAME_ELEMENTS:
                    source = _find_operand(instruction, 0)
                    if source is not None and source in inputs:
                        inputs[instruction.outputs[0]] = inputs[source]
                case Forward() | Evaluate():
                    for call in instruction.apart if isinstance(instruction, Forward) else (instruction,):
                        value, count, use = _find_use(call, plan)
                        if value is not None and value in inputs:
                            found[Label(input=inputs[value], count=count, use=use)] = None
                case _:
                    pass
    return tuple(found)


def _find_use(instruction: Forward | Evaluate, plan: Plan) -> tuple[str | None, int | None, str]:
    """Return the value whose elements an instruction uses as labels, how many there are, and what needs them.

    The value is None where there is none, the number where the compiler does not know it.
    """
    first, second = _find_operand(instruction, 0), _find_operand(instruction, 1)
    if isinstance(instruction, Forward):
        layers = (each for each in _find_layers(instruction.model, plan.program) if each.kind not in _SAME_LAYERS)
        layer = next(layers, None)
        rows = layer.options.get("num_embeddings") if layer is not None and layer.kind == "embedding" else None
        value = first if isinstance(rows, int) else None
        return value, rows if isinstance(rows, int) else None, f"the indices of an embedding in '{instruction.op}'"
    name, options = instruction.function.name, instruction.options
    use = f"{name} in '{instruction.op}'"
    match name if instruction.function.builtin else "":
        case "cross_entropy" | "nll":
            return second, _find_size(first, options.get("axis", 1), plan), f"the target of {use}"
        case "ctc":
            return second, _find_size(first, -1, plan), f"the target of {use}"
        case "one_hot":
            classes = options.get("classes")
            return first, classes if isinstance(classes, int) else None, f"the classes of {use}"
        case "gather":
            return second, _find_size(first, options.get("axis", 1), plan), f"the indices of {use}"
        case _:
            return None, None, ""


def _find_operand(instruction: Evaluate | Forward, position: int) -> str | None:
    """Return the name of a positional operand; None where it is a literal or missing."""
    for argument in instruction.arguments[position : position + 1]:
        return argument.operand.name if isinstance(argument.operand, Ref) else None
    return None


def _find_size(value: str | None, axis: object, plan: Plan) -> int | None:
    """Return the size of a value along an axis, where the compiler knows it."""
    known = plan.types.get(value) if value is not None else None
    if known is None or known.shape is None or not isinstance(axis, int):
        return None
    rank = len(known.shape)
    size: Dimension | None = known.shape[axis] if -rank <= axis < rank else None
    return size if isinstance(size, int) else None


def _find_layers(model: str, program: Program) -> tuple[LayerDecl, ...]:
    """Return the layers of a model, or of the model that it is like."""
    declared = next((each for each in program.models if each.name == model), None)
    if declared is None:
        return ()
    return declared.layers or (_find_layers(declared.like, program) if declared.like is not None else ())


_FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})


class Inspector(Struct, frozen=True, kw_only=True):
    """Inspects the batches of one set; values on a device, or of a type that numpy lacks, are skipped."""

    place: Place
    floats: tuple[str, ...]
    """Inputs whose values must be finite."""
    labels: tuple[Label, ...]
    """Uses whose number of classes is known."""
    notes: tuple[str, ...]
    """Notes on what is checked, and what cannot be."""

    @classmethod
    def of(cls, plan: Plan, role: str = "train", dataset: str | None = None) -> Inspector:
        """Return the inspector of a plan's inputs; ``plan`` is best that of the built step, which knows most sizes."""
        inputs = plan.spec.inputs.items()
        floats = tuple(name for name, declared in inputs if declared.dtype in _FLOATS and declared.of is None)
        labels = find_labels(plan)
        notes = [f"check_data: finite values in {', '.join(floats)}"] if floats else []
        for label in labels:
            if label.count is None:
                unknown = "how many classes there are is not known, so not checked"
                notes.append(f"check_data: {label.input} is {label.use}; {unknown}")
            else:
                notes.append(f"check_data: 0 to {label.count - 1} in {label.input}, {label.use}")
        return cls(
            place=Place(spec=plan.spec, role=role, dataset=dataset),
            floats=floats,
            labels=tuple(label for label in labels if label.count is not None),
            notes=tuple(notes),
        )

    def inspect(self, batch: Batch, number: int) -> None:
        """Inspect the batch of this number, from 1.

        Raises SpecError with every problem: GS250 values that are not finite, GS251 labels out of range.
        """
        errors: list[SpecError] = []
        for name in self.floats:
            array = _read(batch, name)
            if array is None or array.dtype.kind != "f":
                continue
            finite = np.isfinite(array)
            if not finite.all():
                found = counted(int(array.size - np.count_nonzero(finite)), "value")
                message = f"batch {number}: input {name!r} has {found} not finite: {_show_first(array, ~finite)}"
                help = "correct the data: one such value makes all weights that it reaches NaN"
                errors.append(self.place.problem("GS250", message, help=help))
        for label in self.labels:
            array = _read(batch, label.input)
            if array is None or label.count is None or array.dtype.kind not in "iu":
                continue
            outside = np.less(array, 0) | np.greater_equal(array, label.count)
            if outside.any():
                found = counted(int(np.count_nonzero(outside)), "value")
                message = f"batch {number}: input {label.input!r} has {found} outside 0 to {label.count - 1}: "
                message += _show_first(array, outside)
                help = "labels count from 0; correct the data, or make room for more classes"
                errors.append(self.place.problem("GS251", message, notes=(f"it is {label.use}",), help=help))
        if errors:
            raise SpecError((each for error in errors for each in error.diagnostics), self.place.spec.texts())


def _read(batch: Batch, name: str) -> Array | None:
    """Return an input as an array; None where it is missing, on a device, or of a type that numpy lacks."""
    try:
        array: Array = np.asarray(batch.get(name))
    except (TypeError, ValueError, RuntimeError):
        return None
    return array


def _show_first(array: Array, wrong: npt.NDArray[np.bool_]) -> str:
    """Return the first element that is wrong with its place: the row is the sample of the batch, from 0."""
    where = tuple(int(index) for index in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    row, *rest = where or (0,)
    return f"{array[where]} at row {row}" + (f", {rest}" if rest else "")
