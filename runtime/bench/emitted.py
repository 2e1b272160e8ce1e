"""The emitted file of a step, executed as a user's program would import it."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import tempfile
from pathlib import Path
from types import ModuleType

_numbers = itertools.count(1)


def load_emitted(text: str) -> ModuleType:
    """Return the module of an emitted file; its `build` is still to be called. Raises what executing it raises."""
    name = f"stepgraph_emitted_file_{next(_numbers)}"
    with tempfile.TemporaryDirectory(prefix="stepgraph-") as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look up their module
        spec.loader.exec_module(module)
    return module
