"""What of a document runs in a mode, and the graph of the ops of it that fire together."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from compiler.ir.instructions import Instruction, RestoreAccumulator
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.program import Gate, Mode
from compiler.ir.step_graph import StepGraph
from compiler.lower.regularization import penalize_once
from compiler.passes.activate import Outputs
from compiler.passes.commits import Conditions
from compiler.passes.order import find_data_ordering, restrict_ordering
from compiler.passes.presence import drop_absent
from graphspec.analysis.modes import Reach


def runs_in(mode: Mode, node: Instruction, reaches: Mapping[str, Reach]) -> bool:
    """Return whether a node can run in a mode: its op, and the op by whose gate it is admitted."""
    return all(mode in reaches[op].modes for op in {node.op, node.admission} & reaches.keys())


def select_graph(
    whole: ModeGraph,
    mode: Mode,
    firing: frozenset[str],
    fired: frozenset[str],
    gates: tuple[Gate, ...],
    outputs: Outputs,
) -> StepGraph:
    """Return the graph of the nodes that fire; what stands between them stays in the closure."""
    present = set[str]().union(*(whole.nodes[name].provides for name in firing))
    nodes = {name: drop_absent(node, present) for name, node in whole.nodes.items() if name in firing}
    graph = StepGraph(
        mode=mode,
        active=tuple(name for name, node in nodes.items() if node.is_write and name == node.op),
        gated=tuple(gate.op for gate in gates if gate.op in fired),
        outputs=outputs.values,
        nodes=nodes,
        states=frozenset(whole.spec.state),
        scaled=whole.spec.loss_scale is not None,
        checked=any(node.verdict for node in whole.nodes.values()),
        causality=whole.causality,
    )
    conditions = Conditions.of(graph)
    nodes = penalize_once(nodes, whole.causality, conditions)
    nodes = {name: node for name, node in nodes.items() if not _is_idle(node, conditions)}
    changed = {name: node for name, node in nodes.items() if node.penalizes is not None or name not in whole.nodes}
    ordering = dict.fromkeys(
        (*restrict_ordering(whole.ordering, nodes, whole.causality), *find_data_ordering(nodes, changed))
    )
    return replace(graph, nodes=nodes, ordering=tuple(ordering))


def _is_idle(node: Instruction, conditions: Conditions) -> bool:
    """Return whether a node restores a window that every step may change."""
    return isinstance(node, RestoreAccumulator) and not conditions.find(node.id)
