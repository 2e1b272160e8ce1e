"""Emission of one function: its instructions in order, inside the tapes that record them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.instructions import Gradient, Instruction, Release
from compiler.ir.program import Function
from runtime.backends.tensorflow.codegen.floating import find_floating
from runtime.backends.tensorflow.codegen.tapes import Tape, find_differentiated_sets, find_recorded, find_tapes
from runtime.backends.tensorflow.codegen.verdicts import conditioned
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitContext, EmitScope
from runtime.codegen.instrument import in_range, input_lines, instrument, start_lines
from runtime.codegen.lower import lower
from runtime.codegen.lower.evaluate import batch_size_lines, find_inlined
from runtime.codegen.lower.overflow import find_tainted
from runtime.codegen.module import describe_function, input_line, shape_comment
from runtime.codegen.norms import measured
from runtime.codegen.resources import Names, find_inputs
from runtime.codegen.scope import line_of
from runtime.codegen.text import Block, Code, Line

ONLY = "tape"
"""The name of the only tape of a function."""
WATCHED = "a gradient is taken with respect to it"


def emit_function(function: Function, context: EmitContext) -> Block:
    """Return ``def train_step(batch):`` with everything one step of this active set does."""
    kept = tuple(each for each in function.instructions if not isinstance(each, Release))
    writer = _Writer.of(replace(function, instructions=kept), context)
    parameters = [syntax.parameter("batch")]
    parameters += [syntax.parameter("number")] if is_numbered(context) else []
    header = syntax.define(context.names.function(function.name), *parameters)
    body = (*start_lines(writer.scope), *writer.head(), *writer.nest(0, len(kept), writer.tapes))
    return Block(header=Line(statement=header), body=body, doc=describe_function(function, context.program))


def is_numbered(context: EmitContext) -> bool:
    """Return whether the functions of a module are given the number of the step."""
    return context.needs.random or context.needs.measured


def name_tapes(tapes: Sequence[Tape], instructions: Sequence[Instruction], names: Names) -> Mapping[Tape, str]:
    """Return the variable of every tape: ``tape``, or the name of its first gradient where there are several."""
    if len(tapes) == 1:
        return {tapes[0]: ONLY}
    return {tape: names.tape(instructions[tape.gradients[0]].key) for tape in tapes}


class _Writer(Struct, frozen=True, kw_only=True):
    """A function under construction: its tapes, by name, and its instructions as code."""

    function: Function
    scope: EmitScope
    tapes: tuple[Tape, ...]
    called: Mapping[Tape, str]

    @classmethod
    def of(cls, function: Function, context: EmitContext) -> _Writer:
        """Return the writer of a function."""
        tapes = find_tapes(function, context.program)
        called = name_tapes(tapes, function.instructions, context.names)
        scope = EmitScope(
            program=context.program,
            names=context.names,
            dialect=context.dialect,
            needs=context.needs,
            flow=find_recorded(function, context.program),
            switches={},
            mode=function.mode,
            inlined=find_inlined(function),
            checked=find_tainted(function),
            function=function,
            floating=find_floating(function, context.program),
            tapes={id(function.instructions[at]): called[tape] for tape in tapes for at in tape.gradients},
        )
        return cls(function=function, scope=scope, tapes=tapes, called=called)

    def head(self) -> Iterator[Code]:
        """Yield the line that keys the draws, one line per input that is read, and the batch size."""
        if any(each.drawing for each in self.function.instructions):
            keyed = syntax.call("random.start", syntax.constant(self.function.mode), syntax.name("number"))
            yield Line(statement=syntax.perform(keyed), comment="keys the step's draws")
        for entry in find_inputs(self.scope.program, self.function):
            read = syntax.item(syntax.name("batch"), syntax.constant(entry.name))
            statement = syntax.assign(self.scope.names.value(entry.name), read)
            yield input_line(entry, statement, comment=shape_comment(entry))
            yield from input_lines(entry, self.scope)
        yield from batch_size_lines(self.function, self.scope)

    def nest(self, start: int, stop: int, tapes: Sequence[Tape]) -> Iterator[Code]:
        """Yield the code of a range of instructions, with those of its tapes that are not open yet."""
        position = start
        while position < stop:
            opening = [tape for tape in tapes if tape.first == position]
            if not opening:
                yield from self._code(position)
                position += 1
                continue
            last = opening[0].last
            together = tuple(takewhile(lambda tape, last=last: tape.last == last, opening))
            rest = [tape for tape in tapes if tape not in together]
            inner = [tape for tape in rest if position <= tape.first <= last]
            body = (*self._watch_lines(together), *self.nest(position, last + 1, inner))
            contexts: list[tuple[ast.expr, str]] = []
            for tape in together:
                several = {"persistent": syntax.constant(True)} if len(tape.gradients) > 1 else {}
                options = {**several, "watch_accessed_variables": syntax.constant(False)}
                contexts.append((syntax.call("tf.GradientTape", **options), self.called[tape]))
            yield Block(header=Line(statement=syntax.within_named(contexts)), body=body)
            position = last + 1

    def _watch_lines(self, tapes: Sequence[Tape]) -> Iterator[Line]:
        """Yield the lines that make a tape watch its targets: models, and values that exist when it is opened."""
        for tape in tapes:
            later = self.function.instructions[tape.first :]
            made = {value for each in later for value in each.defines}
            for gradient in self._gradients(tape):
                if gradient.models and gradient.weights is None:
                    yield self._watch(gradient, tape, self.scope.names.joint(gradient.models))
                for value in gradient.target_values:
                    if value not in made:
                        yield self._watch(gradient, tape, self.scope.names.value(value))

    def _watch(self, at: Instruction, tape: Tape, variable: str) -> Line:
        """Return ``tape.watch(variable)``."""
        statement = syntax.perform(syntax.call(f"{self.called[tape]}.watch", syntax.name(variable)))
        return line_of(at, statement)

    def _code(self, position: int) -> Iterator[Code]:
        """Yield the code of an instruction; targets of gradients are watched as soon as they are made."""
        instruction = self.function.instructions[position]
        lowered = instrument(instruction, lower(instruction, self.scope), self.function, self.scope)
        lowered = measured(instruction, conditioned(instruction, lowered, self.scope), self.scope)
        yield from in_range(instruction, lowered, self.scope).code
        opened = [tape for tape in self.tapes if tape.first <= position <= tape.last]
        if isinstance(instruction, Gradient) and not instruction.create_graph and opened:
            for value in instruction.value_outputs:  # no tape around them may run through gradients
                variable = self.scope.names.value(value)
                yield line_of(instruction, syntax.assign(variable, self.scope.dialect.detach(syntax.name(variable))))
            if instruction.output in find_differentiated_sets(self.function):
                variable = self.scope.names.value(instruction.output or "")
                yield line_of(instruction, syntax.assign(variable, syntax.call("detached", syntax.name(variable))))
        for tape in opened:
            wanted = {value for gradient in self._gradients(tape) for value in gradient.target_values}
            for value in (each for each in instruction.defines if each in wanted):
                line = self._watch(instruction, tape, self.scope.names.value(value))
                yield replace(line, comment=WATCHED)

    def _gradients(self, tape: Tape) -> Iterator[Gradient]:
        """Yield the gradients of a tape that have different targets."""
        seen: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
        for at in tape.gradients:
            gradient = self.function.instructions[at]
            if isinstance(gradient, Gradient) and (gradient.models, gradient.target_values) not in seen:
                seen.add((gradient.models, gradient.target_values))
                yield gradient
