"""Sizes of the batches with which a step is tried before its first: the size of the data, else made-up ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from compiler import Plan
from runtime.codegen.resources import count_parts
from runtime.step import StepError

MADE_UP = (2, 48)
"""Two is the least at which normalization over a batch means something; 48 has many divisors."""
FAILURES = frozenset({"GS210", "GS211"})
"""Codes of the failures that a batch of another size might avoid."""
T = TypeVar("T")


class Batches(Struct, frozen=True, kw_only=True):
    """Sizes of a batch, or of a micro-batch, in the order in which they are tried, and where they come from."""

    sizes: tuple[int, ...]
    origin: str

    @classmethod
    def of(cls, plan: Plan) -> Batches:
        """Return the batch size of the data where it is declared, else made-up sizes."""
        batch, parts = plan.pace.batch, count_parts(plan.program)
        if not any("batch" in (each.shape or ()) for each in plan.program.inputs):
            return cls(sizes=MADE_UP[:1], origin="")
        if batch is None or batch < parts:
            return cls(sizes=MADE_UP, origin="made up, as the spec declares no data")
        return cls(sizes=(batch // parts,), origin="that of `data.train`")

    def attempt(self, run: Callable[[int], T]) -> T:
        """Return the result of a run at the first size at which it does not fail.

        Raises the StepError of the first size where all fail; it names the sizes that were tried.
        """
        first: StepError | None = None
        for size in self.sizes:
            try:
                return run(size)
            except StepError as error:
                first = first or error
                if FAILURES.isdisjoint(each.code for each in error.diagnostics):
                    break
        assert first is not None
        if not self.origin:
            raise first
        note = f"tried before the first step at batch {' and '.join(map(str, self.sizes))} ({self.origin})"
        found = (
            replace(each, notes=(*each.notes, note)) if each.code in FAILURES else each for each in first.diagnostics
        )
        raise StepError(found, first.texts)


def find_neighbour(size: int) -> int:
    """Return another size, to see how results grow with the batch."""
    return size + 1 if size == MADE_UP[0] else 2 * size
