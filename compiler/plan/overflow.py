"""Overflow in words: how the loss scale moves, and which updates are held by gradients that are not finite."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.instructions import Accumulate, AllFinite, Apply, Assign, Blend, CheckFinite, Commit, Store
from compiler.ir.instructions.base import find_verdicts
from compiler.plan.compiled_step import CompiledStep
from graphspec.declare.ops import UpdateOp

LASTING = ("params", "tied", "buffers", "state")
"""What a user calls the state of a run; windows and optimizers follow their updates."""


def describe_overflow(plan: CompiledStep, mode: str) -> Iterator[str]:
    """Yield how the loss scale of a mode moves, for every update whose gradients hold it, and what is held with it."""
    program = plan.program
    functions = program.mode(mode).functions
    instructions = [each for function in functions for each in function.instructions]
    checks = [each for each in instructions if isinstance(each, CheckFinite)]
    scale = program.loss_scale
    if checks and scale is not None and scale.is_fixed:
        yield f"the loss scale is {scale.initial:g} in every step"
    elif checks and scale is not None:
        shrinks = f"times {scale.backoff_factor:g} after an overflow"
        grows = f"times {scale.growth_factor:g} after {scale.growth_steps:,} steps without one"
        yield f"the loss scale is {scale.initial:g} at first, {shrinks}, {grows}, and never below {scale.min_scale:g}"
    yield from _describe_updates(plan, mode)
    followers: dict[str, dict[str, None]] = {}
    for function in functions:
        applied: dict[Commit, dict[str, None]] = {}
        followed: dict[Commit, dict[str, None]] = {}
        for each in function.instructions:
            if isinstance(each, Apply | Blend | Assign | Store) and each.commits:
                (applied if isinstance(each, Apply) else followed).setdefault(each.commits, {})[each.op] = None
        for commits, names in followed.items():
            followers.setdefault(" and ".join(applied.get(commits, ())), {}).update(names)
    for updates, names in followers.items():
        if updates:
            yield f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} held with {updates}"
    always = (each for each in instructions if checks and not each.commits)
    written = dict.fromkeys(str(write.cell) for each in always for write in each.writes if write.cell.kind in LASTING)
    if written:
        yield f"written in any case: {', '.join(written)}"


def _describe_updates(plan: CompiledStep, mode: str) -> Iterator[str]:
    """Yield what holds each update; those of a group that nothing else holds share a sentence."""
    judged: dict[tuple[str, str], tuple[str, ...]] = {}  # by function and verdict, whose gradients it is about
    held: dict[str, dict[tuple[str, str], None]] = {}
    whole: set[str] = set()
    contents: set[tuple[str, str]] = set()  # verdicts about what a window holds
    for function in plan.program.mode(mode).functions:
        windows = {each.output for each in function.instructions if isinstance(each, CheckFinite) and each.filled}
        contents |= {(function.name, verdict) for verdict in windows}
        for each in function.instructions:
            if isinstance(each, CheckFinite | AllFinite):
                judged[function.name, each.output] = each.ops
            if isinstance(each, Apply | Accumulate) and each.commits:
                verdicts = find_verdicts(each.commits)
                found = ((function.name, verdict) for verdict in verdicts)
                held.setdefault(each.op, {}).update(dict.fromkeys(pair for pair in found if pair in judged))
                whole.update((each.op,) if isinstance(each, Apply) and not windows.isdisjoint(verdicts) else ())
    alike: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for name, pairs in held.items():
        op = plan.spec.ops[name]
        if not isinstance(op, UpdateOp) or op.accumulate is None or op.window == 1:
            says = "{updates} {are} held if {overflow}{group}"
        elif op.accumulate.on_nonfinite == "drop":
            says = "{updates} {leave} a step out of {their} if {overflow}; {each} is held if no step is left"
            says += " or what it accumulated is not finite" if name in whole else ""
        else:
            says = "{updates} {are} held if {overflow} in any step of {their}"
        taken = tuple(pair for pair in pairs if pair not in contents)
        alike.setdefault((says, taken or tuple(pairs)), []).append(name)
    for (says, pairs), names in alike.items():
        others = dict.fromkeys(op for pair in pairs for op in judged[pair])
        is_one = len(names) == 1
        yield says.format(
            updates=" and ".join(names),
            are="is" if is_one else "are",
            leave="leaves" if is_one else "leave",
            their="its window" if is_one else "their windows",
            each="it" if is_one else "each",
            overflow=f"gradients of {' or '.join(others)} are not finite",
            group=" (one group)" if others.keys() - {*names[:1]} else "",
        )
