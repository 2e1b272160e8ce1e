"""Where in a spec a data set is declared, for the messages about it."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from graphspec.declare.data import DataSource, TrainingSets
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import SpecError
from runtime.problems import problem


class Position(Struct, frozen=True, kw_only=True):
    """A place between two batches; everything counts from 0."""

    epoch: int = 0
    """Epochs that have ended."""
    index: int = 0
    """Batches taken in the one under way."""
    samples: int = 0
    """Samples taken in it."""
    taken: int = 0
    """Batches taken in all."""


class Place(Struct, frozen=True, kw_only=True):
    """One entry of `data:`: the spec, and the entry's name (``train``)."""

    spec: GraphSpec
    role: str
    dataset: str | None = None
    """The training set, where there are several; for another entry the data set of its batches, where ops need it."""

    @property
    def declared(self) -> DataSource:
        """Return the entry; with several training sets that of this place, or the first."""
        found = self.spec.source(self.role, self.dataset)
        assert found is not None
        return found

    @property
    def path(self) -> tuple[str, ...]:
        """Return the path of the entry in the document."""
        is_part = self.dataset is not None and isinstance(self.spec.data[self.role], TrainingSets)
        return ("data", self.role, *((self.dataset or "",) if is_part else ()))

    @property
    def source(self) -> str:
        """Return the name of its source."""
        return self.declared.source

    def problem(self, code: str, message: str, *path: str, notes: tuple[str, ...] = (), help: str = "") -> SpecError:
        """Return an error that points to a field of this entry, or to the whole entry where no field is named."""
        span = self.spec.span(*self.path, *path, key=not path)
        return problem(code, self._begin() + message, span=span, notes=notes, help=help, texts=self.spec.texts())

    def locate(self, error: SpecError, position: Position) -> SpecError:
        """Return an error with the number of the batch that was being read; epochs and batches count from 1."""
        where = f"{'.'.join(self.path)}, epoch {position.epoch + 1}, batch {position.index + 1}: "
        found = (replace(each, message=where + each.message.removeprefix(self._begin())) for each in error.diagnostics)
        return SpecError(found, error.texts)

    def _begin(self) -> str:
        return f"{'.'.join(self.path)}: "
