"""Mutants of gradients that are rows, and of rules that keep an average or step some parameters alone."""

from __future__ import annotations

from msgspec.structs import replace

from compiler.ir.instructions import Apply
from runtime.codegen.support_code import Library
from tests.properties import mutations as to
from tests.properties.mutant import Mutant


def keep_repeated(wanted: object, library: Library) -> tuple[object, Library]:
    """Return a library that takes the rows of a gradient as they come."""
    home = library.homes["summed"]
    assert home.text.count("gradient = gradient.coalesce()") == 1
    text = home.text.replace("gradient = gradient.coalesce()", "gradient = gradient._coalesced_(True)")
    return wanted, replace(library, homes={**library.homes, "summed": replace(home, text=text)})


def halve_shares(found: tuple[tuple[str, float], ...], *arguments: object) -> tuple[tuple[str, float], ...]:
    """Return optimizers that keep an average, with half its share in the weights."""
    return tuple((name, share / 2) for name, share in found)


def leave_groups(apply: Apply, *arguments: object) -> Apply:
    """Return the write of an update without the groups that have a rule of their own."""
    return replace(apply, parts=tuple(part for part in apply.parts if ".groups." not in part.optimizer))


MUTANTS_OF_ROWS = (
    Mutant(
        name="rows-not-summed",
        says="A row that a batch names several times has the gradient of one of them.",
        place="runtime.codegen.module:select_support",
        change=to.change_arguments(keep_repeated),
        killer="numbers",
        case="repeated-rows",
    ),
    Mutant(
        name="lazy-moves-all",
        says="A lazy rule moves the rows without a gradient.",
        place="ir.program:OptimizerDecl.steps_rows",
        change=lambda original: property(lambda self: False),
        killer="numbers",
        case="lazy-rows",
    ),
    Mutant(
        name="average-half-taken-out",
        says="The average of a schedule-free rule is found as if the weights had half its share.",
        place="lower.average:find_averaging",
        change=to.change(halve_shares),
        killer="numbers",
        case="schedule-free",
    ),
    Mutant(
        name="weights-for-the-average",
        says="The average of a schedule-free rule is a copy of the weights.",
        place="lower.average:find_averaging",
        change=to.change(lambda found, *arguments: tuple((name, 0.0) for name, _ in found)),
        killer="numbers",
        case="schedule-free",
    ),
    Mutant(
        name="ruled-groups-unstepped",
        says="A group with a rule of its own is left out of the update.",
        place="lower.update:_lower_apply",
        change=to.change(leave_groups),
        killer="numbers",
        case="ruled-group",
    ),
)
