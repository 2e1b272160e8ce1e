"""Tapes: the range of a function that must be recorded for each gradient, and how these ranges nest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

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
    path: frozenset[int]
    """The positions on the paths of its gradients."""


def find_tapes(function: Function, program: Program) -> tuple[Tape, ...]:
    """Return the tapes of a function, any two of them disjoint or nested; outer ones come first.

    Gradients whose paths meet share a tape, unless one of them is taken while the other's path is still being
    recorded: then each has its own. The same holds where one gradient is on the path of another.
    """
    places = {id(each): position for position, each in enumerate(function.instructions)}
    makers = {value: position for position, each in enumerate(function.instructions) for value in each.defines}
    paths = find_gradient_paths(function.instructions, program)
    tapes: list[Tape] = []
    for position, gradient in enumerate(function.instructions):
        if not isinstance(gradient, Gradient):
            continue
        path = frozenset(places[key] for key in paths[id(gradient)])
        over = path | {makers.get(gradient.loss, position - 1)}  # and everything that computes its loss
        tape = Tape(first=min(over), last=max(over), gradients=(position,), path=path)
        # Two can share one if their paths meet, and no gradient is taken before both end.
        host = next(
            (
                each
                for each in tapes
                if each.path & tape.path and max(each.last, tape.last) < min(*each.gradients, *tape.gradients)
            ),
            None,
        )
        if host is None:
            tapes.append(tape)
        else:
            tapes[tapes.index(host)] = Tape(
                first=min(host.first, tape.first),
                last=max(host.last, tape.last),
                gradients=(*host.gradients, *tape.gradients),
                path=host.path | tape.path,
            )
    # Of two that overlap, the one that ends later begins with the other. Recording more than a path costs nothing in a
    # graph, and changes no number: only watched values matter.
    while (crossing := _find_crossing(tapes)) is not None:
        early, late = crossing
        tapes[late] = replace(tapes[late], first=tapes[early].first)
    _check_depth(tapes, function)
    return tuple(sorted(tapes, key=lambda tape: (tape.first, -tape.last, tape.gradients)))


def _check_depth(tapes: Sequence[Tape], function: Function) -> None:
    """Raise SpecError (E-BACKEND) where more tapes are open at once than Python nests blocks."""
    deepest = max(tapes, key=lambda inner: sum(each.first <= inner.first <= each.last for each in tapes), default=None)
    around = [] if deepest is None else [each for each in tapes if each.first <= deepest.first <= each.last]
    if len(around) > MOST:
        ops = [function.instructions[position].op for each in around for position in each.gradients]
        raise SpecError(
            [
                Diagnostic(
                    code="E-BACKEND",
                    message=f"{len(around)} tapes would be open at the same time, for the gradients of '{ops[0]}' to "
                    f"'{ops[-1]}', and Python nests at most {MOST}",
                    help="choose the backend torch, which needs no tapes; or give updates forwards of their own, after "
                    "the update before, and inner steps of `adapt` `order: 1`",
                )
            ],
            {},
        )


def _find_crossing(tapes: Sequence[Tape]) -> tuple[int, int] | None:
    """Return two tapes of which the second begins within the first and ends after it."""
    for one, other in permutations(range(len(tapes)), 2):
        if tapes[one].first < tapes[other].first <= tapes[one].last < tapes[other].last:
            return one, other
    return None


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
