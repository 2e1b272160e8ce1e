"""Data sets: which there are, and on the batches of which of them an op can run, given where what it reads is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from graphspec.analysis.modes import find_producers, find_reaches
from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.data import TrainingSets
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import MODES, ModeName

UNNAMED = ""
"""The data set of a batch that names none; where ops name data sets, every batch in train mode names one."""


def find_declared(spec: GraphSpec) -> tuple[str, ...]:
    """Return the training sets that take turns; none where there is one set, or none."""
    train = spec.data.get("train")
    return tuple(train.sets) if isinstance(train, TrainingSets) else ()


@once_per_spec
def find_mentioned(spec: GraphSpec) -> tuple[str, ...]:
    """Return the data sets that ops name, in the order of the document."""
    words = (word.removeprefix("!") for op in spec.ops.values() for word in op.dataset or ())
    return tuple(dict.fromkeys(words))


def find_datasets(spec: GraphSpec) -> tuple[str, ...]:
    """Return the data sets that ops distinguish: the training sets, or those that ops name; () if ops name none."""
    mentioned = find_mentioned(spec)
    return (find_declared(spec) or mentioned) if mentioned else ()


def find_possible(spec: GraphSpec, mode: str) -> tuple[str, ...]:
    """Return the data sets that a batch of a mode may be of; only where a mode does not train it may be of none."""
    datasets = find_datasets(spec)
    return datasets if mode == "train" and datasets else (UNNAMED, *datasets)


@once_per_spec
def find_places(spec: GraphSpec) -> Mapping[str, frozenset[str]]:
    """Return the data sets, ``UNNAMED`` among them, that every op of a spec can run on.

    An op that does not say so runs where all that it reads is made; one that does runs where it says.
    """
    ops, possible = spec.ops, frozenset((UNNAMED, *find_datasets(spec)))
    found = {name: frozenset(filter(op.runs_on, possible)) for name, op in ops.items()}
    producers = find_producers(spec)
    waiting = list(ops)
    consumers: dict[str, list[str]] = {name: [] for name in ops}
    for name, sources in producers.items():
        for source in sources:
            consumers[source].append(name)
    while waiting:
        source = waiting.pop()
        for name in consumers[source]:
            if ops[name].dataset is None and not found[name] <= found[source]:
                found[name] &= found[source]
                waiting.append(name)
    return found


def find_inputs(spec: GraphSpec, dataset: str | None, modes: Collection[ModeName] = MODES) -> tuple[str, ...]:
    """Return the inputs that batches of a data set must have in some modes.

    These are the inputs that no op reads, and those that some op reads which runs on the data set in such a mode.
    """
    dataset = dataset or UNNAMED
    places, reaches = find_places(spec), find_reaches(spec)
    readers: dict[str, list[str]] = {name: [] for name in spec.inputs}
    for name, op in spec.ops.items():
        for reference in op.operands():
            readers.get(reference.name, []).append(name)
    asking = {name for name in spec.ops if dataset in places[name] and not reaches[name].modes.isdisjoint(modes)}
    return tuple(name for name, users in readers.items() if not users or not asking.isdisjoint(users))


def join_batches(batches: Sequence[Mapping[str, object]], spec: GraphSpec) -> object:
    """Return the batches of a step as one: the tensors of earlier ones under the names of their own inputs.

    Where a step takes another number of batches, they are returned as they are.
    """
    if len(batches) != spec.batches:
        return batches
    earlier = {name: (each.of, each.batch) for name, each in spec.inputs.items()}
    found = {name: batches[at - 1].get(of) for name, (of, at) in earlier.items() if of is not None and at is not None}
    return {**batches[-1], **{name: each for name, each in found.items() if each is not None}}
