"""A process that is gone is told as such, also outside of a step: where the others make a state."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys
from pathlib import Path
from graphspec import SpecError
from tests.processes.cases import CASES, draw, make_step
from tests.processes.group import fork

def work(rank):
    case = CASES["accumulated"]
    step = make_step(case, "replicated")
    step({name: rows[rank::2] for name, rows in draw(case, step, 4, 1).items()})
    if rank == 1:
        os._exit(0)
    try:
        step.state()  # an open window is added up over the processes
    except SpecError as error:
        print(error)

sys.exit(fork(2, Path(sys.argv[1]), work))
"""


def test_a_state_of_which_a_process_has_a_part_needs_that_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "meeting")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "error[GS259]: the other processes did not give their parts of the state" in done.stdout
