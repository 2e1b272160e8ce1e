"""Inspection: checks every batch for numbers that are not finite and labels out of range, before it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.ir.instructions import Evaluate, Forward, Instruction
from compiler.ir.program import LayerDecl, Program
from compiler.ir.value import Dimension, Ref
from compiler.plan.plan import Plan
from graphspec.diagnostics import SpecError
from runtime.data.arrays import Array, Batch
from runtime.data.place import Place

_WHOLE = frozenset({"int64", "int32", "uint8"})
_SAME_ELEMENTS = frozenset({"reshape", "permute", "stop"})
"""Functions whose result has exactly the elements of their operand."""
_SAME_LAYERS = frozenset({"flatten", "reshape", "identity"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One use of an input: its values are from 0 to ``count`` - 1; None where the compiler does not know how many."""

    input: str
    count: int | None
    use: str
    """What needs them, for messages: ``the target of cross_entropy in 'loss'``."""


def find_labels(plan: Plan) -> tuple[Label, ...]:
    """Return every use of an input as class numbers or indices, in any mode, each once."""
    inputs = {name: name for name, declared in plan.spec.inputs.items() if declared.dtype in _WHOLE}
    found: dict[Label, None] = {}
    for instruction in _list_instructions(plan.program):
        found.update(dict.fromkeys(_find_uses(instruction, inputs, plan)))
    return tuple(found)


def _list_instructions(program: Program) -> Iterator[Instruction]:
    for mode in program.modes:
        for function in mode.functions:
            yield from function.instructions


def _find_uses(instruction: Instruction, inputs: MutableMapping[str, str], plan: Plan) -> Iterator[Label]:
    """Yield the uses by one instruction; ``inputs``, the values that hold an input's elements, is extended."""
    match instruction:
        case Forward(model=model, op=op):
            count = _count_rows(_find_layers(model, plan.program))
            if count is not None:
                yield from _name(inputs, _find_operand(instruction, 0), count, f"the indices of an embedding in '{op}'")
        case Evaluate(function=function) if function.builtin and function.name in _SAME_ELEMENTS:
            source = _find_operand(instruction, 0)
            if source is not None and source in inputs:
                inputs[instruction.outputs[0]] = inputs[source]
        case Evaluate(function=function) if function.builtin:
            yield from _find_indices(instruction, inputs, plan)
        case _:
            return


def _find_indices(instruction: Evaluate, inputs: Mapping[str, str], plan: Plan) -> Iterator[Label]:
    """Yield the uses by a function of the library."""
    name, op, options = instruction.function.name, instruction.op, instruction.options
    use = f"{name} in '{op}'"
    match name:
        case "cross_entropy" | "nll":
            scores = _find_operand(instruction, 0)
            count = _find_size(scores, options.get("axis", 1), plan)
            yield from _name(inputs, _find_operand(instruction, 1), count, f"the target of {use}")
        case "one_hot":
            classes = options.get("classes")
            count = classes if isinstance(classes, int) else None
            yield from _name(inputs, _find_operand(instruction, 0), count, f"the classes of {use}")
        case "gather":
            count = _find_size(_find_operand(instruction, 0), options.get("axis", 1), plan)
            yield from _name(inputs, _find_operand(instruction, 1), count, f"the indices of {use}")
        case _:
            return


def _name(inputs: Mapping[str, str], value: str | None, count: int | None, use: str) -> Iterator[Label]:
    """Yield the use of a value that holds an input's elements."""
    if value is not None and value in inputs:
        yield Label(input=inputs[value], count=count, use=use)


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


def _count_rows(layers: tuple[LayerDecl, ...]) -> int | None:
    """Return how many rows the embedding has that layers begin with; None where they begin with something else."""
    first = next((layer for layer in layers if layer.kind not in _SAME_LAYERS), None)
    count = first.options.get("num_embeddings") if first is not None and first.kind == "embedding" else None
    return count if isinstance(count, int) else None


_FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspector:
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
        floats = tuple(name for name, declared in plan.spec.inputs.items() if declared.dtype in _FLOATS)
        labels = find_labels(plan)
        return cls(
            place=Place(spec=plan.spec, role=role, dataset=dataset),
            floats=floats,
            labels=tuple(label for label in labels if label.count is not None),
            notes=tuple(_describe(floats, labels)),
        )

    def inspect(self, batch: Batch, number: int) -> None:
        """Inspect the batch of this number, from 1.

        Raises SpecError with every problem: GS250 values that are not finite, GS251 labels out of range.
        """
        errors = (*self._find_not_finite(batch, number), *self._find_out_of_range(batch, number))
        if errors:
            raise SpecError((each for error in errors for each in error.diagnostics), self.place.spec.texts())

    def _find_not_finite(self, batch: Batch, number: int) -> Iterator[SpecError]:
        for name in self.floats:
            array = _read(batch, name)
            if array is None or array.dtype.kind != "f":
                continue
            finite = np.isfinite(array)
            if not finite.all():
                where = _find_first(~finite)
                count = _count(int(array.size - np.count_nonzero(finite)), "value")
                message = f"batch {number}: input {name!r} has {count} not finite: {array[where]} at {_show(where)}"
                help = "mend the data: one such value makes all weights that it reaches NaN"
                yield self.place.problem("GS250", message, help=help)

    def _find_out_of_range(self, batch: Batch, number: int) -> Iterator[SpecError]:
        for label in self.labels:
            array = _read(batch, label.input)
            if array is None or label.count is None or array.dtype.kind not in "iu" or array.size == 0:
                continue
            if array.min() < 0 or array.max() >= label.count:
                yield self._refuse(label, label.count, array, number)

    def _refuse(self, label: Label, classes: int, array: Array, number: int) -> SpecError:
        outside = np.less(array, 0) | np.greater_equal(array, classes)
        where = _find_first(outside)
        count = _count(int(np.count_nonzero(outside)), "value")
        message = f"batch {number}: input {label.input!r} has {count} outside 0 to {classes - 1}: "
        message += f"{array[where]} at {_show(where)}"
        help = "labels count from 0; mend the data, or make room for more classes"
        return self.place.problem("GS251", message, notes=(f"it is {label.use}",), help=help)


def _read(batch: Batch, name: str) -> Array | None:
    """Return an input as an array; None where it is missing, on a device, or of a type that numpy lacks."""
    try:
        array: Array = np.asarray(batch.get(name))
    except (TypeError, ValueError, RuntimeError):
        return None
    return array


def _find_first(wrong: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the coordinates of the first element that is wrong."""
    return tuple(int(index) for index in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def _show(where: tuple[int, ...]) -> str:
    """Return coordinates for messages: the row is the sample of the batch, from 0."""
    row, *rest = where or (0,)
    return f"row {row}" + (f", {rest}" if rest else "")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _describe(floats: tuple[str, ...], labels: tuple[Label, ...]) -> Iterator[str]:
    """Yield what every input is checked for."""
    if floats:
        yield f"check_data: finite values in {', '.join(floats)}"
    for label in labels:
        if label.count is None:
            yield f"check_data: {label.input} is {label.use}; how many classes there are is not known, so not checked"
        else:
            yield f"check_data: 0 to {label.count - 1} in {label.input}, {label.use}"
