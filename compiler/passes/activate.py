"""Which ops fire: the gates of a mode, and, for each pattern of gates, the nodes that run.

An op fires iff it is an output or metric, or one of its consumers fires, or it is a write that its mode and gates
admit, or it has no consumer at all and writes buffers.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.ir.cell import Cell
from compiler.ir.diagnose import span_of
from compiler.ir.instructions import Instruction
from compiler.ir.program import Gate, Mode, drop_of, window_of
from compiler.passes.order import find_producers, find_writers
from compiler.passes.presence import find_absent, find_idle_writes
from compiler.passes.schedule import is_update
from graphspec.declare.durations import Duration
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import EmaOp, LossOp, MetricOp, Op, UpdateOp
from graphspec.diagnostics import Diagnostic


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """The values a step returns where they fire, and those of them that fire because they are returned."""

    values: tuple[str, ...]
    demanded: tuple[str, ...]


Restricted = Mapping[str, tuple[str, ...]]
"""Ops that do not run on every data set of a mode, and on which they do."""
EVERYWHERE: Restricted = {}


def find_gates(
    spec: GraphSpec, nodes: Mapping[str, Instruction], restricted: Restricted = EVERYWHERE
) -> tuple[Gate, ...]:
    """Return the gate of every op of a mode that does not simply fire in each of its steps."""
    gates: dict[str, Gate] = {}
    present = frozenset(node.admission for node in nodes.values())
    pending = [node for node in nodes.values() if node.id == node.op]
    while pending:
        ungated = present - gates.keys()
        every = (gate for node in pending for gate in _gates(spec, node, nodes, ungated, restricted))
        found = {gate.op: gate for gate in every if gate.op not in gates}
        if not found:
            break
        gates.update(found)
    return tuple(gates.values())


def find_live_gates(
    spec: GraphSpec, nodes: Mapping[str, Instruction], demanded: tuple[str, ...], restricted: Restricted = EVERYWHERE
) -> tuple[Gate, ...]:
    """Return the gates of ops that fire at all; others would only multiply the functions."""
    gates = find_gates(spec, nodes, restricted)
    by_op = {gate.op: gate for gate in gates}
    firing = find_firing(nodes, Outputs(values=(), demanded=demanded), by_op, frozenset(by_op))
    live = {nodes[name].admission for name in firing}
    return tuple(gate for gate in gates if gate.op in live)


def find_outputs(spec: GraphSpec, mode: Mode, nodes: Mapping[str, Instruction]) -> Outputs:
    """Return the values a step of a mode returns.

    Without `outputs:`: the metrics and, in train mode, the losses; a loss that feeds an update does not fire for being
    returned, so it is missing in the steps in which nothing else needs it.
    """
    producers = find_producers(nodes.values())
    if spec.outputs is not None:
        written = tuple(value for value in spec.outputs if value in producers or value in spec.state)
        metrics = (name for name, op in spec.ops.items() if isinstance(op, MetricOp) and name in nodes)
        measured = tuple(value for name in metrics for value in spec.ops[name].defines(name))
        made = (value for value in written if value in producers)
        return Outputs(values=written, demanded=tuple(dict.fromkeys((*made, *measured))))
    fed = _find_fed(nodes, producers)
    values: list[str] = []
    demanded: list[str] = []
    for name, op in spec.ops.items():
        if name in nodes and (isinstance(op, MetricOp) or (mode == "train" and isinstance(op, LossOp))):
            values.extend(op.defines(name))
            demanded.extend(() if isinstance(op, LossOp) and name in fed else op.defines(name))
    return Outputs(values=tuple(values), demanded=tuple(demanded))


def find_firing(
    nodes: Mapping[str, Instruction], outputs: Outputs, gates: Mapping[str, Gate], fired: frozenset[str]
) -> frozenset[str]:
    """Return the ids of the nodes that run when exactly the gated ops ``fired`` are admitted."""
    producers = find_producers(nodes.values())
    consumed = {use.value for node in nodes.values() for use in node.uses}
    admitted = {name for name, node in nodes.items() if node.admission not in gates or node.admission in fired}
    absent = find_absent(nodes, gates.keys() - fired)
    roots = [producers[value] for value in outputs.demanded if producers[value] not in absent]
    for name in admitted:
        node = nodes[name]
        if node.eager or (node.writes and not consumed.intersection(node.provides)):
            roots.append(name)
    firing = reach(roots, nodes, producers, absent | find_idle_writes(nodes, gates.keys() - fired))
    returned = (producers[value] for value in outputs.values if value in producers)
    return firing | {
        name for name in returned if nodes[name].is_opportunistic and _is_there(nodes[name], producers, firing)
    }


def _is_there(node: Instruction, producers: Mapping[str, str], firing: frozenset[str]) -> bool:
    """Return whether all operands of a node are defined."""
    return all(producers[use.value] in firing for use in node.uses if use.value in producers)


def find_absent_problems(
    spec: GraphSpec,
    nodes: Mapping[str, Instruction],
    gates: Mapping[str, Gate],
    fired: frozenset[str],
    firing: frozenset[str],
) -> Iterator[Diagnostic]:
    """Yield E-ABSENT for every value that is used in a step in which its op does not fire."""
    absent = find_absent(nodes, gates.keys() - fired)
    for name in nodes:
        node = nodes[name]
        if name in firing and name in absent:
            users = [user.op for user in nodes.values() if user.id in firing and _uses_any(user, node)]
            if users:
                yield Diagnostic(
                    code="E-ABSENT",
                    message=f"'{users[0]}' uses '{node.op}' in steps in which '{node.op}' does not fire",
                    span=span_of(spec, node.op, "every"),
                    label="this op skips steps",
                    help=f"put the clock on the update that needs it, or give '{users[0]}' the same one as '{node.op}'",
                )


def _uses_any(user: Instruction, node: Instruction) -> bool:
    """Return whether a node uses a value of another."""
    return any(use.value in node.provides and not use.optional for use in user.uses)


def reach(
    roots: list[str], nodes: Mapping[str, Instruction], producers: Mapping[str, str], absent: Container[str] = ()
) -> frozenset[str]:
    """Return the roots and everything their values are made from; what is absent is left out where it may be."""
    reached: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name in reached:
            continue
        reached.add(name)
        made = ((producers[use.value], use.optional) for use in nodes[name].uses if use.value in producers)
        pending.extend(maker for maker, is_optional in made if not (is_optional and maker in absent))
    return frozenset(reached)


def _find_fed(nodes: Mapping[str, Instruction], producers: Mapping[str, str]) -> frozenset[str]:
    """Return the ops whose values some update of the mode depends on."""
    writes = [name for name, node in nodes.items() if is_update(node)]
    return frozenset(nodes[name].op for name in reach(writes, nodes, producers))


def _gates(
    spec: GraphSpec,
    node: Instruction,
    nodes: Mapping[str, Instruction],
    ungated: frozenset[str],
    restricted: Restricted,
) -> Iterator[Gate]:
    """Yield the gate of one op, if it has one; of an update that accumulates, that of its gradients and its own."""
    gate, op = _gate(spec, node, nodes, ungated, restricted.get(node.op, ())), spec.ops[node.op]
    if not isinstance(op, UpdateOp) or op.window == 1:
        yield from () if gate is None else (gate,)
        return
    gathered = window_of(node.op)
    yield from () if gate is None else (replace(gate, op=gathered),)
    yield Gate(op=node.op, clock="writes", every=op.window, follows=((gathered,),))
    if op.at_epoch_end == "drop":
        yield Gate(op=drop_of(node.op), clock="epochs")


def _gate(
    spec: GraphSpec,
    node: Instruction,
    nodes: Mapping[str, Instruction],
    ungated: frozenset[str],
    datasets: tuple[str, ...],
) -> Gate | None:
    """Return the gate of one op, given the ops of the mode without a gate so far; None where it fires in every step.

    A value on demand needs none for its data sets: nothing requests it on others.
    """
    op = spec.ops[node.op]
    start, until = _steps(op.start), _steps(op.until)
    follows = _follows(op, node, nodes)
    every = op.every if isinstance(op.every, int) else 1
    is_free = all(not ungated.isdisjoint(group) for group in follows) and not (datasets and node.eager)
    if every == 1 and start is None and until is None and is_free and not _is_watched(op):
        return None
    is_counted = bool(follows) or (bool(datasets) and every > 1)
    gate = Gate(op=node.op, every=every, start=start, until=until, datasets=datasets)
    return replace(gate, clock="writes", follows=follows) if is_counted else gate


def _is_watched(op: Op) -> bool:
    """Return whether it matters elsewhere that an op has fired: an average that stands in for its model since then."""
    return isinstance(op, EmaOp) and op.use.eval == "swap"


def _follows(op: Op, node: Instruction, nodes: Mapping[str, Instruction]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of ops a node can only fire with: its `every:` update, the writers of an average's source."""
    groups: list[tuple[str, ...]] = []
    if isinstance(op.every, str):
        groups.append((op.every,))
    if node.follows:
        writers = (other for other in nodes.values() if other.eager and other.id != node.id)
        groups.append(tuple(other.op for other in writers if any(write.cell in node.follows for write in other.writes)))
    return tuple(groups)


def _steps(duration: Duration | None) -> int | None:
    """Return a duration in steps."""
    return None if duration is None else int(duration.count)


def find_holdable(nodes: Mapping[str, Instruction]) -> frozenset[str]:
    """Return the ops whose writes take place only under verdicts in some step, and those of all that follows these."""
    writers = find_writers(nodes.values())
    held = {node.op for node in nodes.values() if node.verdict and node.overflow != "apply" and node.id == node.op}
    before = -1
    while before < len(held):
        before = len(held)
        followers = [node for node in nodes.values() if node.eager and _goes_with(node, held, nodes, writers)]
        held |= {name for node in followers for name in (node.op, node.admission)}
    return frozenset(held)


def _goes_with(
    node: Instruction, held: set[str], nodes: Mapping[str, Instruction], writers: Mapping[Cell, tuple[str, ...]]
) -> bool:
    """Return whether a write is paced by a write that may be skipped, or by what such a write writes."""
    sources = (nodes[name] for cell in node.follows for name in writers.get(cell, ()) if name != node.id)
    return node.paced in held or any(source.eager and source.op in held for source in sources)


def find_undecided(gates: Sequence[Gate], holdable: Iterable[str]) -> frozenset[str]:
    """Return the gates whose firing no clock determines: they count writes that may be skipped, or undecided gates."""
    held, undecided, firing = frozenset(holdable), set[str](), set[str]()
    for gate in gates:
        followed = {op for group in gate.follows for op in group}
        if gate.every > 1 and followed & (held | firing):
            undecided.add(gate.op)
        if gate.op in undecided or followed & firing:
            firing.add(gate.op)
    return frozenset(undecided)
