"""Rules on data sets: ops name sets that there are, and read nothing that is not made on the same batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphspec.analysis.datasets import UNNAMED, find_datasets, find_declared, find_places
from graphspec.analysis.scope import Scope
from graphspec.declare.ops import Op, RandomOp
from graphspec.diagnostics import Diagnostic
from graphspec.suggestions import closest
from graphspec.words import enumerate_names


def check_datasets(scope: Scope) -> Iterator[Diagnostic]:
    """Check that every data set that an op or the evaluation names is one of the training sets, where there are any."""
    spec, declared = scope.spec, find_declared(scope.spec)
    if scope.blind or "train" not in spec.data:
        return
    for name, op in scope.sound_ops():
        for index, word in enumerate(op.dataset or ()):
            if word.removeprefix("!") not in declared:
                field = f"`dataset` of op '{name}'"
                yield _miss(scope, field, word.removeprefix("!"), ("ops", name, "dataset", index), declared)
    evaluated = None if spec.run.eval is None else spec.run.eval.dataset
    if evaluated is not None and evaluated not in declared:
        yield _miss(scope, "`run.eval`", evaluated, ("run", "eval", "dataset"), declared)


def check_meetings(scope: Scope) -> Iterator[Diagnostic]:
    """Refuse an op that runs on batches on which a value it reads is not made."""
    ops, datasets = scope.spec.ops, find_datasets(scope.spec)
    places = find_places(ops, datasets)
    owners = {value: name for name, op in ops.items() for value in op.defines(name)}
    for name, op in scope.sound_ops() if datasets else ():
        if op.dataset is None and not places[name]:
            yield from _check_free(scope, name, op, owners, places)
        for reference in op.operands() if op.dataset is not None else ():
            source = owners.get(reference.name, name)
            missing = [each or "none" for each in (*datasets, UNNAMED) if each in places[name] - places[source]]
            if missing and places[source]:
                message = (
                    f"op '{name}' runs on batches of {enumerate_names(missing)}, where '{reference.name}' is not made"
                )
                note = f"'{reference.name}' is made on batches of {_format_places(places[source], datasets)}"
                path = ("ops", name, *reference.path)
                yield scope.report(
                    "GS132", message, path, notes=(note,), help=f"change `dataset` of '{source}' or '{name}'"
                )


def _check_free(
    scope: Scope, name: str, op: Op, owners: Mapping[str, str], places: Mapping[str, frozenset[str]]
) -> Iterator[Diagnostic]:
    """Report an op that reads values which are never made of one batch, where it is the first to do so."""
    sources = dict.fromkeys(owners[reference.name] for reference in op.operands() if reference.name in owners)
    if all(places[source] for source in sources):
        notes = tuple(
            f"'{each}' runs on batches of {_format_places(places[each], find_datasets(scope.spec))}" for each in sources
        )
        message = f"op '{name}' runs on no data set: the values it reads are never made of one batch"
        help = "write one op for each data set: an update of each loss, in place of one of their sum"
        yield scope.report("GS132", message, ("ops", name), key=True, notes=notes, help=help)


def _miss(scope: Scope, field: str, name: str, path: tuple[str | int, ...], declared: tuple[str, ...]) -> Diagnostic:
    """Return the problem of a data set that is none of the training sets."""
    near = closest(name, declared, 1)
    has = f"has {enumerate_names(declared)}" if declared else "is one set without a name"
    return scope.report(
        "GS131",
        f"{field} names the data set '{name}', but `data.train` {has}",
        path,
        label=f"did you mean '{near[0]}'?" if near else "",
        help="declare it under `data`, as in `train: {ds1: {source: ...}, ds2: {source: ...}}`, or fix the name",
    )


def _format_places(places: frozenset[str], datasets: tuple[str, ...]) -> str:
    """Return data sets in words."""
    return enumerate_names(each or "no data set" for each in (*datasets, UNNAMED) if each in places) or "none"


def check_dimensions(scope: Scope) -> Iterator[Diagnostic]:
    """Refuse a named size that no input gives; inputs without a shape may give the batch."""
    inputs = scope.spec.inputs.values()
    known = dict.fromkeys(size for spec in inputs for size in spec.shape or () if isinstance(size, str))
    if any(spec.shape is None for spec in inputs) or scope.blind:
        known["batch"] = None
    for name, op in scope.sound_ops():
        if isinstance(op, RandomOp):
            yield from _check_shape(scope, name, op, tuple(known))


def _check_shape(scope: Scope, name: str, op: RandomOp, known: tuple[str, ...]) -> Iterator[Diagnostic]:
    for index, size in enumerate(op.shape or ()):
        if isinstance(size, str) and size not in known:
            near = closest(size, known, 1)
            message = f"`shape` of op '{name}' uses the size '{size}', which no input has"
            help = f"free sizes of the inputs: {', '.join(known)}" if known else "no input has a free size"
            label = f"did you mean '{near[0]}'?" if near else ""
            yield scope.report("GS121", message, ("ops", name, "shape", index), label=label, help=help)
    if op.random == "permutation" and op.shape is not None and len(op.shape) != 1:
        message = f"a permutation has one size, found {len(op.shape)}"
        yield scope.report("GS121", message, ("ops", name, "shape"), help="write `shape: [batch]`")
