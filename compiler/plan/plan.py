"""The plan: a compiled step as text, JSON, diagrams, a graph, and explanations."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from compiler.ir.value import Object
from compiler.plan import diagram, explain, json, summary, why_not
from compiler.plan import text as printer
from compiler.plan.compiled_step import CompiledStep
from graphspec.declare.ops import UpdateOp

if TYPE_CHECKING:
    import networkx


class Plan(CompiledStep, frozen=True, kw_only=True):
    """A compiled step: its schedule, the reasons for it, and its program. ``print(plan)`` shows train mode.

    >>> from compiler import compile_step
    >>> from graphspec import load
    >>> plan = compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
    >>> plan.spec.name, plan.program.backend, plan.warnings
    ('simultaneous-gan', 'torch', ())
    """

    def __repr__(self) -> str:
        """Return what it is a plan of, on one line.

        >>> plan
        <Plan of simultaneous-gan: 2 updates, modes train, eval; torch, order fewest>
        """
        updates = sum(isinstance(op, UpdateOp) for op in self.spec.ops.values())
        modes = ", ".join(program.mode for program in self.program.modes)
        size = f"{updates} {'update' if updates == 1 else 'updates'}, modes {modes}"
        return f"<Plan of {self.spec.name}: {size}; {self.program.backend}, order {self.program.order}>"

    def __str__(self) -> str:
        """Return the train plan as text."""
        return self.text()

    def text(self, mode: str = "train", *, processes: int = 1) -> str:
        """Return the plan of a mode as text, one line per instruction. Raises KeyError for an unknown mode.

        For several ``processes`` it says what they tell each other.

        >>> print(plan.text().splitlines()[0])
        simultaneous-gan: train step for torch, order fewest
        """
        return printer.print_plan(self, self._known(mode), processes)

    def to_json(self, mode: str = "train", *, processes: int = 1) -> Object:
        """Return the plan of a mode in the published JSON format. Raises KeyError for an unknown mode.

        For several ``processes`` every function has its messages.

        >>> plan.to_json()["functions"][0]["name"]
        'train_step'
        """
        return json.export_plan(self, self._known(mode), processes)

    def mermaid(self, mode: str = "train") -> str:
        """Return the plan of a mode as a Mermaid flowchart. Raises KeyError for an unknown mode.

        >>> plan.mermaid().splitlines()[0]
        'flowchart TD'
        """
        return diagram.draw_mermaid(self, self._known(mode))

    def dot(self, mode: str = "train") -> str:
        """Return the plan of a mode as a Graphviz digraph. Raises KeyError for an unknown mode.

        >>> plan.dot().splitlines()[0]
        'digraph "simultaneous-gan" {'
        """
        return diagram.draw_dot(self, self._known(mode))

    def svg(self, mode: str = "train") -> str:
        """Return the plan of a mode as a picture: an SVG file. Raises KeyError for an unknown mode.

        Time runs downwards, every model has a lane, and lines on the left are values.

        >>> plan.svg().startswith("<svg")
        True
        """
        from compiler.plan.page import svg

        return svg.draw_plan(self, self._known(mode))

    def html(self, mode: str = "train") -> str:
        """Return the plan of a mode as a page for browsers, one file that loads nothing. Raises KeyError as `svg`.

        The page holds the text of the spec.

        >>> "<title>simultaneous-gan: train step</title>" in plan.html()
        True
        """
        from compiler.plan.page import html

        return html.write_page(self, self._known(mode))

    def _repr_html_(self) -> str:
        """Return the picture that notebooks show."""
        from compiler.plan.page import svg

        return svg.draw_cell(self)

    def graph(self, mode: str = "train", function: str | None = None) -> networkx.MultiDiGraph[str]:
        """Return a step of a mode as a graph: its instructions, and every constraint between two of them.

        A mode in which some ops do not fire in every step has several functions, one for each set of ops that fires
        together. ``function`` names one of them (``train_step_2``); the default is the longest. Nodes have the
        attributes ``kind``, ``op``, ``model``, ``position``, and the cells that they read and write with their versions
        (``d.params@0``). Edges have ``hazard``, ``why``, ``cell``, and the forwards ``through`` which a gradient still
        reads.

        Raises KeyError for an unknown mode or function.

        >>> graph = plan.graph()
        >>> sorted({data["hazard"] for _, _, data in graph.in_edges("step_d", data=True)})
        ['backward-war', 'data', 'war']
        """
        graphs = self.graphs_of(self._known(mode))
        if function is not None and function not in graphs:
            raise KeyError(f"no function '{function}' in mode '{mode}' of {self.spec.name}: it has {', '.join(graphs)}")
        chosen = function or max(graphs, key=lambda name: len(graphs[name].sequence))
        return diagram.export_network(graphs[chosen])

    def explain(self, op: str | None = None) -> str:
        """Return when an op runs and why, as text; without a name, a summary.

        Of a model or a state, return what reads and writes it; of the use of a block, its ops. Raises KeyError with
        suggestions for an unknown op.

        >>> print(plan.explain("step_d").splitlines()[0])
        step_d: update (simultaneous-gan.yaml:25:3)
        """
        if op is None:
            return summary.summarize(self)
        if op in (*self.spec.models, *self.spec.state) and op not in self.spec.ops:
            return explain.explain_storage(self, op)
        ops = self._find_used(op) or (self._find_op(op),)
        return "\n".join(explain.explain_op(self, each) for each in ops)

    def why_not(self, op: str, way: why_not.Way) -> str:
        """Return what would go wrong if an op wrote `earlier` or `later` than it does, as text.

        Raises KeyError with suggestions for an unknown op.

        >>> print(plan.why_not("step_d", "earlier").splitlines()[4].rpartition(" (")[0].strip())
        before forward on_real: forward on_real would read discriminator.params@1 in place of @0
        """
        return why_not.explain_why_not(self, self._find_op(op), way)

    def _find_used(self, use: str) -> tuple[str, ...]:
        """Return the ops with a line that the use of a block becomes; none for another name."""
        ops = self.spec.ops.items()
        inside = (getattr(each, "expr", None) or name for name, each in ops if name.startswith(f"{use}."))
        return () if use in self.spec.ops else tuple(dict.fromkeys(inside))

    def _find_op(self, op: str) -> str:
        """Return an op that has a line, that of the whole for a part of an expression; raise KeyError for others."""
        ops, inside = self.spec.ops, self._find_used(op)
        whole = {name: getattr(each, "expr", None) or name for name, each in ops.items()}
        if op in ops:
            return whole[op]
        if inside:
            raise KeyError(f"'{op}' becomes several ops: name one of them, {', '.join(inside)}")
        spec = self.spec
        for what, names in {"an input": spec.inputs, "a state": spec.state, "a model": spec.models}.items():
            if op in names:
                naming = (
                    name for name, each in ops.items() if op in (reference.name for reference in each.references())
                )
                users = ", ".join(dict.fromkeys(whole[name] for name in naming)) or "none"
                raise KeyError(f"'{op}' is {what} of {spec.name}, and no op; the ops that name it: {users}")
        close = get_close_matches(op, [name for name in ops if whole[name] == name], 3)
        raise KeyError(f"no op '{op}' in {spec.name}" + (f"; did you mean {', '.join(close)}?" if close else ""))

    def _known(self, mode: str) -> str:
        """Return a mode that the program has; raise KeyError for others."""
        modes = [program.mode for program in self.program.modes]
        if mode not in modes:
            raise KeyError(f"no mode '{mode}' in {self.spec.name}: it has {', '.join(modes)}")
        return mode
