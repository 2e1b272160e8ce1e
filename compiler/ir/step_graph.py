"""The intermediate representation: nodes with effects, edges with reasons, and what the passes found out about them.

Passes never ask what kind of op a node is. They ask its effects: which values it uses and defines, which cells it reads
and writes, whether a gradient may flow through it, what it differentiates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

from compiler.ir.digraph import Causality
from compiler.ir.instructions import Commit, Instruction
from compiler.ir.program import Mode
from compiler.ir.value import CellVersion
from graphspec.diagnostics import Diagnostic, Span

Overflow: TypeAlias = Literal["", "group", "all", "own", "apply", "error"]
TOGETHER: tuple[Overflow, ...] = ("group", "all")
"""Policies under which a write depends on the verdicts of other updates, regardless of their policies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A value read by a node; ``differentiable`` where a gradient may flow back through it.

    ``optional``: the node does without it in steps in which nothing defines it; one that is no write is not there
    where all that it is made of is of that kind and absent. A gradient is made of its loss.
    """

    value: str
    differentiable: bool = True
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A cell read by a node.

    ``saved``: where the node is differentiated, autograd keeps the cell itself (not a copy) until the gradient ran.
    ``streaming``: the node reads the newest version when it runs, regardless of its causal past (train-mode
    statistics, an optimizer stepping its own parameters); otherwise it reads the version of its causal past.
    ``again``: the cell is read a second time, on every backend, when the gradient recomputes the node.
    ``constant``: for every gradient what is read is a constant.
    """

    cell: str
    saved: bool = False
    again: bool = False
    streaming: bool = False
    constant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A cell written by a node; ``statistics`` for the running statistics that a train-mode forward updates."""

    cell: str
    statistics: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivative:
    """What a node differentiates: a loss value, for models (whose parameters live in ``cells``) and values."""

    loss: str
    models: tuple[str, ...] = ()
    cells: frozenset[str] = frozenset()
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node: its effects, and the instruction it becomes (flags and versions still open)."""

    id: str
    op: str
    instruction: Instruction
    label: str
    """How messages call it: ``forward on_fake``, ``gradient step_g``, ``apply step_d``."""
    uses: tuple[Use, ...] = ()
    defines: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    """Those of its results from which the others may be made: a gradient by one of them runs back into the node."""
    reads: tuple[Read, ...] = ()
    writes: tuple[Write, ...] = ()
    model: str | None = None
    """The model this node calls, if it calls one."""
    derivative: Derivative | None = None
    differentiable: bool = True
    """False where the results are constants for every gradient (``stop``, argmax, a draw)."""
    eager: bool = False
    """A write that stands at its earliest legal place (apply, ema, copy, assign), rather than on demand."""
    defer: Literal["auto", "end", "never"] = "auto"
    """The requested place of a write: as early as legal, at the end of the step, or right after its gradient."""
    penalizes: str | None = None
    """The model whose penalties the node adds to a gradient set: once per step, whichever of its updates fire."""
    follows: frozenset[str] = frozenset()
    """Cells after all of whose writers the node comes, whether it reads them or not (an average and its source)."""
    place: str = ""
    part: int = 0
    """The micro-batch it belongs to, from 1; 0 for what runs once."""
    prompt: bool = False
    """It runs as soon as its operands are defined, so that these can be freed."""
    is_opportunistic: bool = False
    """Where its value may be returned, it runs if all its operands are defined."""
    gate: str = ""
    """The gate that admits it, where that is another than its op's."""
    verdict: str = ""
    """A write of gradients: the value that says whether they are finite."""
    others: tuple[str, ...] = ()
    """Verdicts over gradients of other updates that it writes too, where these fire."""
    overflow: Overflow = ""
    """What non-finite gradients skip; empty: not specified."""
    paced: str = ""
    """The update in whose steps it takes place: it is committed only where that is."""

    @property
    def admission(self) -> str:
        """Return the gate that admits the node, if there is one of that name."""
        return self.gate or self.op


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """``before`` must run before ``after``: the kind of constraint, the cell version and forwards, in words."""

    before: str
    after: str
    hazard: Hazard
    why: str
    cell: CellVersion | None = None
    through: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Because:
    """One reason of a decision: an edge from an op, about a cell, through forwards, at a place."""

    edge: str
    op: str
    cell: str = ""
    through: tuple[str, ...] = ()
    place: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Something the compiler decided: a stable code, the op it is about, a sentence, and its reasons."""

    code: str
    subject: str
    text: str
    because: tuple[Because, ...] = ()
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A node's access to a cell at a version."""

    at: CellVersion
    mode: Literal["read", "write"]
    saved: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientPath:
    """P(g): the nodes on a differentiable path from g's targets to its loss, and the uses the path runs through."""

    nodes: frozenset[str]
    uses: frozenset[tuple[str, str]]
    """(value, node): the value enters the node on the path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFlags:
    """What each node needs of the autograd graph, all inferred."""

    recorded: frozenset[str] = frozenset()
    """Nodes that run with a graph; all others run without."""
    frozen: frozenset[str] = frozenset()
    """Forwards recorded, but for no gradient of their own weights."""
    detached: frozenset[tuple[str, str]] = frozenset()
    """(value, node): the use passes no gradient back."""
    retained: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Gradient -> later gradients that run through the same graph."""
    created: Mapping[str, str] = field(default_factory=dict[str, str])
    """Gradient -> the gradient that differentiates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """One mode of a step with one set of ops that fire together, and everything the passes found out about it."""

    mode: Mode
    active: tuple[str, ...]
    gated: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: Mapping[str, Node]
    """By id, in listed order."""
    causality: Causality
    """Which node happens before which, over all nodes of the mode, firing or not."""
    ordering: tuple[Edge, ...] = ()
    """Happens-before edges between the nodes here."""
    accesses: Mapping[str, tuple[Access, ...]] = field(default_factory=dict[str, tuple[Access, ...]])
    writers: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Cell -> its writers in order; the k-th makes version k."""
    paths: Mapping[str, GradientPath] = field(default_factory=dict[str, GradientPath])
    commits: Mapping[str, Commit] = field(default_factory=dict[str, Commit])
    """The verdicts under which a write takes place, of those that do not always."""
    scaled: bool = False
    """Losses are scaled, by a factor that the verdicts of the step move."""
    judged: bool = False
    """Some write of the mode takes place only under verdicts, in this set of ops or in another."""
    hazards: tuple[Edge, ...] = ()
    snapshots: Mapping[str, Literal["buffers", "all"]] = field(default_factory=dict[str, Literal["buffers", "all"]])
    sequence: tuple[str, ...] = ()
    flags: GraphFlags = GraphFlags()
    decisions: tuple[Decision, ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    states: frozenset[str] = frozenset()
    """The declared states; one among the outputs is returned as the step leaves it."""
    datasets: tuple[str, ...] = ()
    """The data sets for whose batches the function is, where the spec names some."""
    spans: Mapping[str, Span | None] = field(default_factory=dict[str, Span | None])
    """Op -> where it is declared."""

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Return every ordering constraint: happens-before and hazards."""
        return self.ordering + self.hazards

    def version(self, node: str, cell: str) -> int | None:
        """Return the version of a cell that a node reads, None where it does not read it."""
        found = (
            access.at.version for access in self.accesses[node] if access.mode == "read" and access.at.cell == cell
        )
        return next(found, None)
