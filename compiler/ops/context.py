"""What every lowering needs to know: the spec, the mode, the backend, and the facts about the models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from compiler.diagnose import place_in
from compiler.facts import ModelFacts
from compiler.ir import Use
from compiler.program import Argument, Constant, FunctionRef, Mode, Operand, Plain, Ref
from graphspec.functions import FunctionName
from graphspec.gradient_sets import Sets
from graphspec.graph import GraphSpec
from graphspec.inputs import Inputs
from graphspec.inputs import Operand as Written
from graphspec.modes import Reach
from graphspec.source import Plain as Read


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowering:
    """The surroundings in which one op is lowered."""

    spec: GraphSpec
    mode: Mode
    backend: str
    models: Mapping[str, ModelFacts]
    reaches: Mapping[str, Reach]
    """Where every op can run."""
    sets: Sets
    """The models that every gradient set covers."""
    averages: Mapping[str, str] = field(default_factory=dict[str, str])
    """Model -> the average that is evaluated in its place."""

    def place(self, op: str) -> str:
        """Return where an op is declared, ``file:line:column``, or nothing for specs built in Python."""
        return place_in(self.spec.span("ops", op, key=True))

    def cells(self, models: Iterable[str]) -> tuple[str, ...]:
        """Return the cells of the parameters of several models, each once."""
        return tuple(dict.fromkeys(cell for model in models for cell in self.models[model].cells))

    def function(self, name: FunctionName) -> FunctionRef:
        """Return the function a name means on this backend."""
        return FunctionRef(name=name.name(self.backend), builtin=name.is_builtin)


def lower_operand(operand: Written) -> Operand:
    """Return a reference for a string, a constant for a number or boolean."""
    return Ref(name=operand) if isinstance(operand, str) else Constant(value=operand)


def lower_inputs(inputs: Inputs) -> tuple[Argument, ...]:
    """Return the arguments of a call: positional ones first, then those by keyword."""
    positional = tuple(Argument(operand=lower_operand(operand)) for operand in inputs.positional)
    keyword = tuple(Argument(operand=lower_operand(operand), name=name) for name, operand in inputs.keyword.items())
    return positional + keyword


def uses_of(arguments: tuple[Argument, ...], *, differentiable: bool = True) -> tuple[Use, ...]:
    """Return the uses behind the arguments that are references."""
    references = (argument.operand for argument in arguments if isinstance(argument.operand, Ref))
    return tuple(Use(value=reference.name, differentiable=differentiable) for reference in references)


def freeze(value: Read) -> Plain:
    """Return a plain value with every list made a tuple, so that instructions can be shared safely."""
    if isinstance(value, list):
        return tuple(freeze(item) for item in value)
    return {key: freeze(item) for key, item in value.items()} if isinstance(value, dict) else value


def freeze_options(options: Mapping[str, Read]) -> Mapping[str, Plain]:
    """Return the options of a function with every list made a tuple."""
    return {key: freeze(value) for key, value in options.items()}
