"""Where in a spec a data set is declared, for the messages about it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphspec.data import DataSource
from graphspec.diagnostics import SpecError
from graphspec.graph import GraphSpec
from runtime.data.position import Position
from runtime.problems import problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One entry of `data:`: the spec, and the entry's name (``train``)."""

    spec: GraphSpec
    role: str

    @property
    def declared(self) -> DataSource:
        """Return the entry."""
        return self.spec.data[self.role]

    @property
    def source(self) -> str:
        """Return the name of its source."""
        return self.declared.source

    def problem(self, code: str, message: str, *path: str, notes: tuple[str, ...] = (), help: str = "") -> SpecError:
        """Return an error that points to a field of this entry, or to the whole where no field is named."""
        span = self.spec.span("data", self.role, *path, key=not path)
        return problem(code, self._begin() + message, span=span, notes=notes, help=help, texts=self.spec.texts())

    def locate(self, error: SpecError, position: Position) -> SpecError:
        """Return an error with the number of the batch that was being read; epochs and batches count from 1."""
        where = f"data.{self.role}, epoch {position.epoch + 1}, batch {position.index + 1}: "
        found = (replace(each, message=where + each.message.removeprefix(self._begin())) for each in error.diagnostics)
        return SpecError(found, error.texts)

    def _begin(self) -> str:
        return f"data.{self.role}: "
