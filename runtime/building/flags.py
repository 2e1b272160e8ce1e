"""Flags of the user's own modules that say what is trained: a step goes by them as they were when it was built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from compiler.ir.program import Program
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec
from runtime.effects import find_training_modes
from runtime.step import StepError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What was trained of some models when their step was built; another setting now would be without effect."""

    spec: GraphSpec
    modes: frozenset[str]
    """The modes in which something is trained that has a flag; in others nothing hangs on flags."""
    parts: Mapping[tuple[str, str], object]
    """What has a flag, by model and name."""
    read: Callable[[object], bool]
    first: list[bool]

    @classmethod
    def of(
        cls, program: Program, spec: GraphSpec, parts: Mapping[tuple[str, str], object], read: Callable[[object], bool]
    ) -> Flags:
        """Return the flags of a step that was just built; ``read`` tells that of a part."""
        first = [read(part) for part in parts.values()]
        modes = find_training_modes(program) if parts else frozenset[str]()
        return cls(spec=spec, modes=modes, parts=parts, read=read, first=first)

    def check(self, mode: str) -> None:
        """Raise StepError (GS269) where a flag was set otherwise since then, in a mode that trains."""
        if mode in self.modes and list(map(self.read, self.parts.values())) != self.first:
            raise StepError([*map(self._tell, self._find_changed())], self.spec.texts())

    def _find_changed(self) -> list[str]:
        """Return the models with a part whose flag is another now."""
        pairs = zip(self.parts.items(), self.first, strict=True)
        return list(dict.fromkeys(model for ((model, _), part), was in pairs if self.read(part) != was))

    def _tell(self, model: str) -> Diagnostic:
        """Return the problem of a model."""
        pairs = [
            (name, part, was)
            for ((m, name), part), was in zip(self.parts.items(), self.first, strict=True)
            if m == model
        ]
        thawed = ", ".join(name for name, part, was in pairs if self.read(part) and not was)
        frozen = ", ".join(name for name, part, was in pairs if was and not self.read(part))
        notes = (f"let train since then: {thawed}",) if thawed else ()
        return Diagnostic(
            code="GS269",
            message=f"what is to be trained of model {model!r} is not what it was when the step was built",
            span=self.spec.span("models", model, key=True),
            notes=(*notes, *((f"frozen since then: {frozen}",) if frozen else ())),
            help="build the step anew from the models as they are; parameters of `layers` are frozen by `groups`",
        )
