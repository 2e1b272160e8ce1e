"""Emission of one straight-line function: its instructions in order, in ``no_grad`` blocks where no graph is needed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from compiler.program import (
    Apply,
    Assign,
    Blend,
    Emit,
    Evaluate,
    Forward,
    Function,
    Gradient,
    InputDecl,
    Instruction,
    Program,
    Random,
    Release,
    Transform,
)
from runtime.backends.torch.emission import syntax
from runtime.backends.torch.emission.debugging import input_lines, instrument, start_lines
from runtime.backends.torch.emission.draw import batch_size_lines, lower_random
from runtime.backends.torch.emission.evaluate import lower_evaluate
from runtime.backends.torch.emission.flow import find_differentiated, find_flow, find_modes, is_modal
from runtime.backends.torch.emission.forward import lower_forward
from runtime.backends.torch.emission.gradient import lower_gradient, lower_transform
from runtime.backends.torch.emission.names import Names
from runtime.backends.torch.emission.scope import Lowered, Scope, as_leaf, line_of
from runtime.backends.torch.emission.text import Block, Code, Line
from runtime.backends.torch.emission.writes import lower_apply, lower_assign, lower_blend
from runtime.effects import find_definitions, find_inputs


def emit_function(function: Function, program: Program, names: Names) -> Block:
    """Return ``def train_step(batch):`` with everything one step of this active set does."""
    scope = Scope(
        program=program,
        names=names,
        flow=find_flow(function),
        differentiated=find_differentiated(program),
        switches=find_switches(function),
        mode=function.mode,
    )
    instructions = gather_releases(function.instructions)
    lowered = [instrument(each, lower(each, scope), function, scope) for each in instructions]
    decorators = [] if scope.flow.recorded else [syntax.call("torch.no_grad")]
    header = syntax.define(names.function(function.name), syntax.parameter("batch"), decorators=decorators)
    body = (*start_lines(scope), *_mode_lines(function, scope), *_input_lines(function, scope), *group(lowered))
    return Block(header=Line(statement=header), body=body, doc=_doc(function, program))


def lower(instruction: Instruction, scope: Scope) -> Lowered:
    """Return the code of an instruction."""
    match instruction:
        case Forward():
            return lower_forward(instruction, scope)
        case Evaluate():
            return lower_evaluate(instruction, scope)
        case Random():
            return lower_random(instruction, scope)
        case Gradient():
            return lower_gradient(instruction, scope)
        case Transform():
            return lower_transform(instruction, scope)
        case Apply():
            return lower_apply(instruction, scope)
        case Blend():
            return lower_blend(instruction, scope)
        case Assign():
            return lower_assign(instruction, scope)
        case Release():
            names = [scope.names.value(value) for value in instruction.values]
            return Lowered(code=(line_of(instruction, syntax.forget(names)),), graph="either")
        case Emit():
            return lower_emit(instruction, scope)
        case _:
            assert_never(instruction)


def lower_emit(instruction: Emit, scope: Scope) -> Lowered:
    """Return the outputs of the step, without their graphs."""
    outputs = {}
    for value in instruction.values:
        use = syntax.name(scope.names.value(value))
        outputs[value] = syntax.method(use, "detach") if value in scope.flow.carrying else use
    return Lowered(code=(line_of(instruction, syntax.give(syntax.dictionary(outputs))),))


def group(lowered: Iterable[Lowered]) -> Iterator[Code]:
    """Yield the code, runs of neighbours that need no graph in one ``no_grad`` block."""
    pending: list[Lowered] = []
    for each in lowered:
        if each.graph == "with":
            yield from _without_graph(pending)
            pending = []
            yield from each.code
        else:
            pending.append(each)
    yield from _without_graph(pending)


def _without_graph(run: Sequence[Lowered]) -> Iterator[Code]:
    """Yield a run as one block from its first to its last member that must not record; the rest stays outside."""
    needing = [index for index, each in enumerate(run) if each.graph == "without"]
    if not needing:
        yield from (line for each in run for line in each.code)
        return
    first, last = needing[0], needing[-1] + 1
    yield from (line for each in run[:first] for line in each.code)
    header = Line(statement=syntax.within(syntax.call("torch.no_grad")))
    yield Block(header=header, body=tuple(line for each in run[first:last] for line in each.code))
    yield from (line for each in run[last:] for line in each.code)


def gather_releases(instructions: Sequence[Instruction]) -> Iterator[Instruction]:
    """Yield the instructions with releases gathered before the next forward after a gradient or write.

    Earlier they would free little: the graph holds what was forgotten. A gradient set goes before the next write, so
    that two never live at once for one update. Only what models and gradients gave is worth a name in such a line, and
    what is left when the function returns needs none.
    """
    heavy = {value for each in instructions if not isinstance(each, Evaluate) for value in find_definitions(each)}
    sets = {
        value for each in instructions if isinstance(each, (Gradient, Transform)) for value in find_definitions(each)
    }
    pending: list[str] = []
    ended = False
    for instruction in instructions:
        if isinstance(instruction, Release):
            pending.extend(value for value in instruction.values if value in heavy)
            continue
        is_due = ended and isinstance(instruction, (Forward, Evaluate, Random))
        if pending and (is_due or (isinstance(instruction, Apply) and not sets.isdisjoint(pending))):
            yield Release(op=instruction.op, values=tuple(pending))
            pending, ended = [], False
        ended = ended or isinstance(instruction, (Gradient, Apply, Blend, Assign))
        yield instruction


def find_switches(function: Function) -> dict[str, bool]:
    """Return, by op, the mode to switch to for every forward in another mode than the model's forward before it."""
    current: dict[str, bool] = {}
    switches: dict[str, bool] = {}
    for instruction in function.instructions:
        if isinstance(instruction, Forward):
            if current.get(instruction.model, instruction.train) != instruction.train:
                switches[instruction.op] = instruction.train
            current[instruction.model] = instruction.train
    return switches


def _mode_lines(function: Function, scope: Scope) -> Iterator[Code]:
    """Yield the lines that put models in the mode of their first forward; nothing where the mode changes nothing."""
    for model, train in find_modes(function).items():
        if is_modal(scope.program.model(model)):
            arguments = syntax.name(scope.names.model(model)), syntax.constant(train)
            yield Line(statement=syntax.perform(syntax.call("in_mode", *arguments)))


def _input_lines(function: Function, scope: Scope) -> Iterator[Code]:
    """Yield one line per input that is read, with its declared type, and the batch size where a draw needs it."""
    for entry in find_inputs(scope.program, function):
        variable = scope.names.value(entry.name)
        read = syntax.item(syntax.name("batch"), syntax.constant(entry.name))
        yield _input_line(entry, syntax.assign(variable, read), comment=_shape_comment(entry))
        if entry.name in scope.flow.leaves:
            yield _input_line(entry, as_leaf(variable), comment="a gradient is taken with respect to it")
        yield from input_lines(entry, scope)
    yield from batch_size_lines(function, scope)


def _input_line(entry: InputDecl, statement: ast.stmt, *, comment: str) -> Line:
    """Return a line that belongs to an input."""
    return Line(statement=statement, comment=comment, op=entry.name, place=entry.place)


def _shape_comment(entry: InputDecl) -> str:
    """Return an input's declared shape and type."""
    return entry.dtype if entry.shape is None else f"{entry.dtype} [{', '.join(map(str, entry.shape))}]"


def _doc(function: Function, program: Program) -> str:
    """Return what the function is: its step, mode, what fires in it, and the policy that ordered it."""
    active = f", active: {', '.join(function.active)}" if function.active else ""
    averages = {gate.op for gate in program.mode(function.mode).gates if gate.clock == "averaged"}
    used = ", ".join(op for op in function.gated if op in averages)
    swapped = f", evaluating {used}" if used else ""
    return f"{program.name}, {function.mode}{active}{swapped}. Order: {program.order}."
