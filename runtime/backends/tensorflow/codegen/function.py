"""Emission of one function: its instructions in order, inside the tapes that record them."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

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
from runtime.codegen.lower.overflow import find_open, find_tainted
from runtime.codegen.module import describe_function, input_line, shape_comment
from runtime.codegen.norms import measured
from runtime.codegen.resources import find_inputs
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
    body = (*start_lines(writer.scope), *writer.head(), *writer.nest(0, len(kept), writer.tapes, ()))
    return Block(header=Line(statement=header), body=body, doc=describe_function(function, context.program))


def is_numbered(context: EmitContext) -> bool:
    """Return whether the functions of a module are given the number of the step."""
    return context.needs.random or context.needs.measured


class _OpenTape(Struct, frozen=True, kw_only=True):
    """A tape, the variable that it is bound to, and what it watches."""

    span: Tape
    variable: str
    gradients: tuple[Gradient, ...]
    """One for each set of targets."""
    values: frozenset[str]
    """The values among the targets."""

    @classmethod
    def of(cls, tape: Tape, variable: str, instructions: Sequence[Instruction]) -> _OpenTape:
        """Return what a tape watches."""
        gradients: dict[tuple[tuple[str, ...], tuple[str, ...]], Gradient] = {}
        for each in (instructions[at] for at in tape.gradients):
            assert isinstance(each, Gradient)
            gradients.setdefault((each.models, each.target_values), each)
        values = frozenset(value for _, targets in gradients for value in targets)
        return cls(span=tape, variable=variable, gradients=tuple(gradients.values()), values=values)


class _Writer(Struct, frozen=True, kw_only=True):
    """A function under construction: its tapes, outer ones first, and its instructions as code."""

    function: Function
    scope: EmitScope
    tapes: tuple[_OpenTape, ...]
    made_at: Mapping[str, int]
    """The position of the instruction that makes each value."""
    differentiated: frozenset[str]
    """The gradient sets that other gradients run through."""

    @classmethod
    def of(cls, function: Function, context: EmitContext) -> _Writer:
        """Return the writer of a function."""
        instructions, found = function.instructions, find_tapes(function, context.program)
        # Several tapes are named after their first gradients.
        firsts = [instructions[each.gradients[0]].key for each in found]
        names = [ONLY] if len(found) == 1 else map(context.names.tape, firsts)
        tapes = tuple(_OpenTape.of(tape, name, instructions) for tape, name in zip(found, names, strict=True))
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
            open_sets=find_open(function),
            function=function,
            floating=find_floating(function, context.program),
            tapes={id(instructions[at]): each.variable for each in tapes for at in each.span.gradients},
        )
        return cls(
            function=function,
            scope=scope,
            tapes=tapes,
            made_at={value: at for at, each in enumerate(instructions) for value in each.defines},
            differentiated=find_differentiated_sets(function),
        )

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

    def nest(self, start: int, stop: int, inner: Sequence[_OpenTape], around: tuple[_OpenTape, ...]) -> Iterator[Code]:
        """Yield the code of a range of instructions.

        ``inner``: the tapes that are opened in this range, outer ones first; ``around``: those that are open already.
        """
        position, at = start, 0
        while position < stop:
            if at == len(inner) or position < inner[at].span.first:
                yield from self._code(position, around)
                position += 1
                continue
            first, last = inner[at].span.first, inner[at].span.last
            end = bisect_right(inner, last, lo=at, key=lambda each: each.span.first)
            within = inner[at:end]
            together = [each for each in within if (each.span.first, each.span.last) == (first, last)]
            body = (
                *(line for each in together for line in self._watch_lines(each)),
                *self.nest(first, last + 1, within[len(together) :], (*around, *together)),
            )
            contexts: list[tuple[ast.expr, str]] = []
            for each in together:
                several = {"persistent": syntax.constant(True)} if len(each.span.gradients) > 1 else {}
                options = {**several, "watch_accessed_variables": syntax.constant(False)}
                contexts.append((syntax.call("tf.GradientTape", **options), each.variable))
            yield Block(header=Line(statement=syntax.within_named(contexts)), body=body)
            position, at = last + 1, end

    def _watch_lines(self, tape: _OpenTape) -> Iterator[Line]:
        """Yield the lines that make a tape watch its targets: models, and values that exist when it is opened."""
        for gradient in tape.gradients:
            if gradient.models and gradient.weights is None:
                yield self._watch(gradient, tape, self.scope.names.joint(gradient.models))
            for value in gradient.target_values:
                if self.made_at.get(value, -1) < tape.span.first:
                    yield self._watch(gradient, tape, self.scope.names.value(value))

    def _watch(self, at: Instruction, tape: _OpenTape, variable: str) -> Line:
        """Return ``tape.watch(variable)``."""
        statement = syntax.perform(syntax.call(f"{tape.variable}.watch", syntax.name(variable)))
        return line_of(at, statement)

    def _code(self, position: int, around: Sequence[_OpenTape]) -> Iterator[Code]:
        """Yield the code of an instruction; targets of gradients are watched as soon as they are made."""
        instruction = self.function.instructions[position]
        lowered = instrument(instruction, lower(instruction, self.scope), self.function, self.scope)
        lowered = measured(instruction, conditioned(instruction, lowered, self.scope), self.scope)
        yield from in_range(instruction, lowered, self.scope).code
        if isinstance(instruction, Gradient) and not instruction.create_graph and around:
            for value in instruction.value_outputs:  # no tape around them may run through gradients
                variable = self.scope.names.value(value)
                yield line_of(instruction, syntax.assign(variable, self.scope.dialect.detach(syntax.name(variable))))
            if instruction.output in self.differentiated:
                variable = self.scope.names.value(instruction.output or "")
                yield line_of(instruction, syntax.assign(variable, syntax.call("detached", syntax.name(variable))))
        for tape in around:
            for value in (each for each in instruction.defines if each in tape.values):
                line = self._watch(instruction, tape, self.scope.names.value(value))
                yield replace(line, comment=WATCHED)
