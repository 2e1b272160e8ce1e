"""Emission of one straight-line function: its instructions in order, in ``no_grad`` blocks where no graph is needed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace

from compiler.ir.instructions import (
    Apply,
    Assign,
    Blend,
    Evaluate,
    Forward,
    Gradient,
    Instruction,
    Random,
    Release,
    Transform,
)
from compiler.ir.program import Function, Program
from runtime.backends.torch.codegen.verdicts import (
    Reading,
    begin_lines,
    conditioned,
    find_reading,
    read_lines,
)
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitContext, EmitScope, Lowered
from runtime.codegen.flow import find_flow, find_modes, is_modal
from runtime.codegen.instrument import in_range, input_lines, instrument, start_lines
from runtime.codegen.lower import lower
from runtime.codegen.lower.adapt import is_adapted
from runtime.codegen.lower.evaluate import batch_size_lines, find_inlined
from runtime.codegen.lower.overflow import find_open, find_tainted
from runtime.codegen.module import describe_function, input_line, shape_comment
from runtime.codegen.norms import measured
from runtime.codegen.resources import find_inputs
from runtime.codegen.scope import line_of
from runtime.codegen.text import Block, Code, Line

LEAF = "a gradient is taken with respect to it"


def emit_function(function: Function, context: EmitContext) -> Block:
    """Return ``def train_step(batch):`` with everything one step of this active set does."""
    program, names = context.program, context.names
    scope = EmitScope(
        program=program,
        names=names,
        dialect=context.dialect,
        needs=context.needs,
        flow=find_flow(function),
        switches=find_switches(function, program, context.needs.mixed),
        mode=function.mode,
        inlined=find_inlined(function),
        checked=find_tainted(function),
        open_sets=find_open(function),
        function=function,
    )
    instructions = tuple(gather_releases(function.instructions))
    reading = None  # no step may ever reach an update with a verdict
    if context.needs.checked:
        reading = find_reading(instructions, debug=bool(names.checks), late=scope.dialect.asks_late)
    lowered = [_write(each, scope, reading) for each in instructions]
    decorators = [] if scope.flow.recorded else [syntax.call("torch.no_grad")]
    header = syntax.define(names.function(function.name), syntax.parameter("batch"), decorators=decorators)
    body = (
        *start_lines(scope),
        *begin_lines(reading),
        *(  # models in the mode of their first forward, where that has an effect
            Line(
                statement=syntax.perform(
                    syntax.call("in_mode", syntax.name(names.model(model)), syntax.constant(train))
                )
            )
            for model, train in find_modes(function, program, context.needs.mixed).items()
            if is_modal(program.model(model))
        ),
        *_input_lines(function, scope),
        *join(group(lowered)),
    )
    return Block(header=Line(statement=header), body=body, doc=describe_function(function, program))


def _target_lines(instruction: Instruction, scope: EmitScope) -> Iterator[Line]:
    """Yield the lines that make results leaves of the graph, or separate them from other results of the same call.

    Autograd finds paths by nodes: through the node of several results it would also run back from all the others,
    whose graphs may have been freed.
    """
    for value in instruction.defines:
        name = scope.names.value(value)
        if value in scope.flow.leaves:
            leaf = syntax.assign(name, syntax.call("as_leaves", syntax.name(name)))
            statement = leaf if is_adapted(instruction) else as_leaf(name)
            yield line_of(instruction, statement, comment=LEAF)
        elif value in scope.flow.partial:
            yield line_of(instruction, syntax.assign(name, syntax.call("reachable", syntax.name(name))), comment=LEAF)
        elif value in scope.flow.siblings:
            alone = syntax.method(syntax.name(name), "view_as", syntax.name(name))
            yield line_of(instruction, syntax.assign(name, alone), comment=f"{LEAF} alone")


def _write(instruction: Instruction, scope: EmitScope, reading: Reading | None) -> Lowered:
    """Return the code of an instruction with everything around it."""
    lowered = lower(instruction, scope)
    lowered = replace(lowered, code=(*lowered.code, *_target_lines(instruction, scope)))
    if reading is not None and id(instruction) in reading.final:  # checked where it runs
        lowered = conditioned(instruction, instrument(instruction, lowered, scope.function, scope), scope, reading)
    else:
        lowered = instrument(instruction, conditioned(instruction, lowered, scope, reading), scope.function, scope)
    lowered = measured(instruction, lowered, scope)
    lowered = replace(lowered, code=(*read_lines(instruction, scope, reading), *lowered.code))
    return in_range(instruction, lowered, scope)


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


def join(code: Iterable[Code]) -> Iterator[Code]:
    """Yield the code, runs of blocks that may share one as one."""
    for joins, run in groupby(code, lambda each: isinstance(each, Block) and each.joins):
        if not joins:
            yield from run
            continue
        blocks = [each for each in run if isinstance(each, Block)]
        statements = [each.header.statement for each in blocks]
        items = {ast.dump(item): item for each in statements if isinstance(each, ast.With) for item in each.items}
        header = replace(blocks[0].header, statement=ast.With(items=[*items.values()], body=[]))
        yield Block(header=header, body=tuple(line for each in blocks for line in each.body))


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
    """Yield the instructions with releases gathered where they free something.

    A value that no graph holds is released before another large one is made; what a graph holds, before a gradient that
    frees the graph as it runs, or before the next forward after a gradient or write. A gradient set is released before
    the next write, so that two are never alive at the same time for one update. Small results of functions are not
    worth a release, and values that are alive until the function returns need none.
    """
    large, heavy, sets, recorded = set[str](), set[str](), set[str](), set[str]()
    for each in instructions:
        if isinstance(each, Release):
            large.update(each.large)
        if isinstance(each, (Gradient, Transform)):
            sets.update(each.defines)
        elif isinstance(each, (Forward, Evaluate)) and each.graph:
            recorded.update(each.defines)
        if each.micro_batch or not isinstance(each, Evaluate):  # nothing of a micro-batch may hold a graph
            heavy.update(each.defines)
    heavy |= large
    free = large - sets - recorded
    pending: list[str] = []
    ended = False
    for instruction in instructions:
        if isinstance(instruction, Release):
            pending.extend(filter(heavy.__contains__, instruction.values))
            continue
        if isinstance(instruction, Gradient):
            is_due = not instruction.retain_graph and not large.isdisjoint(pending)
        elif isinstance(instruction, Apply):
            is_due = not sets.isdisjoint(pending)
        else:
            is_due = ended and isinstance(instruction, (Forward, Evaluate, Random))
            is_due = is_due or not (free.isdisjoint(pending) or large.isdisjoint(instruction.defines))
        if pending and is_due:
            yield Release(op=instruction.op, values=tuple(pending))
            pending, ended = [], False
        ended = ended or isinstance(instruction, (Gradient, Apply, Blend, Assign))
        yield instruction


def as_leaf(identifier: str) -> ast.stmt:
    """Return ``x = x.detach().requires_grad_()``: the caller's own tensor is unchanged."""
    detached = syntax.method(syntax.name(identifier), "detach")
    return syntax.assign(identifier, syntax.method(detached, "requires_grad_"))


def find_switches(function: Function, program: Program, mixed: frozenset[str]) -> dict[str, bool]:
    """Return, by op, the mode to switch to for every forward in another mode than the model's forward before it.

    A gradient that runs forwards again counts as such a forward of their models, by the names of both. A mixed model
    may be in any mode at first, and after another ran that shares its weights.
    """
    current: dict[str, bool | None] = dict.fromkeys(mixed)
    switches: dict[str, bool] = {}

    def enter(key: str, model: str, train: bool) -> None:
        """Record that a model runs in a mode."""
        if current.get(model, train) is not train:
            switches[key] = train
        current.update({**dict.fromkeys(mixed.intersection(program.model(model).tied)), model: train})

    for instruction in function.instructions:
        if isinstance(instruction, Forward):
            enter(instruction.key, instruction.model, instruction.train)
        elif isinstance(instruction, Gradient):
            for each in instruction.recomputed:
                enter(f"{instruction.key} {each.model}", each.model, each.train)
    return switches


def _input_lines(function: Function, scope: EmitScope) -> Iterator[Code]:
    """Yield one line per input that is read, with its declared type, and the batch size where a draw needs it."""
    for entry in find_inputs(scope.program, function):
        variable = scope.names.value(entry.name)
        read = syntax.item(syntax.name("batch"), syntax.constant(entry.name))
        yield input_line(entry, syntax.assign(variable, read), comment=shape_comment(entry))
        if entry.name in scope.flow.leaves:
            yield input_line(entry, as_leaf(variable), comment=LEAF)
        yield from input_lines(entry, scope)
    yield from batch_size_lines(function, scope)
