"""Short phrases for instructions, shared by every printed form of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from compiler.cells import is_optimizer
from compiler.instructions import (
    Apply,
    Assign,
    Blend,
    Collect,
    Commit,
    Drop,
    Emit,
    Evaluate,
    Forward,
    Gather,
    Gradient,
    Instruction,
    Judge,
    Random,
    Release,
    Schedule,
    Settle,
    Store,
    Transform,
)
from compiler.operands import Argument, CellVersion, Constant, Ref, Scheduled, Setting
from compiler.terms import tell_number, tell_penalty, tell_projection


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
            return _describe_evaluation(instruction)
        case Random():
            return _describe_draw(instruction)
        case Schedule():
            return f"{instruction.output} = {instruction.number.schedule.kind} schedule"
        case Gradient():
            targets = ", ".join((*instruction.models, *instruction.values))
            outputs = ((instruction.output,) if instruction.output else ()) + instruction.value_outputs
            return f"{', '.join(outputs)} = gradient of {instruction.loss} for {targets}"
        case Transform():
            name = instruction.function.name.split(":")[-1]
            used = ", ".join((*instruction.inputs, *map(tell_penalty, instruction.penalties)))
            return f"{instruction.output} = {name}({used}{_options(instruction.options)})"
        case Apply():
            return _describe_step(instruction)
        case Judge() | Settle():
            return _describe_verdict(instruction)
        case Gather() | Collect() | Drop():
            return _describe_window(instruction)
        case Blend():
            return (
                f"{instruction.target} <- lerp({instruction.target}, {instruction.source}, {_taken(instruction.decay)})"
            )
        case Assign():
            return f"{instruction.target} <- {instruction.source}"
        case Store():
            value = instruction.value
            return f"{instruction.state} <- {value.value if isinstance(value, Constant) else value.name}"
        case Release() | Emit():
            return ", ".join(instruction.values)
        case _:
            assert_never(instruction)


def _describe_window(instruction: Gather | Collect | Drop) -> str:
    """Return what is added to a window, or taken out of it."""
    if isinstance(instruction, Drop):
        return f"{instruction.window} window <- nothing"
    if isinstance(instruction, Collect):
        outputs = (instruction.output, instruction.filled) if instruction.filled else (instruction.output,)
        return f"{', '.join(outputs)} = all of {instruction.window} window"
    counted = " for every row" if instruction.reduce == "mean" else ""
    counted = f" for every element that {instruction.count.rpartition('.')[0]} keeps" if instruction.count else counted
    counted = counted if instruction.gradients or not instruction.count else " for every row"
    return f"{instruction.window} window <- + {instruction.gradients or 'nothing'}{counted}"


def _describe_verdict(instruction: Judge | Settle) -> str:
    """Return what is looked at, or what the loss scale follows."""
    if isinstance(instruction, Judge):
        return f"{instruction.output} = all of {', '.join(instruction.gradients)} finite"
    scale = "loss scale <- by " if instruction.scaled else ""
    return f"{scale}{', '.join(instruction.verdicts)}"


def _describe_evaluation(instruction: Evaluate) -> str:
    """Return the call of a function, and what its result is multiplied with."""
    name = instruction.function.name.split(":")[-1]
    call = f"{name}({_arguments(instruction.arguments, instruction.options)})"
    weight = "" if instruction.weight is None else f"{tell_number(instruction.weight)} * "
    times = "" if instruction.times == 1 else f"{instruction.times} * "
    return f"{', '.join(instruction.outputs)} = {times}{weight}{call}"


def _describe_step(instruction: Apply) -> str:
    """Return which optimizers step which models, and what is done to the weights then."""
    steps = (f"{', '.join(part.models)} <- {part.optimizer}.optimizer({part.gradients})" for part in instruction.parts)
    return "; ".join((*steps, *map(tell_projection, instruction.projections)))


def _describe_draw(instruction: Random) -> str:
    """Return what is drawn, of which size, and which of its numbers change."""
    size = f"like {instruction.like}" if instruction.shape is None else _shape(instruction.shape)
    options = {key: each for key, each in instruction.options.items() if isinstance(each, Scheduled)}
    return f"{instruction.output} ~ {instruction.distribution} {size}{_options(options)}"


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
                f"computes in {instruction.compute}": instruction.compute != "float32",
            }
        case Gradient():
            named = {"retain_graph": instruction.retain_graph, "create_graph": instruction.create_graph}
            named["scaled"] = instruction.scaled
            named |= {f"without {tell_resting(each)}": True for each in instruction.resting}
        case _:
            named = dict[str, bool]()
    detached = [argument.operand for argument in arguments_of(instruction) if isinstance(argument.operand, Ref)]
    return (
        *(name for name, is_set in named.items() if is_set),
        *((f"if {tell_commit(instruction.commits)}",) if instruction.commits else ()),
        *(f"{ref.name} detached" for ref in detached if ref.detach),
    )


def tell_commit(commits: Commit) -> str:
    """Return the verdicts under which a write takes place: `step_d.finite and step_g.finite`."""
    return " or ".join(" and ".join(way) for way in commits)


def tell_resting(resting: tuple[str, str]) -> str:
    """Return parameters that are frozen for now: ``net '^0'``."""
    model, match = resting
    return f"{model} '{match}'"


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


def _arguments(arguments: tuple[Argument, ...], options: Mapping[str, Setting] | None = None) -> str:
    """Return arguments as in a call."""
    shown = [(f"{argument.name}=" if argument.name else "") + _operand(argument) for argument in arguments]
    return ", ".join(shown) + _options(options or {})


def _taken(decay: float | Scheduled) -> str:
    """Return what an average takes of the new weights."""
    if not isinstance(decay, Scheduled):
        return f"{1 - decay:g}"
    return decay.name if decay.complement else f"1 - {decay.name}"


def _operand(argument: Argument) -> str:
    """Return one operand: a name or a number."""
    operand = argument.operand
    return f"{operand.value}" if isinstance(operand, Constant) else operand.name


def _options(options: Mapping[str, Setting]) -> str:
    """Return options as keyword arguments, with a leading comma."""
    return "".join(f", {name}={_setting(value)}" for name, value in options.items())


def _setting(value: Setting) -> str:
    """Return an option; a number that changes by its name."""
    if isinstance(value, tuple) and any(isinstance(each, Scheduled) for each in value):
        return f"({', '.join(map(str, value))})"
    return f"{value}"


def _shape(shape: Iterable[int | str]) -> str:
    """Return a shape as the language writes it."""
    return f"[{', '.join(str(size) for size in shape)}]"
