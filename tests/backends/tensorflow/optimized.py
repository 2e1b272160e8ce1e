"""The graph of a step as TensorFlow runs it, behind its own optimization."""

from __future__ import annotations

import itertools
import sys
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from tests.suite.graphs import rewriting

Nodes = Mapping[str, Any]
"""Nodes by name."""
WRITES = ("Assign", "ResourceApply", "ResourceScatter")
"""How the names of operations begin that write variables."""
READS = ("ReadVariableOp", "ResourceGather")


def optimized(source: str, batch: Mapping[str, np.ndarray]) -> Nodes:
    """Return the nodes of the graph that an emitted file runs for a batch."""
    module = types.ModuleType("emitted_and_optimized")
    sys.modules[module.__name__] = module
    exec(source, vars(module))
    module.build(seed=0)
    tensors = {name: tf.constant(value, tf.float32) for name, value in batch.items()}
    context.enable_run_metadata()
    try:
        context.export_run_metadata()  # forget the graphs of what ran before: once enabled, TensorFlow keeps them all
        with rewriting():
            module.step(tensors)
        graphs = context.export_run_metadata().function_graphs
    finally:
        context.disable_run_metadata()
    found = [{node.name: node for node in graph.post_optimization_graph.node} for graph in graphs]
    return max(found, key=lambda each: sum(node.op.startswith(WRITES) for node in each.values()))


def bare(name: str) -> str:
    """Return the node of an input."""
    return name.removeprefix("^").partition(":")[0]


def find_unordered(nodes: Nodes) -> Iterator[tuple[str, str]]:
    """Yield reads and writes of one variable, and two writes of it, of which either may come first."""
    before: dict[str, int] = {}
    places = {name: 1 << place for place, name in enumerate(nodes)}
    for name in _sorted(nodes):
        above = (bare(each) for each in nodes[name].input)
        before[name] = reduce(int.__or__, (places[each] | before[each] for each in above), 0)
    touched: dict[str, list[str]] = defaultdict(list)
    for name, node in nodes.items():
        if node.op.startswith((*WRITES, *READS)):
            touched[_find_variable(nodes, name)].append(name)
    for pair in itertools.chain.from_iterable(itertools.combinations(each, 2) for each in touched.values()):
        one, other = pair
        is_written = any(nodes[name].op.startswith(WRITES) for name in pair)
        if is_written and not (before[one] & places[other] or before[other] & places[one]):
            yield pair


def _sorted(nodes: Nodes) -> Iterator[str]:
    """Yield nodes behind what they are made from."""
    seen = set[str]()
    for root in nodes:
        pending = [root]
        while pending:
            name = pending[-1]
            above = [each for each in map(bare, nodes[name].input) if each not in seen]
            if above and name not in seen:
                pending.extend(above)
                continue
            pending.pop()
            if name not in seen:
                seen.add(name)
                yield name


def _find_variable(nodes: Nodes, name: str) -> str:
    """Return the argument of the graph that a read or a write is about."""
    while nodes[name].op != "_Arg":
        name = bare(nodes[name].input[0])
    return name
