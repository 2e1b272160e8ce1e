"""What the user wrote: the declarations of a graph spec, how they are read, and what may be wrong with them."""

from __future__ import annotations

from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic, SpecError, render
from graphspec.load import load
from graphspec.python.graph import Graph
from graphspec.write.render import render as dump

__all__ = ["Diagnostic", "Graph", "GraphSpec", "SpecError", "dump", "load", "render"]
