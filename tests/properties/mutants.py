"""The mutants; ``python -m tests.properties.mutants 100`` tries each, and what kills it, on 100 random specs."""

from __future__ import annotations

import sys

from compiler.ir.step_graph import Hazard
from tests.properties import mutations as to
from tests.properties.killers import fails
from tests.properties.mutant import Mutant
from tests.properties.mutants_of_averages import MUTANTS_OF_AVERAGES
from tests.properties.mutants_of_endings import MUTANTS_OF_ENDINGS
from tests.properties.mutants_of_graphs import MUTANTS_OF_GRAPHS
from tests.properties.mutants_of_language import MUTANTS_OF_LANGUAGE
from tests.properties.mutants_of_library import MUTANTS_OF_LIBRARY
from tests.properties.mutants_of_order import MUTANTS_OF_ORDER
from tests.properties.mutants_of_outcomes import MUTANTS_OF_OUTCOMES
from tests.properties.mutants_of_parts import MUTANTS_OF_PARTS
from tests.properties.mutants_of_rows import MUTANTS_OF_ROWS
from tests.properties.mutants_of_terms import MUTANTS_OF_TERMS
from tests.properties.mutants_of_verdicts import MUTANTS_OF_VERDICTS

MUTANTS = (
    *MUTANTS_OF_ORDER,
    *MUTANTS_OF_GRAPHS,
    *MUTANTS_OF_TERMS,
    *MUTANTS_OF_VERDICTS,
    *MUTANTS_OF_ENDINGS,
    *MUTANTS_OF_OUTCOMES,
    *MUTANTS_OF_AVERAGES,
    *MUTANTS_OF_PARTS,
    *MUTANTS_OF_LIBRARY,
    *MUTANTS_OF_ROWS,
    *MUTANTS_OF_LANGUAGE,
)
EQUIVALENT = (
    Mutant(
        name="no-buffer-war-of-training",
        says="Averages of buffers do not wait for gradients through train-mode forwards.",
        place="passes.pipeline:find_hazards",
        change=to.drop(Hazard.BUFFER_WAR, where=to.is_training),
    ),
    Mutant(
        name="no-raw",
        says="A reader does not wait for the write of its version.",
        place="passes.pipeline:find_hazards",
        change=to.drop(Hazard.RAW),
    ),
    Mutant(
        name="no-waw",
        says="A write does not wait for the previous write.",
        place="passes.pipeline:find_hazards",
        change=to.drop(Hazard.WAW),
    ),
    Mutant(
        name="no-order-of-statistics-and-averages",
        says="Averages do not wait for train-mode forwards of their target.",
        place="passes.hazards:_find_order_hazards",
        change=to.give(()),
    ),
)
"""Mutants that change no program: another rule says the same. docs/correctness.md says which."""


def main(count: int) -> None:
    """Print, for every mutant, its property, and for how many of the first random specs that fails."""
    print(f"| mutant | | fails | of {count} specs |\n|---|---|---|---|")
    for mutant in MUTANTS:
        sound = [seed for seed in range(count) if not fails(mutant.killer, seed)]
        with mutant.applied():
            found = [seed for seed in sound if fails(mutant.killer, seed)]
        print(f"| {mutant.name} | {mutant.says} | {mutant.killer} | {len(found)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
