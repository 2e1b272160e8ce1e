"""Every example, captured and compiled, against its eager step: ``python -m tests.conformance.captured [NAME ...]``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from compiler import compile_step
from graphspec import load
from runtime import Step, build
from tests.conformance.scenario import Batch, Scenario
from tests.conformance.scenarios import examples
from tests.properties.agreement import find_error

STEPS, MOST = 50, 1500
"""How many steps are taken: more than the first where some graph has not run by then, but no more than the second."""
CROSSED = 25
"""After so many steps, each continues with the state of the other."""
CLOSE = 1e-9
"""Relative to the greatest element, at least 1: the orders of some sums differ."""


@dataclass(kw_only=True)
class Found:
    """What came of one example."""

    name: str
    steps: int = 0
    outputs: float = 0.0
    """The greatest difference of an output, relative to its greatest element, at least 1."""
    state: float = 0.0
    """The same of weights, buffers and slots, after the last step."""
    graphs: int = 0
    unmade: Sequence[str] = ()
    """Functions that were captured, but did not run."""
    again: int = 0
    """Graphs that were made although there was one for the active set and the size of the batch."""
    seconds: float = 0.0
    """To compile all graphs."""
    eager: Sequence[str] = ()
    """Notes on functions that are not captured."""
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return a row of a table, and what is wrong below it."""
        figures = f"{self.steps} | {self.graphs} | {self.again} | {self.outputs:.0e} | {self.state:.0e}"
        lines = (*self.eager, *(f"not run: {each}" for each in self.unmade), *self.problems)
        return "\n    ".join((f"| {self.name} | {figures} | {self.seconds:.0f} |", *lines))


def try_example(scenario: Scenario) -> Found:
    """Train an example as it is in both forms, each from halfway on with the state of the other, and compare them."""
    found = Found(name=scenario.name)
    plan = compile_step(load(scenario.source))
    told: list[str] = []
    eager = build(plan, device="cpu", dtype="float64", allow=scenario.allow)
    captured = build(plan, device="cpu", dtype="float64", allow=scenario.allow, jit="step", report=told.append)
    graphs: Mapping[str, Any] = captured._built.engine.graphs  # pyright: ignore[reportAttributeAccessIssue]
    for number, batch in enumerate(scenario.batches(eager.spec)):
        if number == MOST or (number >= STEPS and all(each.made for each in graphs.values())):
            break
        if number == CROSSED:
            ours, theirs = captured.state(), eager.state()
            captured.restore(theirs)
            eager.restore(ours)
        found.outputs = max(found.outputs, compare_outputs(captured, eager, batch))
        found.steps += 1
    finish(found, captured, eager)
    found.eager = [each for each in captured.notes if " runs eagerly: " in each]
    found.seconds = sum(float(each.split()[-2]) for each in told if each.startswith("compiled "))
    return found


def compare_outputs(captured: Step, eager: Step, batch: Batch) -> float:
    """Return the greatest difference of the outputs of a step; infinity where not both give the same names."""
    ours, theirs = captured(dict(batch)), eager(dict(batch))
    if ours.keys() != theirs.keys():
        return np.inf
    pairs = ((captured.numpy(each), eager.numpy(theirs[name])) for name, each in ours.items())
    return max((find_error(one, other, loose=False) for one, other in pairs), default=0.0)


def finish(found: Found, captured: Step, eager: Step) -> None:
    """Compare the states, and count graphs and what Dynamo made for them."""
    ours, theirs = captured.state(), eager.state()
    if ours.counters != theirs.counters or ours.arrays.keys() != theirs.arrays.keys():
        found.problems.append("the states have other counters or names")
    both = ours.arrays.keys() & theirs.arrays.keys()
    found.state = max(find_error(ours.arrays[name], theirs.arrays[name], loose=False) for name in both)
    graphs: Mapping[str, Any] = captured._built.engine.graphs  # pyright: ignore[reportAttributeAccessIssue]
    for title, each in graphs.items():
        made = len(torch._dynamo.eval_frame._debug_get_cache_entry_list(each.function.__code__))
        found.graphs += made
        found.again += made - len(each.sizes)
        found.problems += [f"{title} runs eagerly after all: {each.reason}"] * bool(each.reason)
    found.unmade = [title for title, each in graphs.items() if not each.made]
    found.problems += ["some graph was made again"] * bool(found.again)
    found.problems += [f"more than {CLOSE} apart"] * (not max(found.outputs, found.state) <= CLOSE)


def main(given: Sequence[str] | None = None) -> int:
    """Print what came of each example, or of those with some names; return 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args(given).names
    torch.set_num_threads(1)
    print("| example | steps | graphs | made again | outputs | state | compiled in s |", "|---" * 7 + "|", sep="\n")
    begun, failed, graphs = time.monotonic(), 0, 0
    for scenario in examples():
        if not names or scenario.name in names:
            found = try_example(scenario)
            print(found, flush=True)
            failed, graphs = failed + bool(found.problems), graphs + found.graphs
            torch._dynamo.reset()
    print(f"{graphs} graphs in {time.monotonic() - begun:.0f} s; {failed} examples are wrong")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
