"""Diagnostics of the compiler: places, and cycles described edge by edge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os.path import basename

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.instructions import Instruction
from compiler.ir.step_graph import Edge, Hazard
from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import ForwardOp, UpdateOp
from graphspec.diagnostics import Diagnostic, Span, SpecError

PENDING = (Hazard.BACKWARD_WAR, Hazard.BUFFER_WAR)
"""Edges that exist because a gradient still reads what a forward used; clones for the forward remove them."""


def span_of(spec: GraphSpec, op: str, field: str | None = None) -> Span | None:
    """Return the place of an op's name, or of one of its fields where that is written."""
    if field is not None and field in spec.ops[op].model_fields_set:
        return spec.span("ops", op, field)
    return spec.span("ops", op, key=True)


def place_in(span: Span | None) -> str:
    """Return ``file:line:column`` with the bare file name, so that plans do not depend on where they are made.

    Empty for specs built in Python.
    """
    return "" if span is None else f"{basename(span.file)}:{span.line}:{span.column}"


@once_per_spec
def find_op_places(spec: GraphSpec) -> Mapping[str, str]:
    """Return where every op is declared, ``file:line:column``, or nothing for specs built in Python."""
    return {name: place_in(spec.span("ops", name, key=True)) for name in spec.ops}


def cycle_problem(
    code: str, spec: GraphSpec, nodes: Mapping[str, Instruction], edges: Iterable[Edge], cycle: tuple[str, ...]
) -> Diagnostic:
    """Return a diagnostic that names a cycle and the reason of each of its edges.

    Where it runs through verdicts that are made of others, it is described as if these were waited for themselves.
    """
    reasons = {(edge.before, edge.after): edge for edge in reversed(tuple(edges))}
    before = dict(zip((*cycle[1:], cycle[0]), cycle, strict=True))
    ways = [reasons[before[name], name] for name in cycle if not nodes[name].is_of_verdicts]
    for index, edge in enumerate(ways):
        found = edge.before
        while nodes[found].is_of_verdicts:
            found = before[found]
        ways[index] = replace(edge, before=found)
    cycle = tuple(edge.after for edge in ways)
    steps = [*ways[1:], ways[0]]
    declared = next((nodes[edge.after].op for edge in steps if edge.hazard is Hazard.DECLARED), None)
    names = " -> ".join(nodes[node].label for node in (*cycle, cycle[0]))
    message = {
        "E-CYCLE": f"something must read a version before it exists: {names}",
        "E-TWO-VERSIONS": f"two versions of one model would have to be live at once: {names}",
    }[code]
    return Diagnostic(
        code=code,
        message=message,
        span=span_of(spec, nodes[cycle[0]].op) if declared is None else span_of(spec, declared, "after"),
        label="this op is part of the cycle",
        notes=tuple(f"{nodes[edge.before].label} before {nodes[edge.after].label}: {edge.why}" for edge in steps),
        help=_cycle_help(code, spec, nodes, steps),
    )


def _cycle_help(code: str, spec: GraphSpec, nodes: Mapping[str, Instruction], steps: list[Edge]) -> str:
    """Return the remedy of a cycle, which depends on what closes it."""
    if code == "E-CYCLE":
        return "remove one `after`, or use a value that exists earlier"
    through = [nodes[name] for edge in steps if edge.hazard in PENDING for name in edge.through]
    forwards = [node.op for node in through if not any(read.again for read in node.reads)]
    requested = {name for name, op in spec.ops.items() if isinstance(op, ForwardOp) and op.checkpoint}
    checkpoints = [node.op for node in through if node.op in requested]
    if forwards or checkpoints:
        name, instead = (forwards[0], "") if forwards else (checkpoints[0], " in place of `checkpoint: true`")
        return (
            "let both ops read one version (write `after` on the other), or write `snapshot: true`"
            f"{instead} on '{name}', which then reads clones"
        )
    waits = next((edge for edge in steps if edge.hazard is Hazard.VERDICT), None)
    if waits is not None:
        one, other = nodes[waits.after].op, nodes[waits.before].op
        if spec.ops[one].every == other:
            return f"count steps in place of updates of '{other}', which the check may skip: `every: 2` on '{one}'"
        held = one if isinstance(spec.ops[one], UpdateOp) else other
        return f"write `on_overflow: own` on '{held}': it is then skipped for its own gradients alone"
    return "let both ops read one version: write `after` on the one that reads the older, or take it from the other"


class DiagnosticSink(Struct, kw_only=True):
    """Every problem of a spec that was found so far."""

    spec: GraphSpec
    known: dict[object, Diagnostic] = {}

    def report(self, found: Iterable[Diagnostic]) -> None:
        """Record problems, each once, with the reasons of the function in which it was found first."""
        for problem in found:
            self.known.setdefault((problem.code, problem.span, problem.message), problem)

    @property
    def problems(self) -> tuple[Diagnostic, ...]:
        """Return the problems as they were found."""
        return tuple(self.known.values())

    @property
    def has_errors(self) -> bool:
        """Return whether one of the problems is an error."""
        return any(problem.severity == "error" for problem in self.problems)

    def stop_on_errors(self) -> None:
        """Raise SpecError with every problem if one of them is an error."""
        if self.has_errors:
            raise self.error()

    def error(self) -> SpecError:
        """Return the error with every problem."""
        return SpecError(self.in_order(), self.spec.texts())

    def in_order(self) -> tuple[Diagnostic, ...]:
        """Return the problems, sorted by place, then code and message; those without a place come first."""
        placed: list[tuple[tuple[str, int, int, str, str], Diagnostic]] = []
        for problem in self.problems:
            span = problem.span
            file, line, column = ("", 0, 0) if span is None else (span.file, span.line, span.column)
            placed.append(((file, line, column, problem.code, problem.message), problem))
        return tuple(problem for _, problem in sorted(placed, key=lambda pair: pair[0]))
