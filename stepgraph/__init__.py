"""Everything for Python code in one module: `import stepgraph as sg`.

A name is imported when it is used for the first time, so that a program that only checks specs imports no framework:

>>> import stepgraph as sg
>>> spec = sg.load("examples/simultaneous-gan/simultaneous-gan.yaml")
>>> sg.compile_step(spec).backend
'torch'
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler import Pace, Plan, compile_step
    from graphspec import Diagnostic, Graph, GraphSpec, SpecError, dump, library, load, render
    from runtime import Step, StepError, build, emit, reopen
    from runtime.audit import audit

__all__ = [
    "Diagnostic",
    "Graph",
    "GraphSpec",
    "Pace",
    "Plan",
    "SpecError",
    "Step",
    "StepError",
    "audit",
    "build",
    "compile_step",
    "dump",
    "emit",
    "library",
    "load",
    "render",
    "reopen",
]

_HOMES = {
    "compiler": ("Pace", "Plan", "compile_step"),
    "graphspec": ("Diagnostic", "Graph", "GraphSpec", "SpecError", "dump", "library", "load", "render"),
    "runtime": ("Step", "StepError", "audit", "build", "emit", "reopen"),
}


def _check_packages() -> None:
    """Raise ImportError where Python finds other packages under the names of ours."""
    folder = Path(__file__).resolve().parents[1]
    for name in _HOMES:
        loaded = sys.modules.get(name)
        spec = getattr(loaded, "__spec__", None) if loaded is not None else importlib.util.find_spec(name)
        if spec is None and loaded is None:
            raise ImportError(f"stepgraph's package '{name}' is not in {folder}: install stepgraph again")
        # A folder without __init__.py has no file, but places.
        places = (
            [getattr(loaded, "__file__", None)]
            if spec is None
            else [spec.origin, *(spec.submodule_search_locations or ())]
        )
        found = next((each for each in places if each), name)
        own = folder / name
        if Path(found).resolve() not in (own, own / "__init__.py"):
            raise ImportError(
                f"'{name}' is a package of stepgraph, and {found} hides it: rename that, or start Python elsewhere "
                f"(stepgraph is in {folder})"
            )


def __getattr__(name: str) -> object:
    """Import a name of `__all__` where it is used for the first time."""
    home = next((package for package, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'stepgraph' has no attribute {name!r}")
    if name == "library":
        found = importlib.import_module("graphspec.library")
    else:
        found = getattr(importlib.import_module("runtime.audit" if name == "audit" else home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the names that there are, for completion."""
    return sorted(__all__)


_check_packages()
