"""A compiled step: what the passes decided about a spec, as data."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from compiler.ir.program import Program
from compiler.ir.step_graph import StepGraph
from compiler.timing.units import Pace
from compiler.types.dimension import TensorType
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic


class CompiledStep(Struct, frozen=True, kw_only=True):
    """The schedule of a step, and the reasons for it."""

    spec: GraphSpec
    program: Program
    graphs: Mapping[str, StepGraph]
    """The graphs of the step with everything that the passes found, by function."""
    warnings: tuple[Diagnostic, ...]
    notes: tuple[str, ...]
    """Assumptions about models that could not be inspected."""
    pace: Pace = field(default_factory=Pace)
    """The lengths by which durations were converted to steps."""
    types: Mapping[str, TensorType] = {}
    """The known shapes and dtypes, by value; a part of a value has those of all of it."""
    pending: tuple[Diagnostic, ...] = ()
    """The parts that need a length that only a run knows. The plan leaves them out and cannot be built."""

    def graphs_of(self, mode: str) -> Mapping[str, StepGraph]:
        """Return the graphs of a mode by function; none for an unknown mode.

        >>> list(plan.graphs_of("train"))
        ['train_step']
        """
        return {name: graph for name, graph in self.graphs.items() if graph.mode == mode}
