"""Derived models: which there are, and whose weights each begins with."""

from __future__ import annotations

from collections.abc import Mapping

from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import AdaptOp


@once_per_spec
def find_derived(spec: GraphSpec) -> Mapping[str, str]:
    """Return, for every derived model, the model at the end of its chain; those that go round in a circle are left out.

    >>> from graphspec import load
    >>> find_derived(load("examples/maml/maml.yaml"))
    {'fast': 'net'}
    """
    following = {name: op.adapt for name, op in spec.ops.items() if isinstance(op, AdaptOp)}
    found: dict[str, str] = {}
    for name in following:
        way: dict[str, None] = {}
        model = name
        while model in following and model not in way:
            way[model] = None
            model = following[model]
        if model not in following:
            found[name] = model
    return found
