"""What the phrases of instructions have in common: calls, their arguments and options, and what is frozen for now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compiler.operands import Argument, Constant, Operand, Ref, Scheduled, Setting
from compiler.published import Json


def tell_arguments(arguments: Iterable[Argument]) -> str:
    """Return arguments as in a call."""
    shown = ((f"{each.name}=" if each.name else "") + str(export_operand(each.operand)) for each in arguments)
    return ", ".join(shown)


def tell_options(options: Mapping[str, Setting]) -> str:
    """Return options as keyword arguments, with a leading comma."""
    return "".join(f", {name}={_tell_setting(value)}" for name, value in options.items())


def _tell_setting(value: Setting) -> str:
    """Return an option; a number that changes by its name."""
    if isinstance(value, tuple) and any(isinstance(each, Scheduled) for each in value):
        return f"({', '.join(map(str, value))})"
    return f"{value}"


def tell_resting(resting: tuple[str, str]) -> str:
    """Return parameters that are frozen for now: ``net '^0'``."""
    model, match = resting
    return f"{model} '{match}'"


def tell_set(flags: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the flags that are set."""
    return tuple(name for name, is_set in flags.items() if is_set)


def export_inputs(arguments: Iterable[Argument]) -> list[Json]:
    """Return the inputs of a call: value names, and literals as numbers."""
    return [export_operand(each.operand) for each in arguments]


def export_operand(operand: Operand) -> bool | int | float | str:
    """Return one input: a name or a number."""
    return operand.value if isinstance(operand, Constant) else operand.name


def export_detached(arguments: Iterable[Argument]) -> list[Json]:
    """Return the inputs through which no gradient flows back."""
    operands = (each.operand for each in arguments)
    return [each.name for each in operands if isinstance(each, Ref) and each.detach]


def find_names(operands: Iterable[Operand]) -> tuple[str, ...]:
    """Return the names of the values among operands."""
    return tuple(each.name for each in operands if isinstance(each, Ref))
