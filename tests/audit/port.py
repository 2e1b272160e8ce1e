"""Port the sound loops: ``python -m tests.audit.port`` writes the table of docs/port.md."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.audit.labels import CASES, scripts

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "port.md"
BEGIN, END = "<!-- loops: begin -->", "<!-- loops: end -->"
RUN = """
import sys, torch
torch.set_default_dtype(torch.float64)
from runtime.cli import execute
sys.exit(execute(sys.argv[1:]))
"""
DROPPED = ("ddp_one_process",)
"""Its group of processes is gone when its model is copied."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of one loop."""

    name: str
    text: str
    todos: tuple[str, ...]
    questions: tuple[str, ...]
    difference: float | None
    """The greatest of a loss or weight, relative; None where the two were not compared."""
    problem: str


def port(path: Path) -> Result:
    """Port a script in float64, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        spec, report = Path(folder) / "spec.yaml", Path(folder) / "report.json"
        command = [sys.executable, "-c", RUN, "port", str(path), "-o", str(spec), "--json", str(report)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told = json.loads(report.read_text(encoding="utf-8"))
        found = told["agreement"]
        return Result(
            name=path.stem.removeprefix("sound_"),
            text=spec.read_text(encoding="utf-8"),
            todos=tuple(told["todos"]),
            questions=tuple(told["questions"]),
            difference=None if found is None else max(found["losses"], found["weights"]),
            problem=told["problem"],
        )


def loops() -> list[Path]:
    """Return the loops that are ported."""
    return [path for path in scripts("sound_") if path.stem.removeprefix("sound_") not in DROPPED]


def write_row(result: Result) -> str:
    """Return the row of a loop."""
    difference = "not compared" if result.difference is None else f"{result.difference:.0e}"
    if result.difference is not None and result.difference <= 1e-12:
        difference = "≤ 1e-12"
    lines = sum(not line.lstrip().startswith("#") for line in result.text.splitlines())
    name = result.name.replace("_", " ")
    return f"| {name} | {lines} | {len(result.questions)} | {len(result.todos)} | {difference} |"


def main() -> None:
    """Write the table."""
    results = [port(path) for path in loops()]
    results.sort(key=lambda each: (len(each.todos) > 0, each.difference is None, each.name))
    head = [
        "| loop | lines of the spec | questions | left to do | difference after three steps |",
        "|---|---:|---:|---:|---|",
    ]
    text = PAGE.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *head, *map(write_row, results), after]), encoding="utf-8")
    equal = sum(each.difference is not None and each.difference <= 1e-12 and not each.todos for each in results)
    print(f"{len(results)} loops of {CASES.name}, {equal} equal without edits")


if __name__ == "__main__":
    main()
