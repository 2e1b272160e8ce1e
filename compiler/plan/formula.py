"""Lines of a plan: what an instruction does in one line, an expression with its parts as it is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from compiler.ir.instructions import Evaluate, Instruction
from compiler.ir.step_graph import StepGraph
from compiler.ir.value import Constant, Ref
from compiler.ir.weight_terms import format_number
from graphspec.write.formula import Called, Operand, write_formula


class Lines(Struct, frozen=True):
    """The lines of a function, or of a graph: the parts of expressions are in those of what reads them."""

    parts: Mapping[str, Evaluate]
    """Those that have no line of their own, by their value."""

    @classmethod
    def of(cls, instructions: Iterable[Instruction]) -> Lines:
        """Return the lines of the instructions of a function."""
        return cls({each.outputs[0]: each for each in instructions if isinstance(each, Evaluate) and each.into})

    def find(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """Return what is in the line of an instruction: itself, and the parts that are written there."""
        read = (self.parts[name] for name in instruction.operands if name in self.parts)
        return (instruction, *(inner for part in read for inner in self.find(part)))

    def write(self, instruction: Instruction) -> str:
        """Return what an instruction does, in one line."""
        if not isinstance(instruction, Evaluate) or instruction.counted:
            return instruction.phrase
        read = self._read(instruction)
        if isinstance(read, Called) and not instruction.expr:
            return instruction.phrase
        weight = "" if instruction.weight is None else f"{format_number(instruction.weight)} * "
        times = "" if instruction.times == 1 else f"{instruction.times} * "
        return f"{', '.join(instruction.outputs)} = {times}{weight}{write_formula(read)}"

    def spell(self, instruction: Evaluate) -> str:
        """Return the value of an evaluation as an expression."""
        return write_formula(self._read(instruction))

    def _read(self, instruction: Evaluate) -> Operand:
        """Return an evaluation with the parts that it reads."""
        operands: list[Operand] = []
        for each in instruction.arguments:
            match each.operand:
                case Ref(name=name):
                    operands.append(self._read(self.parts[name]) if name in self.parts else name)
                case Constant(value=value):
                    operands.append(value)
                case scheduled:
                    operands.append(scheduled.name)
        name = instruction.function.name
        if name not in _SUMS:
            return Called(function=name, operands=tuple(operands), options=instruction.options)
        total, *others = operands  # one operand is left where lazy terms are absent
        for other in others:
            if isinstance(other, int | float) and other < 0:  # as it is written by hand: `a - 1` and not `a + -1`
                total = Called(function=_SUMS[name], operands=(total, -other))
            else:
                total = Called(function=name, operands=(total, other))
        return total


_SUMS = {"add": "sub", "sub": "add"}


def find_lines(graph: StepGraph) -> Mapping[str, str]:
    """Return, by node that is a part of an expression and has no line of its own, the node in whose line it is."""
    producers = {value: node.id for node in graph.nodes.values() for value in node.defines}
    found: dict[str, str] = {}
    for name in reversed(graph.sequence):  # what reads a part comes after it
        node = graph.nodes[name]
        if isinstance(node, Evaluate) and node.into:
            reader = producers[node.into]
            found[name] = found.get(reader, reader)
    return found
