"""Time our step against hand-written ones: ``python -m benchmarks.run [--rounds 60] [--device cuda] [NAME ...]``.

With ``--before FOLDER`` the files that an older tree emits for the same specs are timed in the same run. A step that
misses its goal is timed next to its floor, a loop by hand without anything that could be left out.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType

import torch

from benchmarks import classics, papers, workloads
from benchmarks.figures import TIMINGS, Row, add_json, compared, report, show_timing
from benchmarks.floors import FLOORS
from benchmarks.trees import emit_by
from benchmarks.workloads import Batch, Step, Workload
from compiler import compile_step
from graphspec import load
from runtime import build, emit
from runtime.backends.torch.meter import TorchMeter
from runtime.bench.emitted import load_emitted as read_emitted
from runtime.bench.interleaving import Stopwatch, Timing, interleave

EXPERT, FLOOR = "expert", "floor"
WORKLOADS = (*workloads.WORKLOADS, *classics.WORKLOADS, *papers.WORKLOADS)


def load_emitted(workload: Workload, text: str = "") -> ModuleType:
    """Return the file that is emitted for a workload's spec, or another, as a module, built on the workload's nets."""
    module = read_emitted(text or emit(compile_step(load(workload.spec))))
    module.build(device=workload.device, dtype=torch.get_default_dtype(), models=workload.nets)
    return module


def make_emitted(workload: Workload) -> Step:
    """Return the step of the emitted file."""
    return load_emitted(workload).step


def make_built(workload: Workload) -> Step:
    """Return the step that ``build`` gives, which looks at every batch before it lets it in."""
    dtype = "float64" if torch.get_default_dtype() == torch.float64 else "float32"
    return build(compile_step(load(workload.spec)), device=str(workload.device), dtype=dtype, models=workload.nets)


def by_hand(workload: Workload, write: Callable[[], Step]) -> Step:
    """Return a loop whose constants are on the device of its nets."""
    with workload.device:
        return write()


def make_before(workload: Workload, tree: Path) -> Step:
    """Return the step of the file that an older tree emits."""
    return load_emitted(workload, emit_by(tree, workload.spec.read_text(encoding="utf-8"))).step


VARIANTS: dict[str, Callable[[Workload], Step]] = {
    "idiom": lambda workload: by_hand(workload, workload.idiom),
    EXPERT: lambda workload: by_hand(workload, workload.expert),
    "emitted step": make_emitted,
    "built step": make_built,
}


def find_variants(workload: type[Workload]) -> dict[str, Callable[[Workload], Step]]:
    """Return the variants of a workload, with its floor where it has one."""
    if floor := FLOORS.get(workload):
        return {**VARIANTS, FLOOR: lambda made: by_hand(made, partial(floor, made))}
    return dict(VARIANTS)


def cycle(step: Step, batches: list[Batch]) -> Callable[[], object]:
    """Return a step that takes the batches in turn."""
    feed = itertools.cycle(batches)
    return lambda: step(next(feed))


def train(workload: type[Workload], variant: str, device: str = "cpu") -> tuple[list[float], dict[str, torch.Tensor]]:
    """Take five steps; return their losses, and all weights and buffers at the end."""
    made = workload().to(device)
    step = find_variants(workload)[variant](made)
    outputs = [step(batch) for batch in made.batches(5)]
    losses = [float(value) for output in outputs for name, value in output.items() if name != "scores"]
    states = {name: net.state_dict() for name, net in made.nets.items()}
    return losses, {f"{name}.{key}": value for name, state in states.items() for key, value in state.items()}


def stopwatch(device: str) -> Stopwatch:
    """Return clocks that wait for what a device was given."""
    meter = TorchMeter(device, None)
    return Stopwatch(wait=meter.wait)


def measure(
    workload: type[Workload],
    rounds: int,
    device: str = "cpu",
    variants: Mapping[str, Callable[[Workload], Step]] = VARIANTS,
) -> dict[str, Timing]:
    """Time variants of a workload in one interleaved run."""
    made = {name: make(workload().to(device)) for name, make in variants.items()}
    batches = workload().to(device).batches(16)
    runs = {name: cycle(step, batches) for name, step in made.items()}
    return interleave(runs, EXPERT, rounds=rounds, multiple=workload.period, stopwatch=stopwatch(device))


def find_rows(rounds: int, names: list[str], device: str, before: Path | None) -> Iterator[Row]:
    """Yield a row for each variant of each step."""
    for workload in WORKLOADS:
        if not names or workload.name in names:
            variants = find_variants(workload)
            if before is not None:
                variants["emitted step before"] = lambda made: make_before(made, before)
            for name, timing in measure(workload, rounds, device, variants).items():
                yield {"step": workload.name, "variant": name, **compared(timing)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="an older tree")
    parser.add_argument("names", nargs="*", metavar="NAME")
    add_json(parser)
    options = parser.parse_args()
    if unknown := set(options.names) - {workload.name for workload in WORKLOADS}:
        parser.error(f"no step is named {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    print(TIMINGS)
    rows = find_rows(options.rounds, options.names, options.device, options.before)
    report(rows, show_timing, options.json, options.rounds)


if __name__ == "__main__":
    main()
