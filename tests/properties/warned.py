"""Which random specs have a warning: ``python -m tests.properties.warned W-LAZY 300``, before it becomes an error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from graphspec import SpecError
from tests.properties.plans import plan_of
from tests.properties.specs import random_spec


def find_warned(code: str, seeds: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yield the seeds of the random specs that have a diagnostic, each with its message."""
    for seed in seeds:
        try:
            told = plan_of(random_spec(seed)).warnings
        except SpecError as error:  # a few have no plan
            told = error.diagnostics
        yield from ((seed, each.message) for each in told if each.code == code)


if __name__ == "__main__":
    wanted, count = sys.argv[1:]
    for found, message in find_warned(wanted, range(int(count))):
        print(f"seed {found}: {message}")
