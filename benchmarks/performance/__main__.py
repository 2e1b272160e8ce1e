"""Measure what docs/performance.md shows, and write its tables: ``python -m benchmarks.performance [NAME ...]``.

Each benchmark is a process, one after another. Its figures are stored when it is done, so an interrupted run keeps what
it has. ``BEFORE`` of docs/performance.md is the folder of an older tree, ``--before FOLDER``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks.performance.page import PAGE, renew
from benchmarks.performance.record import RESULTS, Record, store
from benchmarks.performance.suite import BENCHMARKS, PEERS, Benchmark

ROOT = Path(__file__).parents[2]
CODE = ("graphspec", "compiler", "runtime", "examples", "benchmarks/*.py", "benchmarks/specs")
"""What is measured: changes elsewhere make no other tree."""
MISSING = "import sys; from importlib.util import find_spec; print(*(n for n in sys.argv[1:] if find_spec(n) is None))"


@dataclass(frozen=True, kw_only=True)
class Session:
    """How benchmarks are run, and where their figures go."""

    before: Path | None = None
    """The folder of an older tree."""
    rounds: int | None = None
    """The rounds of each benchmark; None: its own number."""
    python: str = sys.executable
    peers_python: str = sys.executable
    folder: Path = RESULTS
    page: Path = PAGE

    def run(self, benchmarks: Mapping[str, Benchmark]) -> list[str]:
        """Run benchmarks one after another; store each one's figures and renew the page. Return those that failed."""
        failed, commit = list[str](), find_commit(ROOT)
        for number, (name, benchmark) in enumerate(benchmarks.items(), 1):
            print(f"[{number}/{len(benchmarks)}] {name}: {benchmark.command(self.rounds)}", flush=True)
            python = self.peers_python if name == PEERS else self.python
            if obstacle := self.find_obstacle(benchmark, python):
                print(f"{name}: left as it was: {obstacle}", flush=True)
            elif record := self.measure(benchmark, python, commit):
                store(record, self.folder, name)
                renew(self.page, self.folder)
            else:
                print(f"{name}: left as it was: it has failed", flush=True)
                failed.append(name)
        return failed

    def find_obstacle(self, benchmark: Benchmark, python: str) -> str:
        """Return why a benchmark cannot run here; nothing if it can."""
        if benchmark.compares and self.before is None:
            return "it measures an older tree, too, which --before names"
        command = [python, "-c", MISSING, *benchmark.needs]
        try:
            missing = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        except (OSError, subprocess.CalledProcessError) as error:
            return str(error)
        return f"{', '.join(missing)}: not installed" if missing else ""

    def measure(self, benchmark: Benchmark, python: str, commit: str) -> Record | None:
        """Return what a benchmark finds in a new process; None where it fails."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "figures.json"
            command = [python, *benchmark.arguments(self.rounds, self.before), "--json", str(path)]
            surroundings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            if subprocess.run(command, cwd=ROOT, env=surroundings, check=False).returncode or not path.exists():
                return None
            found = json.loads(path.read_text(encoding="utf-8"))
        return Record(
            command=benchmark.command(self.rounds),
            date=date.today().isoformat(),
            commit=commit,
            before=find_commit(self.before) if benchmark.compares and self.before is not None else None,
            **found,
        )


def find_commit(tree: Path) -> str:
    """Return the commit of a tree and whether its code has been changed since; nothing where git does not know it."""

    def ask(*words: str | Path) -> subprocess.CompletedProcess[str]:
        """Return what git says of the tree."""
        return subprocess.run(["git", "-C", tree, *words], capture_output=True, text=True, check=False)

    commit = ask("rev-parse", "--short=8", "HEAD").stdout.strip()
    is_changed = commit and ask("diff", "--quiet", "HEAD", "--", *CODE).returncode == 1
    return f"{commit} with changes" if is_changed else commit


def main(given: Sequence[str] | None = None) -> int:
    """Run what is asked for, and return 1 where a benchmark has failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.performance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="say what there is, and measure nothing")
    parser.add_argument("--render", action="store_true", help="write the tables from the record, and measure nothing")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="an older tree, measured in the same runs")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of each (default: those of --list)")
    parser.add_argument(
        "--peers-python", metavar="PATH", default=sys.executable, help="the interpreter of other libraries"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a benchmark (default: all)")
    asked = parser.parse_args(given)
    if unknown := {*asked.names} - {*BENCHMARKS}:
        parser.error(f"no benchmark is named {', '.join(sorted(unknown))}; --list says which there are")
    if asked.list:
        for name, benchmark in BENCHMARKS.items():
            print(f"{name}: {benchmark.measures}\n    {benchmark.command(asked.rounds)}")
        return 0
    if asked.render:
        renew()
        return 0
    before = asked.before and asked.before.resolve()
    session = Session(before=before, rounds=asked.rounds, peers_python=asked.peers_python)
    failed = session.run({name: each for name, each in BENCHMARKS.items() if not asked.names or name in asked.names})
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
