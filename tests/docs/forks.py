"""Programs that run in processes of their own, which are forked from one that has imported both frameworks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

RUNNER = """
import gc, json, os, runpy, signal, sys, traceback
import tensorflow, torch, torch._dynamo

gc.collect()
gc.freeze()  # an audit searches all objects that Python tracks: without those of what is imported here

def run(folder, first, *rest):
    os.chdir(folder)
    sys.path.insert(0, folder)
    if first != "-c":
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")
    else:
        code, *sys.argv[1:] = rest
        exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))

for line in sys.stdin:
    folder, output, *arguments = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1), os.dup2(file, 2)
        code = 1
        try:
            run(folder, *arguments)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else end.code is not None
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forks:
    """A process that forks itself for every program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, arguments: Sequence[str], folder: Path, output: Path) -> tuple[int, str]:
        """Run a file with its arguments, or ``-c`` and a text, in a folder; return its exit code and all it prints."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(folder), str(output), *arguments]), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        return code, output.read_text(encoding="utf-8")


@contextmanager
def forking(*options: str, env: Mapping[str, str] | None = None) -> Iterator[Forks]:
    """Start Python with some options and an environment, import the frameworks there, and end it with the block."""
    command = [sys.executable, *options, "-c", RUNNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        yield Forks(process)
        process.stdin.close()
