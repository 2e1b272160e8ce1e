"""Where in a spec a data set is declared, for the messages about it."""

from __future__ import annotations

from dataclasses import dataclass

from graphspec.diagnostics import SpecError
from graphspec.graph import GraphSpec
from runtime.problems import problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One entry of `data:`: the spec, and the entry's name (``train``)."""

    spec: GraphSpec
    role: str

    @property
    def source(self) -> str:
        """Return the name of its source."""
        return self.spec.data[self.role].source

    def problem(self, code: str, message: str, *path: str, notes: tuple[str, ...] = (), help: str = "") -> SpecError:
        """Return an error that points to a field of this entry, or to the whole where no field is named."""
        span = self.spec.span("data", self.role, *path, key=not path)
        text = f"data.{self.role}: {message}"
        return problem(code, text, span=span, notes=notes, help=help, texts=self.spec.texts())
