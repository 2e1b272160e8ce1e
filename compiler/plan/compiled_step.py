"""A compiled step: what the passes decided about a spec, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.ir.program import Program
from compiler.ir.step_graph import StepGraph
from compiler.timing.units import Pace
from compiler.types.dimension import TensorType
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep:
    """The schedule of a step, and the reasons for it."""

    spec: GraphSpec
    program: Program
    graphs: Mapping[str, StepGraph]
    """What the passes found out, by function."""
    warnings: tuple[Diagnostic, ...]
    notes: tuple[str, ...]
    """What was assumed about models that could not be inspected."""
    pace: Pace = field(default_factory=Pace)
    """What was known of the run when its durations were turned into steps."""
    types: Mapping[str, TensorType] = field(default_factory=dict[str, TensorType])
    """Shapes and types of values, as far as they are known."""
    pending: tuple[Diagnostic, ...] = ()
    """What needs a length that only a run knows. The schedule is that without it, and cannot be built."""

    def graphs_of(self, mode: str) -> Mapping[str, StepGraph]:
        """Return the graphs of a mode by function."""
        return {name: graph for name, graph in self.graphs.items() if graph.mode == mode}
