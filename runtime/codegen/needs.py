"""Needs of a program: the lists, slices, hooks and clocks that ``build`` must prepare for its instructions."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from compiler.ir.instructions import (
    Apply,
    Assign,
    Blend,
    Evaluate,
    Forward,
    Transform,
)
from compiler.ir.program import Program
from runtime.codegen.flow import find_differentiated, find_mixed
from runtime.codegen.resources import (
    find_checked,
    find_functions,
    find_instructions,
    find_joint,
    is_lowered,
    is_running,
    is_typed,
)
from runtime.codegen.scheduled_numbers import find_numbers


class Needs(Struct, frozen=True, kw_only=True):
    """What a program uses; lists of tensors are given by model."""

    differentiated: frozenset[str]
    """Models that some gradient is taken for; the others' weights never require one."""
    parameters: frozenset[str]
    """Models whose list of parameters is used."""
    weights: frozenset[str]
    """Models that need a second list: of all parameters, including those that a class or a group froze."""
    buffers: frozenset[str]
    taps: Mapping[str, tuple[str, ...]]
    joint: tuple[tuple[str, ...], ...]
    """Groups of models whose parameters are used as one list."""
    parts: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    """(models of a gradient set, one of them, some in a row, or all that share parameters) where the slice of these is
    used."""
    drawing: frozenset[str]
    """Models of a user's class that draw random numbers."""
    random: bool
    gates: bool
    measured: bool
    """Some metric has a running value."""
    paced: bool
    """Some option of an optimizer, or number of an op, changes with the steps."""
    clock: bool
    """The steps are counted: something depends on the step number."""
    lowered: bool
    """Some model computes in another type than float32."""
    typed: bool
    """Some call has a result in the type of the step, which its operands do not tell."""
    mixed: frozenset[str]
    """Models that share modules with one that runs in the other mode: each is put into its mode before every run."""
    checked: bool
    """The gradients of some update are checked."""


def find_needs(program: Program) -> Needs:
    """Return the needs of a program's functions."""
    instructions = [*find_instructions(program)]
    differentiated = find_differentiated(program)
    followed, buffered, drawing = set[str](), set[str](), set[str]()
    taps: dict[str, dict[str, None]] = {}
    for each in instructions:
        if isinstance(each, Blend | Assign):
            followed.update((each.target, each.source))
            buffered.update((each.target, each.source) if follows_buffers(each, program) else ())
        elif isinstance(each, Forward):
            drawing.update([each.model] if each.draws else ())
            for _, layer in each.taps:
                taps.setdefault(each.model, {})[layer] = None
    classes = frozenset(each.name for each in program.models if each.kind == "class")
    partial = classes.union(each.name for each in program.models if each.frozen)
    split = partial & differentiated & followed
    parts: dict[tuple[tuple[str, ...], tuple[str, ...]], None] = {}
    for part in (part for each in instructions if isinstance(each, Apply) for part in each.parts):
        if part.covers != part.models and not part.excluded and (part.may_miss or not part.is_divided):
            # Of models that share parameters there is one part for all of them.
            groups = (part.models,) if are_tied(part.models, program) else tuple((each,) for each in part.models)
            parts.update(((part.covers, models), None) for models in groups)
    taken = (each for each in instructions if isinstance(each, Transform) and each.covers)
    parts.update(((each.covers, each.models), None) for each in taken)
    is_shared = program.parallel is not None and program.parallel.buffers != "local"
    functions = find_functions(program) if is_shared else ()
    shared = frozenset(model for each in functions for model in program.find_written_buffers(each))
    random = any(each.drawing for each in instructions)
    gates = any(mode.gates for mode in program.modes)
    metrics, stepped = find_metrics(program), set[str]()
    clocks = {number.schedule.clock for number, _, _ in find_numbers(program)}
    for optimizer in program.optimizers:
        stepped.update(optimizer.models)
        clocks.update(each.clock for each in optimizer.schedules.values())
    paced = not clocks <= {"updates", "writes"}  # the others follow the steps
    return Needs(
        differentiated=differentiated,
        parameters=differentiated | stepped | (followed - split),
        weights=split,
        buffers=shared | buffered,
        taps={model: tuple(layers) for model, layers in taps.items()},
        joint=find_joint(program),
        parts=tuple(parts),
        drawing=classes & drawing,
        random=random,
        gates=gates,
        paced=paced,
        measured=bool(metrics),
        clock=random or gates or paced or bool(metrics),
        lowered=any(isinstance(each, Forward) and is_lowered(each) for each in instructions),
        typed=any(isinstance(each, Evaluate) and is_typed(each) for each in instructions),
        mixed=find_mixed(program),
        checked=bool(find_checked(program)),
    )


def are_tied(models: tuple[str, ...], program: Program) -> bool:
    """Return whether some of these models share parameters."""
    tied = program.tied.intersection(models)
    return any(not frozenset(program.model(name).tied).isdisjoint(models) for name in tied)


def find_metrics(program: Program) -> tuple[tuple[str, Evaluate], ...]:
    """Return (mode, instruction) of every metric with a running value; a user's metric may always have one."""
    found: dict[tuple[str, str], tuple[str, Evaluate]] = {}
    for function in find_functions(program):
        for each in function.instructions:
            if isinstance(each, Evaluate) and is_running(each):
                found.setdefault((function.mode, each.op), (function.mode, each))
    return tuple(found.values())


def follows_buffers(instruction: Blend | Assign, program: Program) -> bool:
    """Return whether a blend or copy treats buffers: built-in layers are known to have some or none."""
    model = program.model(instruction.source)
    has_some = model.kind == "class" or bool(model.buffers)
    return has_some and instruction.moves_buffers
