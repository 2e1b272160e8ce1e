"""What every lowering needs to know: the spec, the mode, the backend, and the facts about the models."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from compiler.facts.models import ModelFacts
from compiler.ir.cell import Cell, state_of
from compiler.ir.diagnose import find_op_places
from compiler.ir.instructions import Counted, Instruction, InstructionBase
from compiler.ir.program import Mode
from compiler.ir.value import Argument, Constant, FunctionRef, Operand, Plain, Read, Ref, Scheduled, Setting, Use
from compiler.passes.presence import find_open
from compiler.timing.units import Pace
from compiler.types.values import UNTYPED, Value, Values
from graphspec.analysis.modes import Reach
from graphspec.analysis.signatures import find_options
from graphspec.declare.equations import read_equation
from graphspec.declare.functions import FunctionName
from graphspec.declare.graph import GraphSpec
from graphspec.declare.inputs import Inputs
from graphspec.declare.inputs import Operand as Written
from graphspec.declare.options import find_defaults
from graphspec.declare.schedules import ScheduleSpec
from graphspec.declare.subscripts import read_subscript
from graphspec.read.source import Plain as PlainValue


class LoweringContext(Struct, frozen=True, kw_only=True):
    """The surroundings in which one op is lowered."""

    spec: GraphSpec
    mode: Mode
    backend: str
    models: Mapping[str, ModelFacts]
    reaches: Mapping[str, Reach]
    """Where every op can run."""
    values: Values
    """What is known of the values of the spec."""
    whole: frozenset[str]
    """The values that do not depend on the batch."""
    accumulating: Mapping[str, tuple[str, ...]] = {}
    """The terms of what an update gathers over several steps."""
    gathered: frozenset[str] = frozenset()
    """The terms of those updates that run in this mode."""
    counted: Mapping[str, Counted] = {}
    """The losses whose sum and count are kept apart, and how they count."""
    open: frozenset[str] = frozenset()
    """The losses whose operands' shapes only the running step can check."""
    split: bool = False
    """The steps of this mode are split into micro-batches."""
    checked: frozenset[str] = frozenset()
    """The updates whose gradients are checked for finiteness."""
    scaled: bool = False
    """Losses are scaled in this mode."""
    averages: Mapping[str, str] = {}
    """Model -> the average that is evaluated in its place."""
    phases: Mapping[str, str] = {}
    """Optimizer -> the one that steps in its place, at a later epoch."""
    pace: Pace = field(default_factory=Pace)
    """What is known of the run."""
    scheduled: Mapping[tuple[str | int, ...], Scheduled] = {}
    """The numbers that change while training: the op and the place below it -> the number."""

    def value(self, name: str) -> Value:
        """Return what is known of a value; of one that lowering makes, nothing."""
        return self.values.get(name, UNTYPED)

    def find_open(self, sets: Iterable[str], nodes: Iterable[Instruction]) -> frozenset[str]:
        """Return those of some gradient sets, of the spec or made by nodes, that may miss gradients."""
        made = find_open(nodes)
        return frozenset(name for name in sets if name in made or self.value(name).may_miss)

    def number(self, value: float | ScheduleSpec, *place: str | int) -> float | Scheduled:
        """Return the number of a field; for a schedule, the scheduled number."""
        return self.scheduled[place] if isinstance(value, ScheduleSpec) else value

    def operand(self, operand: Written, *place: str | int) -> Operand:
        """Return a reference for a string, a constant for a number or boolean, a scheduled number for a schedule."""
        return self.scheduled[place] if isinstance(operand, ScheduleSpec) else lower_operand(operand)

    def settings(self, args: Mapping[str, PlainValue | ScheduleSpec], op: str) -> Mapping[str, Setting]:
        """Return the arguments of an op's function with every list made a tuple.

        For a library function they are in the order of its options, without defaults, and subscripts and equations are
        read, so that all ways to write the same options give the same program.
        """
        found: dict[str, Setting] = {
            key: self.scheduled[op, "args", key] if isinstance(value, ScheduleSpec) else freeze(value)
            for key, value in args.items()
        }
        known = find_options(self.spec.ops[op])
        found |= {each.name: read_subscript(found[each.name]) for each in known if each.kind == "subscript"}
        found |= {each.name: str(read_equation(found[each.name])) for each in known if each.kind == "equation"}
        given = {each.name: found[each.name] for each in known if each.name in found} if known else found
        defaults = find_defaults(known)
        return {key: value for key, value in given.items() if key not in defaults or value != defaults[key]}

    def place(self, op: str) -> str:
        """Return where an op is declared, ``file:line:column``, or nothing for specs built in Python."""
        return find_op_places(self.spec)[op]

    def cells(self, models: Iterable[str]) -> tuple[Cell, ...]:
        """Return the cells of the parameters of several models, each once."""
        return tuple(dict.fromkeys(cell for model in models for cell in self.models[model].cells))

    def function(self, name: FunctionName) -> FunctionRef:
        """Return the function a name means on this backend."""
        return FunctionRef(name=name.name(self.backend), builtin=name.is_builtin)


def lower_operand(operand: str | bool | int | float) -> Ref | Constant:
    """Return a reference for a string, a constant for a number or boolean."""
    return Ref(name=operand) if isinstance(operand, str) else Constant(value=operand)


def lower_inputs(op: str, inputs: Inputs, context: LoweringContext) -> tuple[Argument, ...]:
    """Return the arguments of an op's call: positional ones first, then those by keyword."""
    return tuple(
        Argument(operand=context.operand(operand, op, "inputs", key), name=key if isinstance(key, str) else None)
        for key, operand in inputs.items()
    )


def uses_of(arguments: tuple[Argument, ...], *, differentiable: bool = True) -> tuple[Use, ...]:
    """Return the uses of the arguments that are references."""
    references = (argument.operand for argument in arguments if isinstance(argument.operand, Ref))
    return tuple(Use(value=reference.name, differentiable=differentiable) for reference in references)


def freeze(value: PlainValue) -> Plain:
    """Return a plain value with every list made a tuple, so that instructions can be shared safely."""
    if isinstance(value, list):
        return tuple(freeze(item) for item in value)
    return {key: freeze(item) for key, item in value.items()} if isinstance(value, dict) else value


def freeze_options(options: Mapping[str, PlainValue]) -> Mapping[str, Plain]:
    """Return the options of a function with every list made a tuple."""
    return {key: freeze(value) for key, value in options.items()}


def read_states(node: Instruction, states: Collection[str]) -> Instruction:
    """Return a node whose uses of states are reads, too; no gradient flows back into what an earlier step left.

    A graph keeps the tensor that was read, which nothing overwrites: an `assign` rebinds the state to another. So the
    read is not ``saved``, and no write waits for a gradient.
    """
    used = tuple(dict.fromkeys(use.value for use in node.uses if use.value in states))
    if not used:
        return node
    uses = tuple(replace(use, differentiable=False) if use.value in states else use for use in node.uses)
    return replace(node, uses=uses, reads=(*node.reads, *(Read(cell=state_of(name)) for name in used)))


Spared = TypeVar("Spared", bound=InstructionBase)


def make_optional(node: Spared, values: Collection[str]) -> Spared:
    """Return a node that omits some values in steps in which they are absent."""
    return replace(node, uses=tuple(replace(use, optional=use.value in values) for use in node.uses))
