"""What is too long for every test run, one part after another: ``python -m tests.suite.long``, or `make test-all`."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.properties.results import read_results
from tests.properties.soak import RESULTS

ROOT = Path(__file__).parents[2]
SOAKED = 400
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONPATH": str(ROOT),
}


def make_parts(folder: Path) -> Mapping[str, tuple[str, ...]]:
    """Return the parts by name, as what Python is told; results go to a folder.

    The soak begins behind the specs that were tried already, but adds nothing to their figures: `make soak` does.
    """
    behind = read_results(RESULTS).seeds[-1][1] + 1
    soak = ("--count", str(SOAKED), "--from", str(behind), "--results", str(folder / "soak.json"))
    return {
        "soak": ("-m", "tests.properties.soak", *soak),
        "needed-on-torch": ("-m", "tests.properties.necessity", "100"),
        "other-rule": ("-m", "tests.properties.contiguous", "60"),
        "both-backends": ("-m", "tests.conformance.random_specs", "250"),
        "on-two-processes": ("-m", "tests.processes.random_specs", "300"),
        "captured": ("-m", "tests.properties.captured", "40", "--inductor"),
        "captured-examples": ("-m", "tests.conformance.captured"),
        "needed-on-tensorflow": ("-m", "tests.conformance.necessity", "40"),
        "every-case": ("-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "--every-case", "-m", "sample or long"),
        "processes": ("-m", "tests.processes.long"),
        "patterns": ("-m", "tests.processes.patterns"),
        "kills": ("-m", "tests.resilience", "15"),
        "kills-of-processes": ("-m", "tests.processes.kills", "20"),
        "kills-on-tensorflow": ("-m", "tests.resilience", "4", "--backend", "tensorflow"),
        "demo": ("examples/demo.py", "--out", str(folder / "demo")),
        "demo-on-tensorflow": ("examples/demo.py", "--backend", "tensorflow", "--out", str(folder / "demo-tensorflow")),
        "examples": ("examples/judge.py", "--out", str(folder / "judged")),
    }


def main(given: Sequence[str] | None = None) -> int:
    """Run the parts that are asked for; return 1 where one fails, which does not keep the others from running."""
    with tempfile.TemporaryDirectory() as folder:
        parts = make_parts(Path(folder))
        parser = argparse.ArgumentParser(prog="python -m tests.suite.long", description=__doc__)
        parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(parts)} (default: all of them)")
        wanted = parser.parse_args(given).parts or list(parts)
        unknown = sorted({*wanted} - {*parts})
        if unknown:
            parser.error(f"no part {unknown[0]!r}: there are {', '.join(parts)}")
        return run_all({name: parts[name] for name in wanted})


def run_all(parts: Mapping[str, Sequence[str]]) -> int:
    """Run the parts, say of each what it is and how long it took, and at the end what came of all."""
    lines = list(_run_each(parts))
    print("\nthe long set:", *lines, sep="\n")
    return int(any("FAILED" in line for line in lines))


def _run_each(parts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line on each part when it has ended."""
    for number, (name, words) in enumerate(parts.items(), start=1):
        print(f"\n[{number}/{len(parts)}] {name}: python {shlex.join(words)}", flush=True)
        begun = time.monotonic()
        code = subprocess.run([sys.executable, *words], cwd=ROOT, env={**os.environ, **ENVIRONMENT}).returncode
        verdict = "passed" if code == 0 else f"FAILED with exit code {code}"
        line = f"{name:<22}{time.monotonic() - begun:>7.0f} s  {verdict}"
        print(line, flush=True)
        yield line


if __name__ == "__main__":
    sys.exit(main())
