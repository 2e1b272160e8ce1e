"""Mutants of averages: how they begin, what they count, and what the writes in between do."""

from __future__ import annotations

from msgspec.structs import replace

from compiler.ir.instructions import Instruction, Progress
from graphspec.declare.ops import EmaOp
from tests.properties import mutations as to
from tests.properties.mutant import Mutant


def count_from_one(found: Progress, *arguments: object) -> Progress:
    """Count one write before the first time, however many there were."""
    return replace(found, first=1)


def pass_over(found: Progress, *arguments: object) -> Progress:
    """Forget what the writes in between would keep."""
    return replace(found, compounds=False)


def begin_as_it_is(found: Progress, *arguments: object) -> Progress:
    """Leave zeros in."""
    return replace(found, begin="initial")


def begin_at_once(found: Progress, *arguments: object) -> Progress:
    """Average from the first step on."""
    return replace(found, since=1)


def average_all(nodes: tuple[Instruction, ...], *arguments: object) -> tuple[Instruction, ...]:
    """Average parameters whatever their names are."""
    return tuple(replace(each, match=None, exclude=None) for each in nodes)


def round_none(nodes: tuple[Instruction, ...], *arguments: object) -> tuple[Instruction, ...]:
    """Leave averages in the type of the step."""
    return tuple(replace(each, dtype="") for each in nodes)


def take_none_back(nodes: tuple[Instruction, ...], *arguments: object) -> tuple[Instruction, ...]:
    """Leave the model as it is."""
    return nodes[-1:]


def take_all_back(nodes: tuple[Instruction, ...], *arguments: object) -> tuple[Instruction, ...]:
    """Write back whenever the average is taken."""
    return tuple(replace(each, gate=None) for each in nodes)


MUTANTS_OF_AVERAGES = (
    Mutant(
        name="first-writes-uncounted",
        says="An average that is due at every second write begins to count with its first time.",
        place="lower.average:_find_progress",
        change=to.change(count_from_one),
        killer="numbers",
        case="counted-averages",
    ),
    Mutant(
        name="passed-over",
        says="Decays of the writes between two times of an average are not compounded.",
        place="lower.average:_find_progress",
        change=to.change(pass_over),
        killer="numbers",
        case="counted-averages",
    ),
    Mutant(
        name="zeros-left-in",
        says="The initial zeros of an average are not divided out.",
        place="lower.average:_find_progress",
        change=to.change(begin_as_it_is),
        killer="numbers",
        case="counted-averages",
    ),
    Mutant(
        name="begun-at-once",
        says="An average that is a copy before its start averages from the first step on.",
        place="lower.average:_find_progress",
        change=to.change(begin_at_once),
        killer="numbers",
        case="counted-averages",
    ),
    Mutant(
        name="all-averaged",
        says="`match` and `exclude` are ignored.",
        place="lower.table:LOWERINGS",
        change=to.change_row(EmaOp, average_all),
        killer="numbers",
        case="counted-averages",
    ),
    Mutant(
        name="never-rounded",
        says="`dtype` of an average is ignored.",
        place="lower.table:LOWERINGS",
        change=to.change_row(EmaOp, round_none),
        killer="numbers",
        case="counted-averages",
    ),
    Mutant(
        name="nothing-written-back",
        says="A model does not take the weights of its average.",
        place="lower.table:LOWERINGS",
        change=to.change_row(EmaOp, take_none_back),
        killer="numbers",
        case="written-back",
    ),
    Mutant(
        name="written-back-each-time",
        says="A model takes the weights of its average whenever that is updated.",
        place="lower.table:LOWERINGS",
        change=to.change_row(EmaOp, take_all_back),
        killer="numbers",
        case="written-back",
    ),
    Mutant(
        name="after-the-average-alone",
        says="`after` an average does not mean the write by which the model takes its weights.",
        place="passes.order:back_of",
        change=to.give(""),
        killer="numbers",
        case="written-back",
    ),
)
