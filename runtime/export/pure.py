"""Pure modes: a mode of a step as one function of its inputs alone, for programs that run without the step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compiler import Plan
from compiler.ir.instructions import Emit, Evaluate, Forward, Gradient, Instruction, Random, Release, Transform
from compiler.ir.program import Function, InputDecl, ModeProgram, Program
from compiler.ir.value import CellVersion
from compiler.timing.curves import find_scheduled
from compiler.types.dimension import UNKNOWN
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.words import closest
from runtime.codegen.resources import find_uses, is_running
from runtime.problems import problem

CODE = "GS265"


class Pure(Struct, frozen=True, kw_only=True):
    """A mode without draws, running figures and clocks: draws are inputs instead."""

    mode: str
    program: Program
    """The mode as one function; its inputs are those that this function reads."""
    outputs: tuple[str, ...]
    drawn: Mapping[str, Random]
    """Inputs that the step draws itself, and how."""
    left_out: tuple[str, ...]
    """Outputs of the mode that are not functions of a batch: figures that run over several, and states."""


def purify(plan: Plan, mode: ModeProgram, averaged: frozenset[str], values: Sequence[str] = ()) -> Pure:
    """Return a mode that writes nothing as a function of its inputs; ``averaged`` are the averages that have fired.

    It returns ``values``, by default all outputs of the mode but running figures and states. Raises SpecError: GS266 a
    value that the mode does not compute, or nothing to compute; GS265 everything that is not a function of inputs of
    known shapes.
    """
    # The functions that run now, given the averages that have fired; clocks choose among several.
    watched = frozenset(gate.op for gate in mode.gates if gate.clock == "averaged")
    current = [each for each in mode.functions if watched.intersection(each.gated) == watched & averaged]
    _refuse_writers(mode, current, values, plan.spec)
    instructions = [each for function in current for each in function.instructions]
    given = tuple(dict.fromkeys(value for each in instructions if isinstance(each, Emit) for value in each.values))
    running = {value for each in instructions if is_running(each) for value in each.defines}
    apart = running | {state.name for state in plan.program.states}
    outputs = tuple(dict.fromkeys(values)) or tuple(value for value in given if value not in apart)
    known = list(dict.fromkeys(value for each in instructions for value in each.defines))
    for value in outputs:
        if value not in known:
            near = closest(value, known)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            help = f"it computes {', '.join(known)}{meant}"
            raise problem("GS266", f"mode {mode.mode} computes no value '{value}'", help=help)
    if not outputs:
        message = f"mode {mode.mode} gives figures that run over many batches, and nothing else"
        help = f"name what the program shall give, as in `--value {known[0]}`"
        raise problem("GS266", message, help=help, texts=plan.spec.texts())
    function = _choose(mode, current, outputs, plan.spec)
    kept = tuple(_simplify(each) for each in _reach(function, outputs))
    # The inputs are those that instructions read, then what they draw.
    used = {name for each in kept if not isinstance(each, Random) for name in find_uses(each)} | set(outputs)
    drawn = {each.output: each for each in kept if isinstance(each, Random)}
    types = {name: plan.types.get(name, UNKNOWN) for name in drawn}
    inputs = (
        *(entry for entry in plan.program.inputs if entry.name in used),
        *(InputDecl(name=name, shape=each.shape, dtype=each.dtype or "float32") for name, each in types.items()),
    )
    problems = tuple(_find_problems(kept, inputs, plan.spec))
    if problems:
        raise SpecError(problems, plan.spec.texts())
    body = tuple(each for each in kept if not isinstance(each, Random))
    emit = Emit(op=outputs[-1], values=outputs)
    only = replace(function, active=(), gated=(), instructions=(*body, emit))
    called = {each.model for each in kept if isinstance(each, Forward)}
    models = [replace(each, like=None, initial="own") for each in plan.program.models if each.name in called]
    modes = (ModeProgram(mode=function.mode, gates=(), functions=(only,)),)
    return Pure(
        mode=mode.mode,
        program=replace(plan.program, models=tuple(models), inputs=inputs, optimizers=(), modes=modes),
        outputs=outputs,
        drawn=drawn,
        left_out=() if values else tuple(value for value in given if value in apart),
    )


def _refuse_writers(mode: ModeProgram, functions: Sequence[Function], values: Sequence[str], spec: GraphSpec) -> None:
    """Raise SpecError (GS266) where a mode writes; with ``values``, of a mode that does not train what they need."""
    writers: dict[str, None] = {}
    for function in functions:
        makers = {write.at: each.op for each in function.instructions for write in each.writes}
        is_pruned = values and mode.mode != "train"
        for each in _reach(function, values) if is_pruned else function.instructions:
            read = (CellVersion(read.cell, read.version) for read in each.reads)
            made = (write.at for write in each.writes)
            writers |= {makers[at]: None for at in (*read, *made) if at in makers}
    if writers:
        first = next(iter(writers))
        message = f"mode {mode.mode} changes models, so it cannot be exported: it runs {', '.join(writers)}"
        help = "name a mode that only computes, with `--mode`, values that need no writes, with `--value`, or "
        span = spec.span("ops", first, key=True)
        raise problem("GS266", message, span=span, help=f"{help}`--format weights`", texts=spec.texts())


def _choose(mode: ModeProgram, current: Sequence[Function], outputs: tuple[str, ...], spec: GraphSpec) -> Function:
    """Return a function with the outputs of all of them; raise SpecError (GS265) where clocks change the outputs."""
    ways = [tuple(_simplify(replace(each, notes=())) for each in _reach(function, outputs)) for function in current]
    if all(way == ways[0] for way in ways[1:]):
        return current[0]
    clocked = [gate.op for gate in mode.gates if gate.clock != "averaged"]
    made = {each.op for way in ways for each in way}
    op = next((name for name in clocked if name in made), clocked[0])
    message = f"op '{op}' does not fire in every step of mode {mode.mode}, and a program has no steps"
    help = f"name values that do not need it, with `--value`, remove its clock, or write `mode: train` on it{_ELSE}"
    raise problem(CODE, message, span=spec.span("ops", op, key=True), help=help, texts=spec.texts())


_ELSE = "; `--format weights` writes the weights alone"


def _reach(function: Function, outputs: Iterable[str]) -> tuple[Instruction, ...]:
    """Return the instructions that compute some outputs, in order, without those that only size a draw."""
    needed, kept = set(outputs), list[Instruction]()
    for each in reversed(function.instructions):
        if not isinstance(each, (Emit, Release)) and needed.intersection(each.defines):
            kept.append(each)
            needed.update(() if isinstance(each, Random) else find_uses(each))
    return tuple(reversed(kept))


def _simplify(instruction: Instruction) -> Instruction:
    """Return an instruction without its provisions for gradients and later writes: there are none."""
    match instruction:
        case Forward():
            draws = instruction.draws and instruction.train
            plain = replace(instruction, graph=False, frozen=False, snapshot="none", checkpoint=False)
            return replace(plain, differentiable=True, draws=draws)
        case Evaluate():
            return replace(instruction, graph=False)
        case _:
            return instruction


def _find_problems(kept: Sequence[Instruction], inputs: Iterable[InputDecl], spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem for everything that is not a function of inputs of known shapes."""
    for each in kept:  # its results must depend on its inputs alone
        why = ""
        if isinstance(each, (Gradient, Transform)):
            why = "it takes a gradient"
        elif isinstance(each, Forward) and each.draws:
            why = f"the layers of '{each.model}' draw random numbers in it"
        elif any(find_scheduled(each)):
            why = "it follows a schedule, and a program has no steps"
        elif is_running(each):
            why = "its value runs over many batches"
        if why:
            span = spec.span("ops", each.op, key=True)
            help = f"leave it out of the mode, or name the values to export with `--value`{_ELSE}"
            yield Diagnostic(code=CODE, message=f"op '{each.op}' cannot be exported: {why}", span=span, help=help)
    for entry in inputs:  # it must have a shape, and no size that follows from others
        odd = [size for size in entry.shape or () if isinstance(size, str) and not size.isidentifier()]
        if entry.shape is None or odd:
            kind = "inputs" if entry.name in spec.inputs else "ops"
            found = f"has the size {odd[0]}" if odd else "has no known shape"
            message = f"'{entry.name}' would be an input of the program, and {found}"
            span = spec.span(kind, entry.name, key=True)
            help = f"declare its shape, as in `shape: [batch, 8]`{_ELSE}"
            yield Diagnostic(code=CODE, message=message, span=span, help=help)
