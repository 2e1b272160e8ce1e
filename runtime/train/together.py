"""Runs that several processes take together: what they need to begin, and what must be equal among them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from graphspec.declare.data import TrainingSets
from graphspec.declare.graph import GraphSpec
from runtime.data import AnyFeed
from runtime.data.arrays import Array
from runtime.data.place import Place
from runtime.data.share import Share
from runtime.data.source import Sampled, Stored
from runtime.problems import problem
from runtime.processes import Alone, Processes, compare
from runtime.registry import find_backend
from runtime.step import Step


def require_parallel(spec: GraphSpec, count: int) -> None:
    """Raise SpecError (GS257) where a spec does not say how several processes share its steps."""
    if not spec.is_replicated:
        message = f"{count} processes are to train {spec.name!r}, and it does not say how they share a step"
        help = "add `parallel: {kind: replicated}` to the spec, or start one process"
        raise problem("GS257", message, span=spec.span("parallel"), help=help, texts=spec.texts())


def require_replicated(spec: GraphSpec, count: int, *, is_debugging: bool) -> None:
    """Raise SpecError (GS257) where several processes cannot take a run of a spec together."""
    require_parallel(spec, count)
    message = help = ""
    if spec.parallel is not None and spec.parallel.buffers == "local":
        message = "with `buffers: local` every process has other statistics, and a checkpoint holds one of them"
        help = "write `buffers: rank0` or `buffers: mean`"
    elif is_debugging:
        message = "`--debug nan` and `--replay` work with one process"
        help = "start one: it takes the same steps"
    if message:
        raise problem("GS257", message, span=spec.span("parallel"), help=help, texts=spec.texts())


def require_rows(spec: GraphSpec, count: int) -> None:
    """Raise SpecError (GS227) where a batch of `data.train` has too few rows for so many processes to share."""
    declared = spec.data.get("train")
    for name in declared.sets if isinstance(declared, TrainingSets) else (None,):
        source = spec.source("train", name)
        if source is not None:
            Share(count=count).bounds(source.batch, Place(spec=spec, role="train", dataset=name))


def require_others(spec: GraphSpec) -> None:
    """Raise SpecError (GS257) where gradients are to be compressed that one process does not send."""
    kind = "none" if spec.parallel is None else spec.parallel.compress.kind
    if kind != "none":
        message = f"one process sends no gradients that `compress: {kind}` could shorten"
        help = "start several, as by `--nproc 2`, or leave `compress` out"
        raise problem("GS257", message, span=spec.span("parallel", "compress"), help=help, texts=spec.texts())


def join(spec: GraphSpec, backend: str, device: str, *, is_debugging: bool) -> Processes:
    """Return the processes that a launcher has started for a run, after meeting them; alone without one.

    Raises SpecError (GS257) where they cannot take the run together, or cannot reach each other.
    """
    count = find_backend(backend).count_started()
    if count == 1:
        require_others(spec)
        return Alone()
    require_replicated(spec, count, is_debugging=is_debugging)
    assert spec.parallel is not None
    return find_backend(backend).join(spec.parallel.timeout, device)


def digest(*contents: bytes | memoryview) -> str:
    """Return a short digest of some contents."""
    found = hashlib.sha256()
    for content in contents:
        found.update(content)
    return found.hexdigest()[:16]


def digest_arrays(arrays: Mapping[str, Array]) -> str:
    """Return a digest of arrays with their names, types and shapes."""
    found: list[bytes | memoryview] = []
    for name, array in arrays.items():
        found += [f"{name} {array.dtype} {array.shape} ".encode(), np.ascontiguousarray(array).data.cast("B")]
    return digest(*found)


def digest_data(feed: AnyFeed) -> str:
    """Return a digest of the data of a feed: of stored arrays all, of others how many samples or batches there are."""
    found: list[str] = []
    for part in feed.parts:
        batches = part.batches
        found.append(f"{batches.kind} {batches.size} {batches.length}")
        if isinstance(batches, Sampled) and isinstance(batches.samples, Stored):
            found.append(digest_arrays(batches.samples.arrays))
    return digest(*(each.encode() for each in found))


def compare_tensors(step: Step, processes: Processes, made: int) -> None:
    """Raise SpecError (GS258) where a tensor differs between processes after so many steps."""
    compare(
        processes,
        lambda: {name: digest_arrays({name: step.numpy(each)}) for name, each in step.tensors().items()},
        when=f"after step {made} ",
        help="look for code that acts by rank, time or numbers of its own; `compare_every: 1` finds the step",
    )
