"""What the user wrote: the declarations of a graph spec, how they are read, and what may be wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphspec.startup import import_lazily

if TYPE_CHECKING:
    from graphspec.declare.graph import GraphSpec
    from graphspec.diagnostics import Diagnostic, SpecError, render
    from graphspec.loading import load
    from graphspec.python.graph import Graph
    from graphspec.write.render import render as dump

__all__ = ["Diagnostic", "Graph", "GraphSpec", "SpecError", "dump", "load", "render"]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "Diagnostic": "graphspec.diagnostics:Diagnostic",
        "Graph": "graphspec.python.graph:Graph",
        "GraphSpec": "graphspec.declare.graph:GraphSpec",
        "SpecError": "graphspec.diagnostics:SpecError",
        "dump": "graphspec.write.render:render",
        "load": "graphspec.loading:load",
        "render": "graphspec.diagnostics:render",
    },
)
