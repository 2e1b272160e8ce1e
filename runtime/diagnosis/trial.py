"""Build a spec on this machine, to see whether it can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from runtime.diagnosis.child import BUILD
from runtime.diagnosis.process import run_apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of building a spec: the device and the number of parameters, or why not."""

    backend: str
    device: str = ""
    parameters: int = 0
    refused: tuple[str, ...] = ()
    """What it imports and nobody allowed: it was not built for that alone."""
    problems: str = ""

    @property
    def failed(self) -> bool:
        """Return whether something is wrong with the spec, or with its code."""
        return bool(self.problems)


def try_build(path: Path, backend: str, allow: Sequence[str]) -> Trial:
    """Return what comes of building a spec in a process of its own."""
    report = run_apart((BUILD, str(path), backend, *allow))
    match report.found:
        case {"device": str() as device, "parameters": int() as parameters}:
            return Trial(backend=backend, device=device, parameters=parameters)
        case {"refused": list()}:
            return Trial(backend=backend, refused=tuple(cast("list[str]", report.found["refused"])))
        case {"problems": str() as problems}:
            return Trial(backend=backend, problems=problems)
        case _:
            return Trial(backend=backend, problems=f"building it failed: {report.trouble}")
