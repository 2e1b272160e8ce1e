"""Time steps that are captured as graphs against eager ones: ``python -m benchmarks.captured [--rounds N] [NAME ...]``.

Both train on the same made-up batches, so that all active sets of a spec take part as often as in training.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.run import cycle
from benchmarks.workloads import SPECS, Batch
from compiler import Plan, compile_step
from graphspec import load
from runtime import Step, build
from runtime.backends.torch.tensors import sample_inputs
from runtime.bench.timing import Timing, interleave

EXAMPLES = Path(__file__).parents[1] / "examples"
ROWS, FIRST = 64, 40
"""The rows of a batch where the spec names none, and the steps before the measurement, in which graphs are compiled."""


def find_specs(names: list[str]) -> Iterator[Path]:
    """Yield the specs of the benchmarks and of the examples, or those with some names."""
    for path in (*sorted(SPECS.glob("*.yaml")), *sorted(EXAMPLES.glob("*/*.yaml"))):
        if not names or path.stem in names:
            yield path


def make_batches(plan: Plan, count: int) -> list[Batch]:
    """Return batches of numbers between 0 and 1, and of classes 0."""
    generator = torch.Generator().manual_seed(1)
    rows = {"batch": plan.pace.batch or ROWS}
    found = sample_inputs(plan.program, rows, torch.device("cpu"), torch.float32) or {}
    return [
        {
            name: torch.rand(each.shape, generator=generator) if each.is_floating_point() else each
            for name, each in found.items()
        }
        for _ in range(count)
    ]


def measure(path: Path, rounds: int) -> tuple[dict[str, Timing], float, int, list[str]]:
    """Time both variants of a spec; return also the seconds of compiling, the graphs, and what runs eagerly."""
    plan, texts = compile_step(load(path)), list[str]()
    code = [each.stem for each in path.parent.glob("*.py")]
    eager = build(plan, device="cpu", allow=code)
    captured = build(plan, device="cpu", allow=code, jit="step", report=texts.append)
    steps: dict[str, Step] = {"eager": eager, "captured": captured}
    batches = make_batches(plan, 8)
    for step in steps.values():
        for at in range(FIRST):
            step(batches[at % len(batches)])
    seconds = [float(text.split()[-2]) for text in texts if text.startswith("compiled")]
    timings = interleave({name: cycle(step, batches) for name, step in steps.items()}, "eager", rounds=rounds)
    return timings, sum(seconds), len(seconds), [note for note in captured.notes if "eagerly" in note]


def table(rounds: int, names: list[str]) -> Iterator[str]:
    """Yield the lines of a Markdown table, and below it the geometric mean of what is captured."""
    yield "| step | eager ms | captured ms | of eager | p10 - p90 | graphs | compiled in s |"
    yield "|---|---|---|---|---|---|---|"
    ratios: list[float] = []
    for path in find_specs(names):
        timings, seconds, graphs, eager = measure(path, rounds)
        first, found = timings["eager"].milliseconds, timings["captured"]
        figures = f"{found.milliseconds:.3f} | {found.ratio:.2f} | {found.low:.2f} - {found.high:.2f}"
        yield f"| {path.stem} | {first:.3f} | {figures} | {graphs} | {seconds:.0f} |"
        yield from (f"    {note}" for note in eager)
        ratios += [found.ratio] if graphs else []
        torch._dynamo.reset()
    yield f"geometric mean: {math.exp(statistics.fmean(map(math.log, ratios))):.3f} of {len(ratios)} steps"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for line in table(options.rounds, options.names):
        print(line, flush=True)


if __name__ == "__main__":
    main()
