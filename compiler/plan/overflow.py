"""Overflow in words: how the loss scale moves, and which updates are held by gradients that are not finite."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.instructions import Accumulate, Apply, Assign, Blend, CheckFinite, Store
from compiler.plan.compiled_step import CompiledStep
from graphspec.declare.ops import UpdateOp

LASTING = ("params", "tied", "buffers", "state")
"""What a user calls the state of a run; windows and optimizers follow their updates."""


def describe_overflow(plan: CompiledStep, mode: str) -> Iterator[str]:
    """Yield how the loss scale of a mode moves, for every update whose gradients hold it, and what is held with it."""
    program = plan.program
    instructions = [each for function in program.mode(mode).functions for each in function.instructions]
    judged = {each.output: each.op for each in instructions if isinstance(each, CheckFinite)}
    windows = {each.output for each in instructions if isinstance(each, CheckFinite) and each.filled}
    scale = program.loss_scale
    if judged and scale is not None and scale.is_fixed:
        yield f"the loss scale is {scale.initial:g} in every step"
    elif judged and scale is not None:
        shrinks = f"times {scale.backoff_factor:g} after an overflow"
        grows = f"times {scale.growth_factor:g} after {scale.growth_steps:,} steps without one"
        yield f"the loss scale is {scale.initial:g} at first, {shrinks}, {grows}, and never below {scale.min_scale:g}"
    held: dict[str, dict[str, None]] = {}
    whole: set[str] = set()
    for instruction in instructions:
        if isinstance(instruction, Apply | Accumulate) and instruction.commits:
            verdicts = [name for way in instruction.commits for name in way if name in judged]
            held.setdefault(instruction.op, {}).update(dict.fromkeys(judged[name] for name in verdicts))
            whole.update(instruction.op for name in verdicts if isinstance(instruction, Apply) and name in windows)
    followers: dict[str, list[str]] = {}
    for function in program.mode(mode).functions:
        applied = [each for each in function.instructions if isinstance(each, Apply) and each.commits]
        for instruction in function.instructions:
            if isinstance(instruction, Blend | Assign | Store) and instruction.commits:
                same = dict.fromkeys(each.op for each in applied if each.commits == instruction.commits)
                among = followers.setdefault(" and ".join(same), [])
                among += [instruction.op] if instruction.op not in among else []
    for name, others in held.items():
        op, overflow = plan.spec.ops[name], f"gradients of {' or '.join(others)} are not finite"
        if not isinstance(op, UpdateOp) or op.accumulate is None or op.window == 1:
            together = " (one group)" if others.keys() - {name} else ""
            yield f"{name} is held if {overflow}{together}"
        elif op.accumulate.on_nonfinite == "drop":
            sums = " or what it accumulated is not finite" if name in whole else ""
            yield f"{name} leaves a step out of its window if {overflow}; it is held if no step is left{sums}"
        else:
            yield f"{name} is held if {overflow} in any step of its window"
    for updates, names in followers.items():
        if updates:
            yield f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} held with {updates}"
    always = (each for each in instructions if judged and not each.commits)
    written = dict.fromkeys(str(write.cell) for each in always for write in each.writes if write.cell.kind in LASTING)
    if written:
        yield f"written in any case: {', '.join(written)}"
