"""Which ops fire: the gates of a mode, and, for each pattern of gates, the nodes that run.

An op fires iff it is an output or metric, or one of its consumers fires, or it is a write that its mode and gates
admit, or it has no consumer at all and writes buffers.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.cell import Cell
from compiler.ir.diagnose import span_of
from compiler.ir.instructions import Instruction
from compiler.ir.program import Gate, Mode, back_of, drop_of, window_of
from compiler.ir.step_graph import find_producers
from compiler.passes.order import find_sources, find_writers
from compiler.passes.presence import find_absent, find_idle_writes
from compiler.passes.schedule import is_update
from graphspec.analysis.iterations import find_repeated
from graphspec.analysis.scope import find_expression, list_reported
from graphspec.declare.durations import Duration, Unit
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import EmaOp, MetricOp, UpdateOp
from graphspec.declare.parts import Part, find_gate
from graphspec.diagnostics import Diagnostic


class Outputs(Struct, frozen=True, kw_only=True):
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
    for node in nodes.values():
        outer = None
        for part in node.within:
            if part.is_gated:  # there are steps without it
                gates[part.name] = _gate_part(part, outer)
                outer = part
    present = frozenset(node.admission for node in nodes.values())
    ops, writers = [node for node in nodes.values() if node.id == node.op], find_writers(nodes.values())
    while True:  # a gate may make the gate of what follows it
        ungated = present - gates.keys()
        every: list[Gate] = []
        for node in ops:
            gate, op = _gate(spec, node, nodes, writers, ungated, restricted.get(node.op, ())), spec.ops[node.op]
            own = [] if gate is None else [gate]
            if isinstance(op, UpdateOp) and op.window > 1:  # one gate for its gradients, and one of its own
                window = window_of(node.op)
                own = [replace(each, op=window) for each in own]
                own.append(Gate(op=node.op, clock="writes", every=op.window, follows=((window,),)))
                if op.at_epoch_end == "drop":
                    own.append(Gate(op=drop_of(node.op), clock="epochs"))
            if isinstance(op, EmaOp) and op.use.write_back is not None:
                own.append(_gate_back(node, op, op.use.write_back.every, _find_source_writes(node, nodes, writers)))
            every.extend(own)
        found = {gate.op: gate for gate in every if gate.op not in gates}
        if not found:
            return tuple(gates.values())
        gates.update(found)


def find_live_gates(
    spec: GraphSpec, nodes: Mapping[str, Instruction], demanded: tuple[str, ...], restricted: Restricted = EVERYWHERE
) -> tuple[Gate, ...]:
    """Return the gates of ops that fire at all; others would only multiply the functions."""
    gates = find_gates(spec, nodes, restricted)
    by_op = {gate.op: gate for gate in gates}
    firing = find_firing(nodes, Outputs(values=(), demanded=demanded), by_op, frozenset(by_op))
    live: set[str] = set()
    for name in firing:
        live.add(nodes[name].admission)
        live.update(part.name for part in nodes[name].within)
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
    updates = [name for name, node in nodes.items() if is_update(node)]
    fed = {nodes[name].op for name in reach(updates, nodes, producers)}
    values: list[str] = []
    demanded: list[str] = []
    for name in list_reported(spec):
        op = spec.ops[name]
        is_metric = isinstance(op, MetricOp)
        if name in nodes and (is_metric or mode == "train"):
            values.extend(op.defines(name))
            demanded.extend(() if not is_metric and name in fed else op.defines(name))
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
        if node.is_write or (node.writes and not consumed.intersection(node.provides)):
            roots.append(name)
    firing = reach(roots, nodes, producers, absent | find_idle_writes(nodes, gates.keys() - fired))
    found = set(firing)
    for value in outputs.values:
        node = nodes.get(producers.get(value, ""))
        if node is None or not node.return_if_available:
            continue
        if firing.issuperset(producers[use.value] for use in node.uses if use.value in producers):
            found.add(node.id)
    return frozenset(found)


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
            users = [
                user.op
                for user in nodes.values()
                if user.id in firing and any(use.value in node.provides and not use.optional for use in user.uses)
            ]
            if users:
                whole = find_expression(spec.ops.get(users[0]))
                user = whole or users[0]
                help = f"put the clock on the update that needs it, or give '{user}' the same one as '{node.op}'"
                if whole is not None:
                    term = f"a lazy term is '{node.op}' itself in a sum, and its factor is its `weight`"
                    help = f"put the clock on the update that needs it; {term}"
                if spec.ops[node.op].kind == "call":
                    help += (
                        "; for a term of a loss that is left out in other steps, write a `loss` op with `every`: "
                        "`loss: wasserstein` is the mean of what it is given"
                    )
                yield Diagnostic(
                    code="E-ABSENT",
                    message=f"'{user}' uses '{node.op}' in steps in which '{node.op}' does not fire",
                    span=span_of(spec, node.op, "every"),
                    label="this op skips steps",
                    help=help,
                )


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
        for use in nodes[name].uses:
            maker = producers.get(use.value)
            if maker is not None and not (use.optional and maker in absent):
                pending.append(maker)
    return frozenset(reached)


def _gate(
    spec: GraphSpec,
    node: Instruction,
    nodes: Mapping[str, Instruction],
    writers: Mapping[Cell, tuple[str, ...]],
    ungated: frozenset[str],
    datasets: tuple[str, ...],
) -> Gate | None:
    """Return the gate of one op, given the ops of the mode without a gate so far; None where it fires in every step.

    A value on demand needs none for its data sets: nothing requests it on others.
    """
    op = spec.ops[node.op]
    groups: list[tuple[str, ...]] = []  # it fires with an op of each: its `every:` update, writers of what it averages
    if isinstance(op.every, str):
        groups.append((op.every,))
    if node.follows:
        groups.append(_find_source_writes(node, nodes, writers))
    part = find_gate(node.within)
    follows = (*groups, *([] if part is None else [(part.name,)]))
    every = op.every if isinstance(op.every, int) else 1
    is_free = all(not ungated.isdisjoint(group) for group in follows) and not (datasets and node.is_write)
    # whether it has fired matters elsewhere: from then on an average stands in for its model, or keeps another share
    is_watched = isinstance(op, EmaOp) and (op.use.eval == "swap" or op.is_counted)
    if every == 1 and op.opens is None and op.until is None and is_free and not is_watched:
        return None
    start, until = _count(op.opens, "steps"), _count(op.until, "steps")
    first, last = _count(op.opens, "updates"), _count(op.until, "updates")
    gate = Gate(op=node.op, every=every, start=start, until=until, datasets=datasets)
    if first is not None or last is not None:  # an average counts the writes of its source, an update its own
        gate = replace(gate, first=first, last=last, counted=groups[-1] if node.follows else (node.op,))
    is_counted = bool(follows) or (bool(datasets) and every > 1)
    first_of_all = find_repeated(spec).get(node.op, (node.op,))[0] if node.within else node.op
    shared = first_of_all if first_of_all != node.op and every > 1 else ""
    return replace(gate, clock="writes", follows=follows, counts_with=shared) if is_counted else gate


def _gate_back(node: Instruction, op: EmaOp, every: int, counted: tuple[str, ...]) -> Gate:
    """Return the gate of a write-back: with the first firing since the start of its average, and every so many writes.

    ``every``: after how many writes of the source; ``counted``: the ops of these writes.
    """
    first = _count(op.start, "updates")
    return Gate(
        op=back_of(node.op),
        clock="writes",
        every=every // op.wait,
        start=_count(op.start, "steps"),
        follows=((node.op,),),
        first=first,
        counted=() if first is None else counted,
    )


def _find_source_writes(
    node: Instruction, nodes: Mapping[str, Instruction], writers: Mapping[Cell, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the ops whose writes an average or copy follows."""
    found: dict[str, None] = {}
    for _, name in find_sources(node, nodes, writers):
        if nodes[name].is_write:
            found[nodes[name].admission] = None
    return tuple(found)


def _gate_part(part: Part, outer: Part | None) -> Gate:
    """Return the gate of an iteration or alternative."""
    gate = Gate(op=part.name, start=part.start, until=part.until)
    if part.low is not None and part.high is not None:
        gate = replace(gate, draw=part.of, low=part.low, high=part.high)
    return gate if outer is None else replace(gate, clock="writes", follows=((outer.name,),))


def _count(duration: Duration | None, unit: Unit) -> int | None:
    """Return the count of a duration in a unit; None for another one."""
    return int(duration.count) if duration is not None and duration.unit == unit else None


def find_undecided(gates: Sequence[Gate], holdable: Iterable[str]) -> frozenset[str]:
    """Return the gates whose firing no clock determines.

    They count writes that may be skipped, start or end after a number of updates that only the run counts, or count
    what follows such a gate.
    """
    held, undecided, firing = frozenset(holdable), set[str](), set[str]()
    for gate in gates:
        followed = {op for group in gate.follows for op in group}
        if gate.is_counted or (gate.every > 1 and followed & (held | firing)):
            undecided.add(gate.op)
        if gate.op in undecided or followed & firing:
            firing.add(gate.op)
    counters = {gate.counter for gate in gates if gate.op in undecided}
    return frozenset(gate.op for gate in gates if gate.counter in counters)
