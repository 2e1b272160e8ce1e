"""Run an audit: around some steps of a program, or around a whole script."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from runtime.audit.findings.catalogue import find_all
from runtime.audit.findings.finding import Finding
from runtime.audit.recording import Enough, find_recorder
from runtime.audit.report import Report


class Audit:
    """The report of an audit, complete once its steps have run: it has what :class:`Report` has.

    >>> import torch
    >>> import stepgraph as sg
    >>> net = torch.nn.Linear(4, 1)
    >>> opt = torch.optim.SGD(net.parameters(), 0.1)
    >>> with sg.audit() as result:
    ...     opt.zero_grad()
    ...     net(torch.ones(8, 4)).square().mean().backward()
    ...     opt.step()
    >>> result.is_sound, result.findings
    (True, ())
    """

    def __init__(self) -> None:
        self._report: Report | None = None

    @property
    def report(self) -> Report:
        """Return the report; raise RuntimeError while the audit runs."""
        if self._report is None:
            raise RuntimeError("the audit still runs: read its report after the `with` statement")
        return self._report

    def complete(self, report: Report) -> None:
        """Take the report."""
        self._report = report

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings, worst first."""
        return self.report.findings

    @property
    def is_sound(self) -> bool:
        """Return whether there is no error and no warning."""
        return self.report.is_sound

    def __str__(self) -> str:
        """Return the report as text."""
        return str(self.report)


@contextmanager
def audit(*, steps: int | None = None) -> Generator[Audit]:
    """Record the training steps in a `with` statement, and say what is wrong with them.

    It changes no number of theirs. ``steps``: leave the statement where another step begins after so many.

    >>> import torch
    >>> import stepgraph as sg
    >>> net = torch.nn.Linear(4, 1)
    >>> opt = torch.optim.SGD(net.parameters(), 0.1)
    >>> with sg.audit() as report:
    ...     for _ in range(2):
    ...         net(torch.ones(8, 4)).square().mean().backward()
    ...         opt.step()
    >>> [each.code for each in report.findings]  # nothing zeroes the gradients
    ['leftover-grad']
    """
    result = Audit()
    recorder = find_recorder("torch", steps)
    error = ""
    recorder.start()
    try:
        yield result
    except Enough:
        pass
    except BaseException as problem:
        error = _describe(problem)
        raise
    finally:
        trace = recorder.finish(error)
        result.complete(Report(trace=trace, findings=find_all(trace)))


def audit_script(path: Path, arguments: Sequence[str], steps: int) -> tuple[Report, BaseException | None]:
    """Run a script as `python FILE ARGUMENTS` would, and stop after some steps; return what ended it, if not that.

    A script that ends with ``sys.exit()``, or with ``sys.exit(0)``, has ended as it should.
    """
    recorder = find_recorder("torch", steps)
    recorder.start()
    _main, problem, error = run_script(path, arguments)
    trace = recorder.finish(error)
    return Report(trace=trace, findings=find_all(trace)), problem


def run_script(path: Path, arguments: Sequence[str]) -> tuple[ModuleType, BaseException | None, str]:
    """Run a script under a recorder until it has had enough; return what else ended it, and that in words.

    The first result is the script as a module, for the caller to hold until it has read the recording. Python too keeps
    `__main__` to its end, and PyTorch needs it: a process group of gloo that is freed right after a backward joins its
    threads without releasing the interpreter, which one of them may still wait for (pytorch/pytorch#56297).
    """
    main = ModuleType("__main__")
    main.__file__ = os.path.abspath(path)
    before = sys.argv, sys.path[0]
    problem: BaseException | None = None
    sys.argv = [str(path), *arguments]
    sys.path[0] = str(path.resolve().parent)
    try:
        _run_main(main, path)
    except Enough:
        pass
    except SystemExit as end:
        problem = None if end.code in (None, 0) else end
    except (Exception, KeyboardInterrupt) as error:
        problem = error
    finally:
        sys.argv, sys.path[0] = before
    return main, problem, "" if problem is None else _describe(problem)


def _run_main(main: ModuleType, path: Path) -> None:
    """Run a file as the main module. Unlike `runpy`, Python gives it an absolute path, and leaves `sys.argv` alone."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(compile(path.read_bytes(), os.path.abspath(path), "exec"), vars(main))
    finally:
        sys.modules["__main__"] = before


def _describe(problem: BaseException) -> str:
    if isinstance(problem, SystemExit):
        return f"sys.exit({problem.code!r})"
    if isinstance(problem, KeyboardInterrupt):
        return "Ctrl-C"
    return f"{type(problem).__name__}: {problem}"
