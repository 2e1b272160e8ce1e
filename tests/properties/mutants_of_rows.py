"""Mutants of gradients that are rows."""

from __future__ import annotations

from msgspec.structs import replace

from runtime.codegen.support_code import Library
from tests.properties import mutations as to
from tests.properties.mutant import Mutant


def keep_repeated(wanted: object, library: Library) -> tuple[object, Library]:
    """Return a library that takes the rows of a gradient as they come."""
    summed = library.definitions["summed"]
    assert "gradient = gradient.coalesce()" in summed.source
    source = summed.source.replace("gradient = gradient.coalesce()", "gradient = gradient._coalesced_(True)")
    return wanted, replace(library, definitions={**library.definitions, "summed": replace(summed, source=source)})


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
)
