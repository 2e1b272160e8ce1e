"""Files that come with stepgraph: in a wheel they are inside the package, in a checkout where they are written."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def find_bundled(name: str, source: str) -> Path:
    """Return the folder ``runtime/<name>`` of a wheel, which is ``<source>`` of a checkout."""
    installed = Path(str(files("runtime"))) / name
    return installed if installed.is_dir() else Path(__file__).parents[2] / source
