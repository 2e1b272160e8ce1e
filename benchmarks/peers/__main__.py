"""Time steps in several libraries: ``python -m benchmarks.peers [--rounds N] [--json PATH] [NAME ...]``.

Every variant runs in a process of its own, so that its memory and the time to build it are its own; one runs at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Row, add_json, compared, describe, report
from benchmarks.peers.pace import CHECKED
from benchmarks.peers.steps import STEPS, write
from benchmarks.peers.variants import EXPERT, GRAPH, JIT, VARIANTS, Variant
from runtime.bench.interleaving import Lap, Stopwatch, Timing, interleave

ROUNDS, SLICE = 40, 100.0
BASELINES = {"torch": EXPERT, "tensorflow": GRAPH}


class Child:
    """A variant that runs in a process of its own."""

    def __init__(self, step: str, title: str, folder: Path) -> None:
        self.title = title
        self.log = (folder / f"{title}.log").open("w+")
        # The hash of strings decides the order of sets, and with it where things lie in memory.
        environment = {**os.environ, "STEPGRAPH_PEERS": str(folder), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers.child", step, title],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"},
        )
        self.last: Mapping[str, Any] = {}

    def __enter__(self) -> Child:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()
        self.log.close()

    def take(self, count: int) -> Lap:
        """Let it take some steps; return how long each took. Raises RuntimeError where it has failed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(count, file=self.process.stdin, flush=True)
            self.last = json.loads(self.process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            self.process.wait()
            self.log.seek(0)
            raise RuntimeError(f"{self.title} has failed:\n{self.log.read()}") from error
        return Lap(wall=self.last["wall"], cpu=self.last["cpu"])


@dataclass(frozen=True, kw_only=True)
class Turns(Stopwatch):
    """A stopwatch for steps of other processes, which time themselves."""

    def time(self, step: Any, repeats: int) -> Lap:
        """Return what a step takes on average."""
        return step.take(repeats)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured of a variant of a step."""

    version: str
    steps_per_second: float
    timing: Timing
    megabytes: float
    """The most memory that the process had."""
    growth: float
    """What of it came after the import of the framework and the making of the data."""
    build: float
    """Seconds from there to the end of the first step."""

    def row(self, step: str, title: str, framework: str) -> Row:
        """Return it as a row."""
        return {
            "step": step,
            "framework": framework,
            "library": title,
            "version": self.version,
            "steps/s": self.steps_per_second,
            **compared(self.timing),
            "MB": self.megabytes,
            "growth MB": self.growth,
            "build s": self.build,
        }


def find_difference(found: Sequence[Mapping[str, float]], expected: Sequence[Mapping[str, float]]) -> float:
    """Return the largest difference of losses, relative to the expected one; infinite where some are missing."""
    if len(found) < CHECKED or any(set(a) != set(b) for a, b in zip(found, expected, strict=True)):
        return float("inf")
    pairs = ((one[name], two[name]) for one, two in zip(found, expected, strict=True) for name in two)
    return max(abs(one - two) / max(abs(two), 1e-6) for one, two in pairs)


def measure(step: str, wanted: Mapping[str, Variant], rounds: int, slice_ms: float) -> Iterator[tuple[str, Any]]:
    """Yield the figures of each variant of a step, or why it has none; the expert of PyTorch is the first."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stepgraph-peers-")))
        write(STEPS[step](), folder)
        children: dict[str, Child] = {}
        expected: Sequence[Mapping[str, float]] = ()
        for title, variant in wanted.items():
            child = stack.enter_context(Child(step, title, folder))
            child.take(CHECKED)
            expected = expected or child.last["losses"]
            difference = find_difference(child.last["losses"], expected)
            if difference > variant.tolerance:
                yield (
                    title,
                    f"{step}, {title}: not timed, its first losses differ from the expert's by {difference:.2g}",
                )
                child.__exit__()
            else:
                children[title] = child
        for framework, baseline in BASELINES.items():
            group = {title: child for title, child in children.items() if wanted[title].framework == framework}
            if baseline in group:
                timings = interleave(group, baseline, rounds=rounds, slice_ms=slice_ms, stopwatch=Turns())
                for title, timing in timings.items():
                    last = group[title].last
                    yield (
                        title,
                        Figures(
                            version=wanted[title].version,
                            steps_per_second=1e3 / timing.milliseconds,
                            timing=timing,
                            megabytes=last["peak"],
                            growth=last["peak"] - last["before"],
                            build=last["first"],
                        ),
                    )


def choose(*, jit: bool) -> tuple[dict[str, Variant], list[str]]:
    """Return the variants to measure, the expert first, and what is left out."""
    asked = {title: each for title, each in VARIANTS.items() if jit or title != JIT}
    found = {title: each for title, each in asked.items() if each.is_installed}
    missing = {title: each.distribution or each.framework for title, each in asked.items() if title not in found}
    left = [f"{title}: left out, {name} is not installed" for title, name in missing.items()]
    return {EXPERT: found.pop(EXPERT), **found}, left


def find_rows(options: argparse.Namespace, wanted: Mapping[str, Variant], left: list[str]) -> Iterator[Row]:
    """Yield a row for each variant of each step; why one has none is added to what is left out."""
    for step in options.names or STEPS:
        for title, figures in measure(step, wanted, options.rounds, options.slice_ms):
            if isinstance(figures, Figures):
                yield figures.row(step, title, wanted[title].framework)
            else:
                left.append(figures)


def show(row: Row) -> str:
    """Return the line of a variant."""
    ratio, low, high = row["of expert"]
    ratios = f"{ratio:.2f} | {low:.2f} - {high:.2f} | {row['CPU time of expert']:.2f}"
    figures = f"{row['steps/s']:,.0f} | {ratios} | {row['MB']:.0f} | {row['build s']:.1f}"
    return f"| {row['step']} | {row['library']} | {figures} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--slice-ms", type=float, default=SLICE, help="how long a variant runs in a round")
    add_json(parser)
    parser.add_argument(
        "--jit", action="store_true", help="also steps that are captured as one graph (minutes to compile)"
    )
    parser.add_argument("--variant", action="append", default=[], metavar="TITLE", help="only this one, and baselines")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    if unknown := {*options.names} - {*STEPS} | {*options.variant} - {*VARIANTS}:
        parser.error(f"nothing is named {', '.join(sorted(unknown))}")
    wanted, left = choose(jit=options.jit or JIT in options.variant)
    if options.variant:
        wanted = {title: each for title, each in wanted.items() if title in (EXPERT, GRAPH, *options.variant)}
    print(json.dumps(describe()))
    print("| step | library | steps/s | of expert | p10 - p90 | CPU time of expert | MB | build s |")
    print("|---" * 8 + "|")
    report(find_rows(options, wanted, left), show, options.json, options.rounds)
    print("\n".join(left))


if __name__ == "__main__":
    main()
