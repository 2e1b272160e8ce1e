"""Findings: the problems of one compilation, each once, told together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.graph import GraphSpec


@dataclass(slots=True, kw_only=True)
class Findings:
    """Every problem of a spec that was found so far."""

    spec: GraphSpec
    known: dict[object, Diagnostic] = field(default_factory=dict[object, Diagnostic])

    def report(self, found: Iterable[Diagnostic]) -> None:
        """Remember problems, each once, with the reasons of the function in which it was found first."""
        for problem in found:
            self.known.setdefault((problem.code, problem.span, problem.message), problem)

    @property
    def problems(self) -> tuple[Diagnostic, ...]:
        """Return the problems as they were found."""
        return tuple(self.known.values())

    @property
    def has_errors(self) -> bool:
        """Return whether one of the problems is an error."""
        return any(problem.severity == "error" for problem in self.problems)

    def stop_on_errors(self) -> None:
        """Raise SpecError with every problem if one of them is an error."""
        if self.has_errors:
            raise SpecError(self.told(), self.spec.texts())

    def told(self) -> tuple[Diagnostic, ...]:
        """Return the problems, sorted by place, then code and message."""
        return tuple(sorted(self.problems, key=_position))


def _position(problem: Diagnostic) -> tuple[str, int, int, str, str]:
    """Return the sorting key of a diagnostic; those without a place come first."""
    span = problem.span
    if span is None:
        return "", 0, 0, problem.code, problem.message
    return span.file, span.line, span.column, problem.code, problem.message
