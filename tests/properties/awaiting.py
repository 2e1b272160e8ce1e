"""Writes that wait for verdicts of others, made as soon as their own gradients are known: what comes of an overflow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from compiler import Plan
from compiler.ir.instructions import Accumulate, Apply, CheckFinite, Instruction, TakeAccumulated, Transform
from compiler.ir.program import Function, Program
from runtime.codegen.resources import find_uses
from tests.properties.agreement import batches, find_turns, observe
from tests.properties.programs import change_function, limit, spell_out

if TYPE_CHECKING:
    from tests.properties.execution import Execution


Steps = list[tuple[dict, dict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaiting:
    """An update that waits for the verdicts of ``others``, and the program in which it does not."""

    function: Function
    write: Apply
    others: frozenset[str]
    program: Program


def find_awaiting(plan: Plan) -> Iterator[Awaiting]:
    """Yield every update that is deferred until verdicts of others are known."""
    for function in plan.program.mode("train").functions:
        decisions = (one for one in plan.graphs[function.name].decisions if one.code == "DEFER")
        late = {one.subject for one in decisions if any(each.edge == "verdict" for each in one.because)}
        for write in function.instructions:
            if isinstance(write, Apply) and write.op in late:
                yield _hurry(plan.program, function, write)


def _hurry(program: Program, function: Function, write: Apply) -> Awaiting:
    """Return the program in which all that an update does stands right behind its gradients, as far as these allow it.

    It depends on the verdicts that are known there; the update awaits those that are not.
    """
    chain = _find_chain(function.instructions, write)
    rest = [one for one in function.instructions if one not in chain]
    judges = {one.output: one.op for one in function.instructions if isinstance(one, CheckFinite)}
    own = {value for one in chain for value in one.defines}
    foreign = {value for value, op in judges.items() if op != write.op}
    foreign |= {value for one in function.instructions if one.combined for value in one.defines}
    wanted = (judges.keys() | {value for one in chain for value in find_uses(one)}) - own - foreign
    place = 1 + max(index for index, one in enumerate(rest) if wanted.intersection(one.defines))
    known = own | {value for one in rest[:place] for value in one.defines}
    conditions = [spell_out(one.commits, function) for one in chain]
    awaited = {value for commits in conditions for way in commits for value in way} - known
    limited = (replace(one, commits=limit(commits, known)) for one, commits in zip(chain, conditions, strict=True))
    hurried = (*rest[:place], *limited, *rest[place:])
    return Awaiting(
        function=function,
        write=write,
        others=frozenset(judges[value] for value in awaited if value in judges),
        program=change_function(program, function, hurried),
    )


def _find_chain(instructions: Sequence[Instruction], write: Apply) -> list[Instruction]:
    """Return what is done with gradients as they were taken: windows, transforms, checks, the write of an update."""
    makers = {value: one for one in instructions for value in one.defines}
    judged = {value for one in instructions if isinstance(one, CheckFinite) for value in one.gradients}
    taken = {value for value in judged if _is_taken(value, makers[value])}
    chain: list[Instruction] = [write]
    pending = [part.gradients for part in write.parts]
    while pending:
        value = pending.pop()
        maker = makers[value]
        if value in taken or maker in chain or not isinstance(maker, Transform | TakeAccumulated):
            continue
        if isinstance(maker, Transform) and any("#" in each for each in maker.inputs):
            continue  # the sum over micro-batches is the gradient as it was taken
        chain.append(maker)
        if isinstance(maker, Transform):
            pending.extend(maker.inputs)
        else:
            chain.extend(one for one in instructions if isinstance(one, Accumulate) and one.window == maker.window)
    made = {value for one in chain for value in one.defines}
    checks = [one for one in instructions if isinstance(one, CheckFinite) and one.op == write.op]
    chain.extend(one for one in checks if made.intersection(one.gradients))
    return [one for one in instructions if one in chain]


def _is_taken(value: str, maker: Instruction) -> bool:
    """Return whether a set is one of gradients as they were taken, or the sum of those of terms that count apart."""
    is_sum = isinstance(maker, Transform) and maker.function.name == "add_sets" and value == maker.op
    return is_sum or not isinstance(maker, Transform | TakeAccumulated)


def is_of(turn: Sequence[str | None], function: Function) -> bool:
    """Return whether a function is for batches of the data set that a turn names."""
    return not function.datasets or (turn[1] or "") in function.datasets


def run_planted(execution: Execution, plan: Plan, modes: Sequence[str], awaiting: Awaiting) -> tuple[Steps, bool]:
    """Return the steps, and whether the function runs in one of them whose update awaits others.

    The gradients of these overflow in such steps; nothing else does.
    """
    gates, verdicts = execution.names.get("gates"), execution.names["verdicts"]
    function, check_finite, met, steps = awaiting.function, verdicts.check_finite, list[bool](), Steps()
    for turn, batch in zip(find_turns(plan.spec, modes), batches(plan.spec, overflows=False), strict=False):

        def check_planted(key: str, *sets: Sequence[Any], is_of: bool = is_of(turn, function), **filled: Any) -> object:
            met.append(is_of and (gates is None or gates.found[1] == function.gated))
            burst = float("inf") if met[-1] and key.partition(".")[0] in awaiting.others else 1.0
            burnt = (tuple(None if each is None else each * burst for each in one) for one in sets)
            return check_finite(key, *burnt, **filled)

        verdicts.check_finite = check_planted
        steps.append((execution.step(batch, *turn), observe(execution)))
    return steps, any(met)
