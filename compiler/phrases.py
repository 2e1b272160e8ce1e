"""Short phrases for instructions, shared by every printed form of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from compiler.cells import is_optimizer
from compiler.program import (
    Apply,
    Argument,
    Assign,
    Blend,
    CellVersion,
    Constant,
    Emit,
    Evaluate,
    Forward,
    Gradient,
    Instruction,
    Plain,
    Random,
    Release,
    Transform,
)


def kind_of(instruction: Instruction) -> str:
    """Return the kind of an instruction as the published format names it."""
    return type(instruction).__name__.lower()


def describe(instruction: Instruction) -> str:
    """Return what an instruction does, in one line: ``fake = generator(z)``."""
    match instruction:
        case Forward():
            method = f".{instruction.method}" if instruction.method else ""
            results = (*instruction.outputs, *(value for value, _ in instruction.taps))
            return f"{', '.join(results)} = {instruction.model}{method}({_arguments(instruction.arguments)})"
        case Evaluate():
            name = instruction.function.name.split(":")[-1]
            call = f"{name}({_arguments(instruction.arguments, instruction.options)})"
            weight = "" if instruction.weight is None else f"{instruction.weight:g} * "
            return f"{', '.join(instruction.outputs)} = {weight}{call}"
        case Random():
            size = f"like {instruction.like}" if instruction.shape is None else _shape(instruction.shape)
            return f"{instruction.output} ~ {instruction.distribution} {size}"
        case Gradient():
            targets = ", ".join((*instruction.models, *instruction.values))
            outputs = ((instruction.output,) if instruction.output else ()) + instruction.value_outputs
            return f"{', '.join(outputs)} = gradient of {instruction.loss} for {targets}"
        case Transform():
            name = instruction.function.name.split(":")[-1]
            return f"{instruction.output} = {name}({', '.join(instruction.inputs)}{_options(instruction.options)})"
        case Apply():
            return "; ".join(
                f"{', '.join(part.models)} <- {part.optimizer}.optimizer({part.gradients})"
                for part in instruction.parts
            )
        case Blend():
            return (
                f"{instruction.target} <- lerp({instruction.target}, {instruction.source}, {1 - instruction.decay:g})"
            )
        case Assign():
            return f"{instruction.target} <- {instruction.source}"
        case Release() | Emit():
            return ", ".join(instruction.values)
        case _:
            assert_never(instruction)


def flags_of(instruction: Instruction) -> tuple[str, ...]:
    """Return what is special about how an instruction runs."""
    match instruction:
        case Forward():
            named = {
                "train": instruction.train,
                "no_grad": not instruction.graph,
                "frozen": instruction.frozen,
                f"snapshot {instruction.snapshot}": instruction.snapshot != "none",
                "stop": instruction.stop,
            }
        case Gradient():
            named = {"retain_graph": instruction.retain_graph, "create_graph": instruction.create_graph}
        case _:
            named = dict[str, bool]()
    detached = [
        argument.operand for argument in arguments_of(instruction) if not isinstance(argument.operand, Constant)
    ]
    return (
        *(name for name, is_set in named.items() if is_set),
        *(f"{ref.name} detached" for ref in detached if ref.detach),
    )


def arguments_of(instruction: Instruction) -> tuple[Argument, ...]:
    """Return the arguments of an instruction that calls something."""
    return instruction.arguments if isinstance(instruction, Forward | Evaluate) else ()


def cells_of(instruction: Instruction) -> str:
    """Return the versions an instruction reads and writes: ``discriminator.params@0 -> @1``; optimizers left out."""
    written = {at.cell: at for at in instruction.writes}
    shown = [
        f"{at} -> @{written[at.cell].version}" if at.cell in written else str(at) for at in _models(instruction.reads)
    ]
    read = {at.cell for at in instruction.reads}
    return ", ".join([*shown, *(f"-> {at}" for at in _models(instruction.writes) if at.cell not in read)])


def _models(versions: Iterable[CellVersion]) -> list[CellVersion]:
    """Return the accesses to models."""
    return [at for at in versions if not is_optimizer(at.cell)]


def _arguments(arguments: tuple[Argument, ...], options: Mapping[str, Plain] | None = None) -> str:
    """Return arguments as in a call."""
    shown = [(f"{argument.name}=" if argument.name else "") + _operand(argument) for argument in arguments]
    return ", ".join(shown) + _options(options or {})


def _operand(argument: Argument) -> str:
    """Return one operand: a name or a number."""
    operand = argument.operand
    return f"{operand.value}" if isinstance(operand, Constant) else operand.name


def _options(options: Mapping[str, Plain]) -> str:
    """Return options as keyword arguments, with a leading comma."""
    return "".join(f", {name}={value}" for name, value in options.items())


def _shape(shape: Iterable[int | str]) -> str:
    """Return a shape as the language writes it."""
    return f"[{', '.join(str(size) for size in shape)}]"
