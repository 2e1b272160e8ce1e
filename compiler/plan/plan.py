"""The plan: a compiled step as text, JSON, diagrams, a graph, and explanations."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from compiler.ir.value import Object
from compiler.plan import diagram, explain, json
from compiler.plan import text as printer
from compiler.plan.compiled_step import CompiledStep

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(CompiledStep):
    """A compiled step in every form that a reader or a tool may want; ``print(plan)`` shows the train mode."""

    def __str__(self) -> str:
        """Return the train plan as text."""
        return self.text()

    def text(self, mode: str = "train") -> str:
        """Return the plan of a mode as text; raise KeyError for a mode the spec does not have.

        >>> from compiler import compile_step
        >>> from graphspec import load
        >>> plan = compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
        >>> print(plan.text().splitlines()[0])
        simultaneous-gan: train step for torch, order fewest
        """
        return printer.print_plan(self, self._known(mode))

    def to_json(self, mode: str = "train") -> Object:
        """Return the plan of a mode in the published JSON format; raise KeyError for an unknown mode.

        >>> from compiler import compile_step
        >>> from graphspec import load
        >>> plan = compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
        >>> plan.to_json()["functions"][0]["name"]
        'train_step'
        """
        return json.export_plan(self, self._known(mode))

    def mermaid(self, mode: str = "train") -> str:
        """Return the plan of a mode as a Mermaid flowchart; raise KeyError for an unknown mode.

        >>> from compiler import compile_step
        >>> from graphspec import load
        >>> plan = compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
        >>> plan.mermaid().splitlines()[0]
        'flowchart TD'
        """
        return diagram.draw_mermaid(self, self._known(mode))

    def dot(self, mode: str = "train") -> str:
        """Return the plan of a mode as a Graphviz digraph; raise KeyError for an unknown mode.

        >>> from compiler import compile_step
        >>> from graphspec import load
        >>> plan = compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
        >>> plan.dot().splitlines()[0]
        'digraph "simultaneous-gan" {'
        """
        return diagram.draw_dot(self, self._known(mode))

    def graph(self, mode: str = "train", function: str | None = None) -> networkx.MultiDiGraph[str]:
        """Return a step of a mode as a graph: what runs, in order, and every constraint between two of its nodes.

        A mode with ops that fire now and then has several functions, one for each set that fires together; ``function``
        names one of them (``train_step_2``), and without it the one in which most runs is taken. Nodes have ``kind``,
        ``op``, ``model``, ``position``, and the cells that they read and write at their versions (``d.params@0``);
        edges have ``hazard``, ``why``, ``cell``, and the forwards ``through`` which a gradient still reads.

        Raises KeyError for a mode or function that there is not.

        >>> from compiler import compile_step
        >>> from graphspec import load
        >>> graph = compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml")).graph()
        >>> sorted({data["hazard"] for _, _, data in graph.in_edges("step_d", data=True)})
        ['backward-war', 'data', 'war']
        """
        graphs = self.graphs_of(self._known(mode))
        if function is not None and function not in graphs:
            raise KeyError(f"no function '{function}' in mode '{mode}' of {self.spec.name}: it has {', '.join(graphs)}")
        chosen = function or max(graphs, key=lambda name: len(graphs[name].sequence))
        return diagram.export_network(graphs[chosen])

    def explain(self, op: str) -> str:
        """Return what happens to an op, where and why; raise KeyError with suggestions for an unknown one.

        >>> from compiler import compile_step
        >>> from graphspec import load
        >>> plan = compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
        >>> print(plan.explain("step_d").splitlines()[0])
        step_d: update (simultaneous-gan.yaml:25:3)
        """
        if op not in self.spec.ops:
            close = get_close_matches(op, self.spec.ops, 3)
            hint = f"; did you mean {', '.join(close)}?" if close else ""
            raise KeyError(f"no op '{op}' in {self.spec.name}{hint}")
        return explain.explain_op(self, op)

    def _known(self, mode: str) -> str:
        """Return a mode that the program has; raise KeyError for others."""
        modes = [program.mode for program in self.program.modes]
        if mode not in modes:
            raise KeyError(f"no mode '{mode}' in {self.spec.name}: it has {', '.join(modes)}")
        return mode
