"""Audit scripts, each in a process that is forked from one which has imported PyTorch and run nothing.

`python -m tests.audit.scoring` reads paths, one a line, and answers each with a line of JSON, as `--json` writes it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import subprocess
import sys
import traceback
import warnings
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from runtime.audit.report import to_json
from runtime.audit.session import audit_script
from tests.audit.labels import Label

STEPS = 3
SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Found:
    """A finding, as far as a label judges it."""

    code: str
    level: str
    lines: frozenset[int]
    """The line that it names first, and the others."""

    def is_bug(self, label: Label) -> bool:
        """Return whether it is the bug of a label."""
        return label.is_found(self.code, {*self.lines})

    @property
    def is_serious(self) -> bool:
        """Return whether it is an error or a warning, of which a sound script has none."""
        return self.level in ("error", "warning")

    def __str__(self) -> str:
        return f"{self.code} {self.level} at {', '.join(map(str, sorted(self.lines)))}"


@dataclass(frozen=True, kw_only=True)
class Audited:
    """What an audit finds in a script, and the error that ended the script."""

    findings: tuple[Found, ...]
    error: str

    def finds(self, label: Label) -> bool:
        """Return whether the bug of a label is found."""
        return any(each.is_bug(label) for each in self.findings)

    @property
    def serious(self) -> list[str]:
        """Return the errors and warnings."""
        return [str(each) for each in self.findings if each.is_serious]


class Auditor:
    """The process from which the audits are forked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def audit(self, path: Path) -> Audited:
        """Audit a script; an audit that fails is an error."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        questions.write(f"{path}\n")
        questions.flush()
        answer = json.loads(answers.readline() or '"the auditor has ended"')
        if isinstance(answer, str):
            raise RuntimeError(f"{path.name}: {answer}")
        findings = tuple(
            Found(
                code=each["code"],
                level=each["level"],
                lines=frozenset([each["line"], *(other["line"] for other in each["others"])]),
            )
            for each in answer["findings"]
        )
        return Audited(findings=findings, error=answer["error"])


@contextlib.contextmanager
def start() -> Generator[Auditor]:
    """Start the process, and end it."""
    command = [sys.executable, "-m", "tests.audit.scoring"]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=root, env=environment) as process:
        yield Auditor(process)
        assert process.stdin is not None
        process.stdin.close()


def serve() -> None:
    """Answer the paths of the standard input."""
    for name in ("torch._dynamo", "runtime.backends.torch.audit.recorder"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # an audit searches all objects that Python tracks: without those of what is imported here
    for line in sys.stdin:
        print(answer(Path(line.rstrip("\n"))), flush=True)


def answer(path: Path) -> str:
    """Return the report of a script as JSON on one line, or as a string why there is none."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            told = _audit(path)
        except BaseException:
            told = json.dumps(traceback.format_exc())
        with open(write, "w", encoding="utf-8") as pipe:
            pipe.write(told)
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    return told or json.dumps(f"its process ended with {os.waitstatus_to_exitcode(status)}")


def _audit(path: Path) -> str:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    report, _ = audit_script(path, [], STEPS)
    return json.dumps(to_json(report))


if __name__ == "__main__":
    serve()
