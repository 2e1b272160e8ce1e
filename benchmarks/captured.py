"""Time captured steps against eager ones: ``python -m benchmarks.captured [--rounds N] [--examples] [NAME ...]``.

The steps of the benchmarks are compared with the emitted file, and with the step as tutorials write it. Their floor is
the share of the emitted step taken by kernels that a graph calls as well. Examples have no such step, and are compared
with what ``build`` gives without ``jit``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.figures import Row, add_json, find_mean, report
from benchmarks.run import VARIANTS, WORKLOADS, cycle, make_emitted, stopwatch
from benchmarks.workloads import Batch, Workload
from compiler import Plan, compile_step
from graphspec import load
from runtime import Step, build
from runtime.backends.torch.tensors import sample_inputs
from runtime.bench.interleaving import Timing, interleave

EXAMPLES = Path(__file__).parents[1] / "examples"
ROWS, FIRST = 64, 40
"""The rows of a batch where the spec names none, and the steps before the measurement, in which graphs are compiled."""
CAPTURED, EAGER, IDIOM = "captured", "eager", "idiom"
KERNELS = re.compile(r"aten::(\w*mm|\w*conv\w*|_scaled_dot_product\w*)")
"""The operators that a graph calls as well: products of matrices, convolutions and attention."""
ROUNDS = 41
"""An odd number: the median of ratios is then that of their reciprocals."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A captured step, what it is compared with, and batches for all of them."""

    name: str
    captured: Step
    others: Mapping[str, Callable[[Batch], object]]
    batches: Sequence[Batch]
    period: int
    """After how many steps the same work comes again."""
    reports: Sequence[str]
    """What was reported on compilations."""
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The time of a captured step as a multiple of another's: median, 10 % and 90 %."""

    median: float
    low: float
    high: float

    @classmethod
    def over(cls, other: Timing) -> Ratio:
        """Return the ratio to a variant that was timed with the captured step as its baseline."""
        return cls(median=1 / other.ratio, low=1 / other.high, high=1 / other.low)

    @property
    def figures(self) -> list[float]:
        """Return it as a row has it."""
        return [self.median, self.low, self.high]


def make_reference(workload: type[Workload], device: str = "cpu") -> Candidate:
    """Return the variants of a step of the benchmarks."""
    reports, nets = list[str](), workload().to(device).nets
    plan = compile_step(load(workload().spec))
    return Candidate(
        name=workload.name,
        captured=build(plan, device=device, models=nets, jit="step", report=reports.append),
        others={EAGER: make_emitted(workload().to(device)), IDIOM: VARIANTS[IDIOM](workload().to(device))},
        batches=workload().to(device).batches(16),
        period=workload.period,
        reports=reports,
        device=device,
    )


def make_example(path: Path) -> Candidate:
    """Return the variants of an example, on made-up batches."""
    plan, reports = compile_step(load(path)), list[str]()
    code = [each.stem for each in path.parent.glob("*.py")]
    return Candidate(
        name=path.stem,
        captured=build(plan, device="cpu", allow=code, jit="step", report=reports.append),
        others={EAGER: build(plan, device="cpu", allow=code)},
        batches=make_batches(plan, 8),
        period=1,
        reports=reports,
    )


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


def measure(candidate: Candidate, rounds: int) -> dict[str, Timing]:
    """Time all variants in one interleaved run, after the steps in which graphs are compiled."""
    runs = {CAPTURED: cycle(candidate.captured, [*candidate.batches])}
    runs |= {name: cycle(step, [*candidate.batches]) for name, step in candidate.others.items()}  # pyright: ignore[reportArgumentType]
    for run in runs.values():
        for _ in range(FIRST):
            run()
    clocks = stopwatch(candidate.device)
    return interleave(runs, CAPTURED, rounds=rounds, multiple=candidate.period, stopwatch=clocks)


def find_floor(candidate: Candidate, milliseconds: float) -> float:
    """Return the share of an eager step, of so many milliseconds, taken by kernels that a graph calls as well.

    It is measured by torch.profiler, which knows the time of each operator without the operators that it calls.
    """
    step = cycle(candidate.others[EAGER], [*candidate.batches])  # pyright: ignore[reportArgumentType]
    count = FIRST * candidate.period
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        for _ in range(count):
            step()
    microseconds = sum(each.self_cpu_time_total for each in seen.key_averages() if KERNELS.fullmatch(each.key))
    return microseconds / 1e3 / count / milliseconds


def find_candidates(names: Sequence[str], examples: bool) -> Iterator[Candidate]:
    """Yield the steps of the benchmarks, or the examples; or those with some names."""
    if examples:
        paths = (path for path in sorted(EXAMPLES.glob("*/*.yaml")) if not names or path.stem in names)
        yield from map(make_example, paths)
    else:
        yield from (make_reference(each) for each in WORKLOADS if not names or each.name in names)


def find_rows(rounds: int, names: Sequence[str], examples: bool) -> Iterator[Row]:
    """Yield a row for each captured step."""
    for candidate in find_candidates(names, examples):
        timings = measure(candidate, rounds)
        seconds = [float(text.split()[-2]) for text in candidate.reports if text.startswith("compiled ")]
        yield {
            "step": candidate.name,
            "captured ms": timings[CAPTURED].milliseconds,
            **{f"{each} ms": timings[each].milliseconds for each in candidate.others},
            **{f"of {each}": Ratio.over(timings[each]).figures for each in candidate.others},
            **({} if examples else {"floor": find_floor(candidate, timings[EAGER].milliseconds)}),
            "graphs": len(seconds),
            "compiled s": sum(seconds),
            "notes": [note for note in candidate.captured.notes if " runs eagerly: " in note],
        }
        torch._dynamo.reset()


def show(row: Row, others: Sequence[str]) -> str:
    """Return the line of a captured step, and below it what of it runs eagerly."""
    cells: list[str] = []
    for each in others:
        median, low, high = row[f"of {each}"]
        cells.append(f"{row[f'{each} ms']:.3f} | {median:.2f} | {low:.2f} - {high:.2f}")
    own = f"{row['step']} | {row['captured ms']:.3f}"
    line = f"| {own} | {' | '.join(cells)} | {row['graphs']} | {row['compiled s']:.0f} |"
    return "\n".join([line, *(f"    {note}" for note in row["notes"])])


def main() -> None:
    """Print a Markdown table, and below it the geometric means of what is captured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--examples", action="store_true", help="the examples, against their eager steps")
    parser.add_argument("names", nargs="*", metavar="NAME")
    add_json(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    others = (EAGER,) if options.examples else (EAGER, IDIOM)
    titles = [f"{each} ms | captured of {each} | p10 - p90" for each in others]
    print(f"| step | captured ms | {' | '.join(titles)} | graphs | compiled in s |")
    print("|---" * (4 + 3 * len(others)) + "|")
    rows = find_rows(options.rounds, options.names, options.examples)
    found = report(rows, lambda row: show(row, others), options.json, options.rounds)
    count = sum(row["graphs"] > 0 for row in found)
    for each in others if count else ():
        print(f"geometric mean of {count} captured steps: {find_mean(found, each):.3f} of {each}")


if __name__ == "__main__":
    main()
