"""Compare random specs with the oracle for as long as one likes: ``python -m tests.properties.soak --seconds 600``.

It goes on behind the seeds that the results cover already, adds to them after every block of specs, and keeps what was
done when it is interrupted. A failure is shrunk and written among the regressions, which every test run tries.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tests.properties.figures import write_figures
from tests.properties.results import Results, add_to_file, find_generator, read_results
from tests.properties.shrinking import shrink
from tests.properties.specs import random_spec
from tests.properties.verdicts import Document, Verdict, judge

RESULTS = Path(__file__).with_name("soak.json")
REGRESSIONS = Path(__file__).with_name("regressions")
PAGE = Path(__file__).parents[2] / "docs" / "correctness.md"
BLOCK = 100
ENOUGH = 10
"""So many failures in one run end it: something is thoroughly wrong, and every failure is shrunk."""


@dataclass(kw_only=True)
class Soak:
    """One run over seeds: how far, and where to."""

    results: Path = RESULTS
    regressions: Path = REGRESSIONS
    page: Path = PAGE
    """Where the figures are told."""
    start: int | None = None
    """The first seed; none for the one behind all that were tried."""
    count: float = math.inf
    seconds: float = math.inf
    block: int = BLOCK
    judge: Callable[[Document], Verdict] = judge
    is_stopped: bool = False
    """Set by a signal: the spec at hand is the last."""

    def run(self) -> int:
        """Try specs until the count, the time or the patience is over; return the exit status."""
        begun, done, failures, block = time.monotonic(), 0, 0, self._empty()
        for seed in self._seeds():
            self._try(seed, block)
            done, elapsed = done + 1, time.monotonic() - begun
            is_over = self.is_stopped or done >= self.count or elapsed >= self.seconds
            if is_over or block.count() == self.block or failures + len(block.failures) >= ENOUGH:
                total, failures = add_to_file(self.results, block), failures + len(block.failures)
                write_figures(total, self.page)
                print(self._progress(total, seed, done, elapsed), flush=True)
                block = self._empty()
            if is_over or failures >= ENOUGH:
                break
        return 130 if self.is_stopped else 1 if failures else 0

    def _seeds(self) -> Iterator[int]:
        """Yield seeds that were not tried yet."""
        known = read_results(self.results)
        behind = known.seeds[-1][1] + 1 if known.seeds else 0
        start = behind if self.start is None else self.start
        return (seed for seed in itertools.count(start) if not known.covers(seed))

    def _empty(self) -> Results:
        versions = f"torch {metadata.version('torch')}, numpy {metadata.version('numpy')}"
        return Results(generator=find_generator(), versions=[versions])

    def _try(self, seed: int, block: Results) -> None:
        document = random_spec(seed)
        verdict = self.judge(document)
        block.add(seed, document, verdict)
        if verdict.is_failure:
            print(block.failures[-1], flush=True)
            self._keep(seed, shrink(document, lambda smaller: self.judge(smaller).is_like(verdict)))

    def _keep(self, seed: int, document: Document) -> None:
        """Write a shrunken failure among the regressions."""
        verdict = self.judge(document)
        found = {"seed": seed, "kind": verdict.kind, "differed": verdict.what, "document": document}
        place = self.regressions / f"{verdict.kind}_{seed}.json"
        place.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        print(f"written: {place}", flush=True)

    def _progress(self, total: Results, seed: int, done: int, elapsed: float) -> str:
        """Return a line that says how far the run is, and how long it will take."""
        rate = done / max(elapsed, 1e-9)
        left = min(self.seconds - elapsed, (self.count - done) / rate)
        ends = "no end set" if math.isinf(left) else f"{max(left, 0) / 60:.1f} min left"
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(total.specs.items()))
        return f"seed {seed}: {done} specs, {rate:.1f}/s, {ends}; in all {total.count()}: {kinds}"

    def stop(self, *_: object) -> None:
        """Let the spec at hand be the last; a second interrupt ends the process at once, without what is not kept."""
        self.is_stopped = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> int:
    """Read the options, add what other machines found, renew the figures in the documentation, and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=math.inf, help="how long (default: until interrupted)")
    parser.add_argument(
        "--count", type=int, default=math.inf, help="how many specs (--count 0 renews the figures only)"
    )
    parser.add_argument("--from", type=int, dest="start", help="first seed (default: behind those tried)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file to which results are added")
    parser.add_argument("--merge", type=Path, nargs="*", default=[], help="results of other machines to add first")
    options = parser.parse_args()
    for place in options.merge:
        add_to_file(options.results, read_results(place))
    page = PAGE if options.results == RESULTS else options.results.with_suffix(".md")
    soak = Soak(results=options.results, page=page, start=options.start, count=options.count, seconds=options.seconds)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, soak.stop)
    gc.set_threshold(20_000, 20, 20)
    write_figures(read_results(options.results), page)
    return soak.run() if options.count else 0


if __name__ == "__main__":
    sys.exit(main())
