"""Packages whose names are imported where they are used for the first time (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping

from graphspec.collection import paused_collection


def import_lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that offers names of its modules.

    ``homes`` has for each name ``module:name``. A command imports only what it uses: `--help` needs no declarations.
    """

    def get(name: str) -> object:
        """Import a name, and keep it in the package."""
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].partition(":")
        with paused_collection:
            found: object = getattr(importlib.import_module(module), attribute)
        setattr(sys.modules[package], name, found)
        return found

    def listing() -> list[str]:
        """Return the names that there are, for completion."""
        return sorted({*vars(sys.modules[package]), *homes})

    return get, listing
