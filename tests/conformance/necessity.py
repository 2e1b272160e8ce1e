"""Undo the deferrals and the kept tapes of plans for TensorFlow: ``python -m tests.conformance.necessity COUNT``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Container, Iterable, Iterator
from functools import partial

from tests.conformance.execution import TensorFlowExecution, running
from tests.conformance.random_specs import Make, plan_for
from tests.properties.necessity import Ground, Undone, find_known, report, undo_deferrals
from tests.properties.specs import base_spec, random_spec


def make_ground(make: Make) -> Ground:
    """Return where plans for TensorFlow are changed, of the specs that a function makes."""
    return Ground(
        plan=partial(plan_for, "tensorflow", make=make),
        execute=partial(TensorFlowExecution, swift=True),
        plan_for_torch=partial(plan_for, "torch", make=make),
    )


TENSORFLOW, BASE = make_ground(random_spec), make_ground(base_spec)
PERSISTENT = "persistent=True, "


def undo_tapes(seeds: Iterable[int], ground: Ground = TENSORFLOW) -> Undone:
    """Let every tape that is used more than once end at its first use."""
    found = Undone()
    for known in find_known(seeds, "fewest", ground):
        functions = {function.name: function for function in known.plan.program.mode("train").functions}
        for function, text in without_persistence(known.text, functions):
            found.tried += 1
            outcome = known.try_without(lambda text=text: text, functions[function])
            if outcome:
                found.count(outcome)
            else:
                found.needless.append(f"seed {known.seed}: a tape of {function}")
    return found


def without_persistence(text: str, functions: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield, for every tape that lasts, the function that it is in and the text in which it does not."""
    for tape in re.finditer(PERSISTENT, text):
        function = re.findall(r"^def (\w+)", text[: tape.start()], re.MULTILINE)[-1]
        if function in functions:
            yield function, text[: tape.start()] + text[tape.end() :]


UNDO = {"deferrals": partial(undo_deferrals, ground=TENSORFLOW), "tapes": undo_tapes}


def main() -> int:
    """Print the figures of the first seeds; return 1 where something was needless."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.necessity", description=__doc__)
    parser.add_argument("count", type=int, help="how many seeds, from 0")
    parser.add_argument("--base", action="store_true", help="specs of the first parts of the language alone")
    options = parser.parse_args()
    undo = {"deferrals": undo_deferrals, "tapes": undo_tapes}
    with running(eagerly=True):
        ground = BASE if options.base else TENSORFLOW
        return report({name: partial(one, ground=ground) for name, one in undo.items()}, options.count)


if __name__ == "__main__":
    sys.exit(main())
