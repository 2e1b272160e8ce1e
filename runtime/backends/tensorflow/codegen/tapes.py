"""Tapes: the range of a function that must be recorded for each gradient, and how these ranges nest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.instructions import Adapt, Evaluate, Forward, Gradient, Instruction, Transform
from compiler.ir.program import Function, Program
from graphspec.diagnostics import Diagnostic, SpecError
from runtime.codegen.flow import Flow, carries, find_flow, find_gradient_paths, find_holders

MOST = 19
"""The most tapes that are open at once: Python nests 20 blocks, of which a profiler's range takes one."""


class Tape(Struct, frozen=True, kw_only=True):
    """The range of one tape, as positions of instructions: from ``first`` to ``last``, for some gradients.

    A gradient comes after the last position of its tape; with several the tape is persistent.
    """

    first: int
    last: int
    gradients: tuple[int, ...]


def find_tapes(function: Function, program: Program) -> tuple[Tape, ...]:
    """Return the tapes of a function, any two of them disjoint or nested; outer ones come first.

    Gradients whose paths meet share a tape, unless one of them is taken while the other's path is still being
    recorded: then each has its own. The same holds where one gradient is on the path of another.
    """
    positions = {id(each): position for position, each in enumerate(function.instructions)}
    makers = {value: each for each in function.instructions for value in each.defines}
    paths = find_gradient_paths(function.instructions, makers, program)
    tapes: list[Tape] = []
    recording: dict[int, set[int]] = {}  # by position, the tapes with paths through it
    for position, gradient in enumerate(function.instructions):
        if not isinstance(gradient, Gradient):
            continue
        path = [positions[key] for key in paths[id(gradient)]]
        loss = makers.get(gradient.loss)
        recorded = [*path, position - 1 if loss is None else positions[id(loss)]]  # up to what computes the loss
        tape = Tape(first=min(recorded), last=max(recorded), gradients=(position,))
        # Two can share one if their paths meet, and no gradient is taken before both end.
        meeting = sorted({at for each in path for at in recording.get(each, ())})
        host = next((at for at in meeting if max(tapes[at].last, tape.last) < tapes[at].gradients[0]), None)
        if host is None:
            host = len(tapes)
            tapes.append(tape)
        else:
            tapes[host] = Tape(
                first=min(tapes[host].first, tape.first),
                last=max(tapes[host].last, tape.last),
                gradients=(*tapes[host].gradients, position),
            )
        for each in path:
            recording.setdefault(each, set()).add(host)
    nested = sorted(nest(tapes), key=lambda tape: (tape.first, -tape.last, tape.gradients))
    _check_depth(nested, function)
    return tuple(nested)


def nest(tapes: Sequence[Tape]) -> Iterator[Tape]:
    """Yield the tapes, widened so that any two are disjoint or nested.

    Of two that cross, the one that ends later is made to begin no later than the other. Recording more than a path
    costs nothing in a graph, and changes no number: only watched values matter. A tape is widened only because of
    others that end before it, so one pass in the order of their ends is enough.
    """
    spans: list[tuple[int, int]] = []  # disjoint and in order: the stretches that earlier tapes cover
    for last, group in groupby(sorted(tapes, key=lambda tape: tape.last), key=lambda tape: tape.last):
        start = last
        for tape in group:
            overlapping = takewhile(lambda span, tape=tape: span[1] >= tape.first, reversed(spans))
            first = min([tape.first, *(begun for begun, _ in overlapping)])
            yield replace(tape, first=first)
            start = min(start, first)
        # For tapes that end later, the stretches that this group overlaps are one.
        while spans and spans[-1][1] >= start:
            start = min(start, spans.pop()[0])
        spans.append((start, last))


def _check_depth(tapes: Sequence[Tape], function: Function) -> None:
    """Raise SpecError (E-BACKEND) where more tapes are open at once than Python nests blocks.

    ``tapes``: those of a function, outer ones first.
    """
    around: list[Tape] = []
    deepest: list[Tape] = []
    for tape in tapes:
        around = [*(each for each in around if each.last >= tape.first), tape]
        deepest = max(deepest, around, key=len)
    if len(deepest) > MOST:
        taken = sorted(position for each in deepest for position in each.gradients)
        first, last = (function.instructions[position].op for position in (taken[0], taken[-1]))
        raise SpecError(
            [
                Diagnostic(
                    code="E-BACKEND",
                    message=f"{len(deepest)} tapes would be open at the same time, for the gradients of '{first}' to "
                    f"'{last}', and Python nests at most {MOST}",
                    help="choose the backend torch, which needs no tapes; or give updates forwards of their own, after "
                    "the update before, and inner steps of `adapt` `order: 1`",
                )
            ],
            {},
        )


def find_differentiated_sets(function: Function) -> frozenset[str]:
    """Return the gradient sets that weights are made of through which other gradients run."""
    adapts = (each for each in function.instructions if isinstance(each, Adapt))
    found = {each.gradients.name for each in adapts if not each.gradients.detach}
    for each in reversed(function.instructions):
        if isinstance(each, Transform) and each.output in found:
            found.update(each.inputs)
    return frozenset(found)


def find_recorded(function: Function, program: Program) -> Flow:
    """Return the flow of a function whose tapes record everything while they are open.

    A tape has no ``no_grad``: all values derived from a watched one carry a graph, needed or not, until stopped.
    """
    meant = find_flow(function)
    gradients = (each for each in function.instructions if isinstance(each, Gradient))
    targets = frozenset[str]().union(*(find_holders(each, program) for each in gradients))
    carrying = set(meant.carrying)
    for instruction in function.instructions:
        if _carries(instruction, targets, carrying):
            carrying.update(instruction.defines)
    return replace(meant, carrying=frozenset(carrying), partial=frozenset())


def _carries(instruction: Instruction, targets: frozenset[str], carrying: set[str]) -> bool:
    """Return whether the results of an instruction depend on what some tape watches."""
    match instruction:
        case Forward():
            is_watched = instruction.weights is None and instruction.model in targets
            is_recorded = is_watched or carries(instruction, carrying) or bool(instruction.begun)
            return not instruction.stop and is_recorded
        case Evaluate():
            return not instruction.constant and carries(instruction, carrying)
        case Adapt():
            is_watched = instruction.base is None and instruction.model in targets
            return is_watched or carries(instruction, carrying)
        case Gradient():
            return True
        case Transform():
            return not carrying.isdisjoint(instruction.inputs)
        case _:
            return instruction.recorded
