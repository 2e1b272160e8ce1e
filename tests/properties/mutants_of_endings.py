"""Mutants of data sets in turn, of what ends with epochs, of groups frozen for some time, and of what models share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from compiler.ir.instructions import Instruction
from compiler.ir.program import Gate
from graphspec.analysis.datasets import UNNAMED, find_datasets
from graphspec.declare.graph import GraphSpec
from tests.properties import mutations as to
from tests.properties.mutant import Mutant


def carry_on(found: Iterable[Gate], *arguments: object) -> Iterator[Gate]:
    """Let every window go on into the next epoch."""
    yield from (replace(gate, epoch=None, flush=False) for gate in found if gate.clock != "epochs")


def run_everywhere(found: Mapping[str, frozenset[str]], spec: GraphSpec) -> Mapping:
    """Let every op run on batches of every data set."""
    return dict.fromkeys(found, frozenset((UNNAMED, *find_datasets(spec))))


def count_every_step(found: Iterable[Gate], *arguments: object) -> tuple[Gate, ...]:
    """Let the clocks of ops for some data sets count the steps on others too."""
    return tuple(gate if gate.follows else replace(gate, clock="steps") for gate in found)


def hear_own(told: tuple[str, ...], node: Instruction, own: tuple[str, ...], *others: object) -> tuple[str, ...]:
    """Leave out the verdicts over what others give."""
    return own


MUTANTS_OF_ENDINGS = (
    Mutant(
        name="data-sets-unheard",
        says="Every op runs on batches of every data set.",
        place="passes.datasets:find_places",
        change=to.change(run_everywhere),
        killer="numbers",
        case="counted-apart",
    ),
    Mutant(
        name="every-counts-all",
        says="`every` of an op for some data sets also counts the steps on others.",
        place="passes.datasets:find_live_gates",
        change=to.change(count_every_step),
        killer="numbers",
        case="counted-apart",
    ),
    Mutant(
        name="windows-carried",
        says="Every window continues into the next epoch.",
        place="passes.datasets:time_windows",
        change=to.change(carry_on),
        killer="numbers",
        case="ends-elsewhere",
    ),
    Mutant(
        name="ends-at-home",
        says="An epoch ends no window if its last batch is from another data set.",
        place="passes.datasets:find_closing",
        change=to.give(frozenset()),
        killer="numbers",
        case="ends-elsewhere",
    ),
    Mutant(
        name="never-frozen",
        says="Parameters that are frozen until some step are trained before it.",
        place="passes.functions:find_frozen",
        change=to.give(()),
        killer="numbers",
        case="frozen-first",
    ),
    Mutant(
        name="ends-while-skipped",
        says="An end in updates counts the steps in which its update is skipped.",
        place="timing.resolve:find_skippable",
        change=to.give(None),
        killer="numbers",
        case="counted-as-applied",
    ),
    Mutant(
        name="frozen-while-skipped",
        says="A freeze in updates counts the steps in which its update is skipped.",
        place="passes.freeze:find_skippable",
        change=to.give(None),
        killer="numbers",
        case="counted-as-applied",
    ),
    Mutant(
        name="frozen-for-one",
        says="Parameters that a model freezes are trained by another model that shares them.",
        place="passes.freeze:find_tied",
        change=to.give(()),
        killer="numbers",
        case="frozen-by-the-other",
    ),
    Mutant(
        name="no-gaps-over-moments",
        says="A window that spans the end of a freeze requires a gradient in all of its steps.",
        place="passes.freeze:_may_unfreeze",
        change=to.give(False),
        killer="numbers",
        case="frozen-first",
    ),
    Mutant(
        name="others-left-out",
        says="An update with `shared: sum` omits the gradients of the others.",
        place="lower.update:find_givers",
        change=to.give({}),
        killer="numbers",
        case="given-nothing",
    ),
    Mutant(
        name="others-unjudged",
        says="The gradients of others are added even if they are not finite.",
        place="passes.commits:find_own",
        change=to.change(hear_own),
        killer="numbers",
        case="given-nothing",
    ),
    Mutant(
        name="stretches-uncut",
        says="Starts, ends and epoch ends do not divide the steps into ranges.",
        place="timing.firing_sets:_cut",
        change=lambda original: lambda begin, end, cuts: original(begin, end, ()),
        killer="functions",
    ),
    Mutant(
        name="one-epoch-walked",
        says="The search for active sets covers only one epoch.",
        place="timing.firing_sets:_Walk._cross_epoch",
        change=lambda original: lambda walk, begin, states: original(walk, begin, states) and states,
        killer="functions",
    ),
)
