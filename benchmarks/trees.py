"""What another tree of this project makes of a spec, to be measured in one run with what this one makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EMIT = """
import sys
from compiler import compile_step
from graphspec import load
from runtime import emit
sys.stdout.write(emit(compile_step(load(sys.stdin.read()))))
"""


def emit_by(tree: Path, text: str) -> str:
    """Return the file that a tree emits for the text of a spec. Raises CalledProcessError where it cannot."""
    surroundings = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", EMIT]
    done = subprocess.run(
        command, cwd=tree, env=surroundings, input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout
