"""The versions of what a run is made with."""

from __future__ import annotations

import importlib.metadata
import platform

_PACKAGES = ("stepgraph", "numpy", "safetensors")


def find_versions(backend: str) -> dict[str, str]:
    """Return the versions of Python, of our packages and of the backend's framework, those that are installed."""
    found = {"python": platform.python_version()}
    for package in (*_PACKAGES, backend):
        try:
            found[package] = importlib.metadata.version(package)
        except (importlib.metadata.PackageNotFoundError, ValueError):
            continue  # run from its sources, or a framework under another name
    return found
