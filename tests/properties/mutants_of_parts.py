"""Mutants of what is repeated or chosen."""

from __future__ import annotations

from msgspec.structs import replace

from tests.properties import mutations as to
from tests.properties.mutant import Mutant

MUTANTS_OF_PARTS = (
    Mutant(
        name="iterations-at-once",
        says="An iteration does not come after what the one before it writes.",
        place="graphspec.expand.bindings:_Binder._find_written_before",
        change=to.give([]),
        killer="numbers",
        case="iterations",
    ),
    Mutant(
        name="rows-of-another-iteration",
        says="The first iteration reads the last part of the rows.",
        place="graphspec.expand.parts:_split",
        change=to.change(lambda op, value, names: {**op, "outputs": [*reversed(names)]}),
        killer="numbers",
        case="iterations-of-rows",
    ),
    Mutant(
        name="iterations-from-the-start",
        says="A scheduled iteration runs in every step.",
        place="graphspec.expand.bindings:describe_part",
        change=to.change(lambda part, *_: {key: each for key, each in part.items() if key != "start"}),
        killer="numbers",
        case="later-iterations",
    ),
    Mutant(
        name="alternatives-together",
        says="An alternative also runs in the steps of those after it.",
        place="passes.activate:_gate_part",
        change=to.change(lambda gate, *_: replace(gate, high=1.0)),
        killer="numbers",
        case="alternatives",
    ),
)
