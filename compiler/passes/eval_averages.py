"""Averages that are evaluated in a model's place: which there are in a mode, and which of them are in use together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from itertools import chain, combinations
from math import prod

from msgspec import Struct

from compiler.ir.program import Gate, Mode
from compiler.timing.firing_sets import spell_large
from compiler.timing.gates import find_draws
from graphspec.analysis.modes import find_reaches
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import EmaOp, ForwardOp
from graphspec.diagnostics import Diagnostic

MOST_FUNCTIONS = 256
"""The most functions that a mode may have."""


class EvalAverage(Struct, frozen=True, kw_only=True):
    """The average ``target`` of the op ``op`` is evaluated in the place of ``model``, once the op has fired."""

    op: str
    model: str
    target: str


def find_eval_averages(spec: GraphSpec, mode: Mode) -> tuple[EvalAverage, ...]:
    """Return the averages that stand in for models whose forwards run in a mode; in train mode none does."""
    if mode == "train":
        return ()
    reaches = find_reaches(spec)
    called = {op.forward for name, op in spec.ops.items() if isinstance(op, ForwardOp) and mode in reaches[name].modes}
    return tuple(average for average in find_all_eval_averages(spec) if average.model in called)


def find_all_eval_averages(spec: GraphSpec) -> Iterator[EvalAverage]:
    """Yield every average that stands in for its model outside train mode, as `use: {eval: swap}` says."""
    for name, op in spec.ops.items():
        if isinstance(op, EmaOp) and op.use.eval == "swap":
            yield EvalAverage(op=name, model=op.ema, target=op.target(name))


def check_number(
    spec: GraphSpec, mode: Mode, patterns: Sized, bound: int, averages: Sequence[EvalAverage]
) -> Iterator[Diagnostic]:
    """Yield GS061 where a mode would need too many functions: one for every set of ops, and of averages in use.

    ``bound`` is how many sets of ops there can be; ``patterns`` are all, or enough of them to be too many.
    """
    uses = 2 ** len(averages)
    if len(patterns) * uses > MOST_FUNCTIONS:
        used = f", {uses:,} sets of averages in use" if averages else ""
        message = (
            f"mode '{mode}' would need up to {spell_large(bound * uses)} functions, at most {MOST_FUNCTIONS} are made: "
            f"up to {spell_large(bound)} sets of ops fire together{used}"
        )
        help = "give fewer ops their own clocks or choices; evaluate averages with separate forwards, without `use`"
        span = spec.span("ops", averages[0].op, "use") if averages else spec.span("ops", key=True)
        yield Diagnostic(code="GS061", message=message, span=span, help=help)


def check_draws(spec: GraphSpec, gates: Sequence[Gate]) -> Iterator[Diagnostic]:
    """Yield GS061 where what is drawn alone would need too many functions: one for every combination."""
    draws = find_draws(gates)
    total = prod(map(len, draws.values()))
    if total > MOST_FUNCTIONS:
        chosen = " times ".join(f"{len(numbers)} of '{name}'" for name, numbers in draws.items())
        yield Diagnostic(
            code="GS061",
            message=f"{len(draws)} choices would need {total:,} functions, of {MOST_FUNCTIONS} at most: {chosen}",
            span=spec.span("ops", next(iter(draws)), key=True),
            help="let one `choose` list the combinations that you need, or select values with `where` and a random op",
        )


def find_uses(averages: Sequence[EvalAverage]) -> tuple[tuple[EvalAverage, ...], ...]:
    """Return every set of averages that can be in use together: each is from its first firing on."""
    sizes = range(len(averages) + 1)
    return tuple(chain.from_iterable(combinations(averages, size) for size in sizes))


def map_models(averages: Sequence[EvalAverage]) -> Mapping[str, str]:
    """Return, for every model, the average that is evaluated in its place."""
    return {average.model: average.target for average in averages}
