"""Which averages and copies are one op in the iterations of a `repeat`, so that they have one count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CopyOp, EmaOp
from graphspec.declare.parts import Part


@once_per_spec
def find_repeated(spec: GraphSpec) -> Mapping[str, tuple[str, ...]]:
    """Return, by average or copy in an iteration, the ops that it is in all iterations, in their order."""
    groups: dict[str, list[str]] = {}
    for name, op in spec.ops.items():
        if isinstance(op, EmaOp | CopyOp) and any(part.repeat is not None for part in op.within):
            groups.setdefault(name_apart(name, op.within), []).append(name)
    ordered = {
        written: tuple(sorted(names, key=lambda name: [part.number for part in spec.ops[name].within]))
        for written, names in groups.items()
    }
    return {name: names for names in ordered.values() for name in names}


def name_apart(name: str, within: Sequence[Part]) -> str:
    """Return the name of an op without the numbers of its iterations.

    >>> parts = [Part(repeat="critic", number=2, count=3), Part(repeat="critic.2.inner", number=1, count=2)]
    >>> name_apart("critic.2.inner.1.follow", parts)
    'critic.inner.follow'
    """
    for part in reversed([each for each in within if each.repeat is not None]):
        name = part.of + name.removeprefix(part.name)
    return name
