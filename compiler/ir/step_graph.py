"""The graph of a step: instructions, edges with reasons, and what the passes found out about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property
from typing import Literal

from msgspec import Struct

from compiler.ir.cell import Cell, CellVersion
from compiler.ir.digraph import Causality, number
from compiler.ir.instructions import Commit, Instruction
from compiler.ir.program import Mode
from graphspec.diagnostics import Diagnostic, Span


class Hazard(Enum):
    """Why one instruction must precede another (the table of hazards)."""

    DATA = "data"
    DECLARED = "declared"
    IMPLIED = "implied"
    RAW = "raw"
    WAR = "war"
    BACKWARD_WAR = "backward-war"
    BUFFER_WAR = "buffer-war"
    WAW = "waw"
    VERDICT = "verdict"


class Edge(Struct, frozen=True, kw_only=True):
    """``before`` must run before ``after``: the kind of constraint, the cell version and forwards, in words."""

    before: str
    after: str
    hazard: Hazard
    why: str
    cell: CellVersion | None = None
    through: tuple[str, ...] = ()


class Because(Struct, frozen=True, kw_only=True):
    """One reason of a decision: an edge from an op, about a cell, through forwards, at a place."""

    edge: str
    op: str
    cell: str = ""
    through: tuple[str, ...] = ()
    place: str = ""
    text: str = ""


class Decision(Struct, frozen=True, kw_only=True):
    """Something the compiler decided: a stable code, the op it is about, a sentence, and its reasons."""

    code: str
    subject: str
    text: str
    because: tuple[Because, ...] = ()
    node: str = ""


class GradientPath(Struct, frozen=True, kw_only=True):
    """P(g): the nodes on a differentiable path from g's targets to its loss, and the uses the path runs through."""

    nodes: frozenset[str]
    uses: frozenset[tuple[str, str]]
    """(value, node): the value enters the node on the path."""


class GraphFlags(Struct, frozen=True, kw_only=True):
    """What each node needs of the autograd graph, all inferred."""

    recorded: frozenset[str] = frozenset()
    """Nodes that run with a graph; all others run without."""
    frozen: frozenset[str] = frozenset()
    """Forwards recorded, but for no gradient of their own weights."""
    detached: frozenset[tuple[str, str]] = frozenset()
    """(value, node): the use passes no gradient back."""
    retained: Mapping[str, tuple[str, ...]] = {}
    """Gradient -> later gradients that run through the same graph."""
    created: Mapping[str, str] = {}
    """Gradient -> the gradient that differentiates it."""
    kept: frozenset[str] = frozenset()
    """Forwards of sharded models whose weights stay gathered: a gradient of a gradient runs back through them."""


def find_producers(nodes: Iterable[Instruction]) -> dict[str, str]:
    """Return the node that defines each value."""
    return {value: node.id for node in nodes for value in node.provides}


class StepGraph(Struct, frozen=True, kw_only=True, dict=True):
    """One mode of a step with one set of ops that fire together, and everything the passes found out about it."""

    mode: Mode
    active: tuple[str, ...]
    gated: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: Mapping[str, Instruction]
    """By id, in listed order."""
    causality: Causality
    """Which node happens before which, over all nodes of the mode, firing or not."""
    ordering: tuple[Edge, ...] = ()
    """Happens-before edges between the nodes here."""
    writers: Mapping[Cell, tuple[str, ...]] = {}
    """Cell -> its writers in order; the k-th makes version k."""
    paths: Mapping[str, GradientPath] = {}
    commits: Mapping[str, Commit] = {}
    """The verdicts under which a write takes place, of those that do not always."""
    scaled: bool = False
    """Losses are scaled, by a factor that the verdicts of the step move."""
    checked: bool = False
    """Some write of the mode takes place only under verdicts, in this set of ops or in another."""
    hazards: tuple[Edge, ...] = ()
    snapshots: Mapping[str, Literal["buffers", "all"]] = {}
    sequence: tuple[str, ...] = ()
    flags: GraphFlags = GraphFlags()
    decisions: tuple[Decision, ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    states: frozenset[str] = frozenset()
    """The declared states; one among the outputs is returned as the step leaves it."""
    wholes: Mapping[str, str] = {}
    """Value that splitting the batch made of one of the spec, in parts or from parts -> that one."""
    datasets: tuple[str, ...] = ()
    """The data sets for whose batches the function is, where the spec names some."""
    spans: Mapping[str, Span | None] = {}
    """Op -> where it is declared."""

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Return every ordering constraint: happens-before and hazards."""
        return self.ordering + self.hazards

    @cached_property
    def producers(self) -> Mapping[str, str]:
        """Return the node that defines each value."""
        return find_producers(self.nodes.values())

    @cached_property
    def listing(self) -> Mapping[str, int]:
        """Return the position of every node in listed order."""
        return number(self.nodes)

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Return the position of every node in the sequence."""
        return number(self.sequence)

    def version(self, node: str, cell: Cell) -> int | None:
        """Return the version of a cell that a node reads, None where it does not read it."""
        return next((read.version for read in self.nodes[node].reads if read.cell == cell), None)
