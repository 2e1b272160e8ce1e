"""A trial of an example: its spec is trained by the command line, and what it reached is read from its run."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runtime.cli import execute


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Something that was measured, and the least it has to be; None where it is told for comparison."""

    name: str
    value: float
    bar: float | None = None
    form: str = ".1%"
    """How the two are printed."""

    @property
    def passed(self) -> bool:
        """Tell whether it is high enough."""
        return self.bar is None or self.value >= self.bar

    @property
    def line(self) -> str:
        """Return it as a line of a table."""
        begin = f"  {self.name:52}{self.value:>9{self.form}}"
        if self.bar is None:
            return begin
        return f"{begin}   bar {self.bar:{self.form}}: {'PASS' if self.passed else 'FAIL'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An example with a seed, and the folder that its runs go to."""

    example: Path
    out: Path
    seed: int
    steps: int | None
    """How many steps are trained; None: as many as the spec says."""

    def run(self, *words: str, name: str = "run", spec: Path | None = None) -> Path:
        """Train the example's spec, or another, with more words of the command line; return the folder of the run."""
        spec = spec or self.example / f"{self.example.name}.yaml"
        length = () if self.steps is None else ("--steps", str(self.steps))
        folder = self.out / name
        place = ("--seed", str(self.seed), "--device", "cpu", "--out", os.path.relpath(folder))
        command("run", os.path.relpath(spec), *words, *place, *length)
        return folder


def command(*words: str) -> None:
    """Print a command of stepgraph and run it; leave where it fails."""
    print(f"\n$ stepgraph {shlex.join(words)}\n", flush=True)
    code = execute(words)
    if code:
        sys.exit(code)


def read_last(run: Path) -> dict[str, float]:
    """Return the last value of everything that a run has logged."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {name: value for row in rows for name, value in row.items()}


def tell(title: str, figures: Iterable[Figure]) -> bool:
    """Print figures below a title; return whether all of them are high enough."""
    shown = list(figures)
    print(f"\n{title}")
    for figure in shown:
        print(figure.line)
    return all(figure.passed for figure in shown)
