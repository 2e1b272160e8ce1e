"""``python -m tests.properties.killing MUTANT SEED`` keeps the random spec of a seed, which kills the mutant.

A mutant must not depend on what a seed gives: whatever is added to the generator gives every seed another spec. So the
document is made as small as it goes and written to killing/<mutant>.json.
"""

from __future__ import annotations

import json
import sys
from random import Random

from graphspec.diagnostics import SpecError
from tests.properties.killers import fails
from tests.properties.mutant import Mutant
from tests.properties.mutants import MUTANTS
from tests.properties.rejections import random_rejected
from tests.properties.shrinking import Document, shrink
from tests.properties.special import KILLING, Kept, document_of
from tests.properties.specs import base_spec
from tests.properties.test_firing_sets import random_clocks

TRIES = 400


def draw(killer: str, seed: int) -> Kept:
    """Return what a property looks at for a seed."""
    random = Random(seed)
    if killer == "mistakes":
        document, mistake = random_rejected(random, base_spec)
        return {"mistake": mistake, "document": document}
    if killer == "functions":
        document = random_clocks(random)
        return {"epoch": random.randint(1, 9), "document": document}
    return {"document": document_of(seed)}


def kills(mutant: Mutant, case: Kept) -> bool:
    """Return whether a property holds for a case, and no longer when the mutant is applied."""
    try:
        with mutant.applied():
            if not fails(mutant.killer, case):
                return False
        return not fails(mutant.killer, case)
    except (SpecError, ValueError, TypeError, IndexError, AssertionError, StopIteration):
        return False  # what shrinking left is no spec, or not one of this property


def keep(mutant: Mutant, seed: int) -> None:
    """Write the smallest document found that kills a mutant, beginning with that of a seed."""
    found = draw(mutant.killer, seed)
    if not kills(mutant, found):
        raise SystemExit(f"the spec of seed {seed} does not kill {mutant.name}")

    def still_kills(document: Document) -> bool:
        return kills(mutant, {**found, "document": document})

    small = {**found, "document": shrink(found["document"], still_kills, TRIES)}
    KILLING.mkdir(exist_ok=True)
    (KILLING / f"{mutant.name}.json").write_text(json.dumps(small, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    keep(next(one for one in MUTANTS if one.name == sys.argv[1]), int(sys.argv[2]))
