"""Labels: inputs of whole numbers that a program uses as class numbers or indices, and how many of those there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass

from compiler.ir.instructions import Evaluate, Forward, Instruction
from compiler.ir.program import LayerDecl, Program
from compiler.ir.value import Dimension, Ref
from compiler.plan.plan import Plan

_WHOLE = frozenset({"int64", "int32", "uint8"})
_SAME_ELEMENTS = frozenset({"reshape", "permute", "stop"})
"""Functions whose result has the elements of their operand, all of them."""
_SAME_LAYERS = frozenset({"flatten", "reshape", "identity"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One use of an input: its values are from 0 to ``count`` - 1; None where the compiler does not know how many."""

    input: str
    count: int | None
    use: str
    """What needs them, as a message says it: ``the target of cross_entropy in 'loss'``."""


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
    """Yield the uses by one instruction; ``inputs`` are the values that hold an input's elements, added to here."""
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
    """Return the name of an operand, which stands by its position; None where it is a literal or missing."""
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
    """Return the layers of a model, or of the one it is a likeness of."""
    declared = next((each for each in program.models if each.name == model), None)
    if declared is None:
        return ()
    return declared.layers or (_find_layers(declared.like, program) if declared.like is not None else ())


def _count_rows(layers: tuple[LayerDecl, ...]) -> int | None:
    """Return how many rows the embedding has that layers begin with; None where they begin with something else."""
    first = next((layer for layer in layers if layer.kind not in _SAME_LAYERS), None)
    count = first.options.get("num_embeddings") if first is not None and first.kind == "embedding" else None
    return count if isinstance(count, int) else None
