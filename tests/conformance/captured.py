"""Every example, captured and compiled, against its eager step: ``python -m tests.conformance.captured [NAME ...]``.

With ``--single`` both run in float32, where 50 steps amplify rounding. Then each is compared with eager steps in
float64 with the same random numbers, and the captured step may be ten times as far from these as the eager one.
With ``--dynamic`` batches have three sizes in turn, and each function is one graph for all of them.
With ``--recorded`` graphs are recorded and replayed, on the host, by the rules of CUDA graphs; nothing is compiled.

The last, `overflow`, is a spec of the conformance suite: it has a loss scale, and gradients that are not finite.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from compiler import compile_step
from graphspec import load
from runtime import Step, build
from runtime.backends.torch import capture
from tests.backends.torch.recorder import HostRecorder
from tests.conformance.scenario import Batch, Scenario
from tests.conformance.scenarios import examples, specs
from tests.properties.agreement import find_error

STEPS, MOST = 50, 1500
"""How many steps are taken: at least the first, and up to the second until every graph is made and recorded."""
CROSSED = 25
"""After so many steps, each continues with the state of the other."""
CLOSE = 1e-9
"""Relative to the greatest element, at least 1: the orders of some sums differ."""
DIGIT, FLOOR = 10, 1e-6
"""In float32: how much of an eager step's rounding error a captured step's may be, and what it always may be."""


@dataclass(kw_only=True)
class Found:
    """What came of one example."""

    name: str
    steps: int = 0
    outputs: float = 0.0
    """The greatest difference of an output, relative to its greatest element, at least 1."""
    state: float = 0.0
    """The same of weights, buffers and slots, after the last step."""
    rounding: float = 0.0
    """In float32, how far outputs and state of eager steps are from those in float64."""
    graphs: int = 0
    unmade: Sequence[str] = ()
    """Functions that were captured, but did not run."""
    recorded: int = 0
    """Recordings that were made of graphs, where the device records."""
    again: int = 0
    """Graphs that were made although there was one for the active set and the size of the batch."""
    seconds: float = 0.0
    """To compile all graphs."""
    eager: Sequence[str] = ()
    """Notes on functions that are not captured, or not recorded."""
    problems: list[str] = field(default_factory=list)

    @property
    def most(self) -> float:
        """Return how far outputs and state may be from those that they are compared with."""
        return max(DIGIT * self.rounding, FLOOR) if self.rounding else CLOSE

    def __str__(self) -> str:
        """Return a row of a table, and what is wrong below it."""
        apart = f"{self.outputs:.0e} | {self.state:.0e}" + f" | {self.rounding:.0e}" * bool(self.rounding)
        figures = f"{self.steps} | {self.graphs} | {self.recorded} | {self.again} | {apart}"
        lines = (*self.eager, *(f"not run: {each}" for each in self.unmade), *self.problems)
        return "\n    ".join((f"| {self.name} | {figures} | {self.seconds:.0f} |", *lines))


def try_example(
    scenario: Scenario, dtype: str = "float64", device: str = "cpu", most: int = MOST, *, dynamic: bool = False
) -> Found:
    """Train an example as it is in both forms, each from halfway on with the state of the other, and compare them."""
    found = Found(name=scenario.name)
    plan = compile_step(load(scenario.source, [] if dtype == "float64" else ["rng=portable"]))
    told: list[str] = []
    eager = build(plan, device=device, dtype=dtype, allow=scenario.allow)
    captured = build(
        plan,
        device=device,
        dtype=dtype,
        allow=scenario.allow,
        jit="dynamic" if dynamic else "step",
        report=told.append,
    )
    exact = eager if dtype == "float64" else build(plan, device=device, dtype="float64", allow=scenario.allow)
    graphs: Mapping[str, Any] = captured._built.engine.graphs  # pyright: ignore[reportAttributeAccessIssue]
    for number, batch in enumerate(scenario.batches(eager.spec)):
        if number == most or (number >= STEPS and have_run(graphs, told)):
            break
        batch = cut(batch, eager, number % 3) if dynamic else batch
        if number == CROSSED:
            ours, theirs = captured.state(), eager.state()
            found.rounding = max(found.rounding, measure(theirs.arrays, exact.state().arrays))  # what it goes on with
            captured.restore(theirs)
            eager.restore(ours)
        ours, theirs = take(captured, batch), take(eager, batch)
        known = theirs if exact is eager else take(exact, batch)
        found.outputs = max(found.outputs, measure(ours, known))
        found.rounding = max(found.rounding, measure(theirs, known))
        found.steps += 1
    finish(found, captured, eager, exact)
    found.eager = [each for each in captured.notes if " runs eagerly: " in each or " is not recorded " in each]
    found.recorded = sum(each.startswith("recorded ") for each in told)
    found.seconds = sum(float(each.split()[-2]) for each in told if each.startswith("compiled "))
    return found


def have_run(graphs: Mapping[str, Any], told: Sequence[str]) -> bool:
    """Return whether every function has a graph, and a recording of it where the device records."""
    recorded = [title for title, each in graphs.items() if each.recorded and not each.recorded.obstacles]
    is_recorded = all(f"recorded {title} as a CUDA graph" in told for title in recorded)
    return is_recorded and all(each.made for each in graphs.values())


def scenarios() -> Iterator[Scenario]:
    """Yield every example, and a spec with a loss scale, policies and overflows, whose optimizers a graph can hold."""
    yield from examples()
    overflow = next(each for each in specs() if each.name == "overflow")
    text = Path(overflow.source).read_text(encoding="utf-8")
    yield replace(overflow, source=text.replace("name: rmsprop,", "name: lamb,"))


def cut(batch: Batch, step: Step, left_out: int) -> Batch:
    """Return a batch without some rows of every micro-batch."""
    shapes = {each.name: each.shape or () for each in step.plan.program.inputs}
    axes = {name: shapes[name].index("batch") for name in batch if "batch" in shapes[name]}
    less = {
        name: np.asarray(batch[name]).shape[axis] - left_out * step.spec.micro_batches for name, axis in axes.items()
    }
    return {
        name: np.take(each, range(less[name]), axes[name]) if name in axes else each for name, each in batch.items()
    }


def take(step: Step, batch: Batch) -> Mapping[str, np.ndarray]:
    """Return the outputs of a step."""
    return {name: step.numpy(each) for name, each in step(dict(batch)).items()}


def measure(ours: Mapping[str, np.ndarray], known: Mapping[str, np.ndarray]) -> float:
    """Return the greatest difference of what has the same name; infinity where not both have the same names."""
    if ours.keys() != known.keys():
        return np.inf
    return max((find_error(each, known[name], loose=False) for name, each in ours.items()), default=0.0)


def finish(found: Found, captured: Step, eager: Step, exact: Step) -> None:
    """Compare the states, and count graphs and what Dynamo made for them."""
    ours, theirs = captured.state(), eager.state()
    found.problems += ["the states have other counters"] * (ours.counters != theirs.counters)
    known = exact.state().arrays
    found.state = measure(ours.arrays, known)
    found.rounding = max(found.rounding, measure(theirs.arrays, known))
    graphs: Mapping[str, Any] = captured._built.engine.graphs  # pyright: ignore[reportAttributeAccessIssue]
    for title, each in graphs.items():
        made = len(torch._dynamo.eval_frame._debug_get_cache_entry_list(each.function.__code__))
        found.graphs += made
        found.again += made - len(each.sizes)
        found.problems += [f"{title} runs eagerly after all: {each.reason}"] * bool(each.reason)
    found.unmade = [title for title, each in graphs.items() if not each.made]
    found.problems += ["some graph was made again"] * bool(found.again)
    found.problems += [f"more than {found.most:.0e} apart"] * (not max(found.outputs, found.state) <= found.most)


def main(given: Sequence[str] | None = None) -> int:
    """Print what came of each example, or of those with some names; return 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--single", action="store_true", help="in float32, compared with eager steps in float64")
    parser.add_argument("--dynamic", action="store_true", help="batches of three sizes, with one graph for all")
    parser.add_argument("--recorded", action="store_true", help="graphs that are replayed as CUDA graphs would be")
    options = parser.parse_args(given)
    if options.recorded:
        capture.COMPILER, capture.find_recorder = "aot_eager", lambda device: HostRecorder()
        warnings.filterwarnings("error", ".* is not recorded ")
    names, dtype = options.names, "float32" if options.single else "float64"
    torch.set_num_threads(1)
    titles = (
        "example",
        "steps",
        "graphs",
        "recorded",
        "made again",
        "outputs",
        "state",
        *["eager"] * options.single,
        "compiled in s",
    )
    print(f"| {' | '.join(titles)} |", "|---" * len(titles) + "|", sep="\n")
    begun, failed, graphs = time.monotonic(), 0, 0
    for scenario in scenarios():
        if not names or scenario.name in names:
            found = try_example(scenario, dtype, dynamic=options.dynamic)
            print(found, flush=True)
            failed, graphs = failed + bool(found.problems), graphs + found.graphs
            torch._dynamo.reset()
    print(f"{graphs} graphs in {time.monotonic() - begun:.0f} s; {failed} are wrong")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
