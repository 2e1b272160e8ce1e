"""Rules on data: options that a source has, inputs that `columns` names, and what the bundled sets give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphspec.analysis.evaluation import find_batch_inputs, find_eval_dataset, find_role
from graphspec.analysis.scope import RuleContext
from graphspec.declare.data import DIGITS, DIGITS_ARGS, FILES, DataSource, TrainingSets, describe_digits, find_ink
from graphspec.declare.inputs import FLOATS
from graphspec.diagnostics import Diagnostic
from graphspec.read.source import Path
from graphspec.words import closest, did_you_mean, enumerate_names

_OWNERS: Mapping[str, tuple[str, ...]] = {"split": ("digits",), "path": FILES, "args": ("digits", "class")}
"""Options that not every source has -> the sources that have them."""


def check_sources(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check every set under `data` as far as it is known before anything is read or imported."""
    for role, declared in scope.spec.data.items():
        if isinstance(declared, TrainingSets):
            for name, source in declared.sets.items():
                yield from _check_source(scope, source, role, name, ("data", role, name))
        else:
            # Only an evaluation says of which data set the batches of another role are.
            dataset = find_eval_dataset(scope.spec) if role == find_role(scope.spec) else None
            yield from _check_source(scope, declared, role, dataset, ("data", role))


def _check_source(
    scope: RuleContext, source: DataSource, role: str, dataset: str | None, path: Path
) -> Iterator[Diagnostic]:
    """Check one set; ``dataset`` is the data set of its batches, and ``path`` where it is declared."""
    begin, kind = f"{'.'.join(map(str, path))}: ", "class" if source.class_path is not None else source.source
    for name, kinds in _OWNERS.items():
        if kind not in kinds and getattr(source, name):
            owners = " and ".join(f"`{owner}`" for owner in kinds)
            message = f"{begin}a source `{kind}` has no `{name}`; it belongs to {owners}"
            yield scope.report("GS229", message, (*path, name), key=True, help="remove it")
    inputs = scope.spec.inputs
    for name, column in source.columns.items():
        if name not in inputs and not scope.blind:
            message = f"{begin}`columns` names the input '{name}', which is not declared"
            label, help = did_you_mean(name, inputs), "name an input of the spec, or remove it"
            yield scope.report("GS223", message, (*path, "columns", name), key=True, label=label, help=help)
        elif kind not in FILES and not isinstance(column, str):
            message = f"{begin}a source `{kind}` gives each input as one array, found a list of {len(column)} columns"
            yield scope.report("GS229", message, (*path, "columns", name), help="name one array")
    if kind == "digits":
        wrong = tuple(_check_digits(scope, source, role, path, begin))
        yield from wrong
        # A wrong option may be why an array does not fit; which are needed is not known of what could not be read.
        if not wrong and not scope.broken and not scope.blind:
            yield from _check_arrays(scope, source, find_batch_inputs(scope.spec, role, dataset), path, begin)


def _check_digits(scope: RuleContext, source: DataSource, role: str, path: Path, begin: str) -> Iterator[Diagnostic]:
    """Check the options of the bundled digits, and that they fill a batch."""
    for name in source.args:
        if name not in DIGITS_ARGS:
            message, help = f"{begin}`digits` takes no argument '{name}'", f"it takes {enumerate_names(DIGITS_ARGS)}"
            place, label = (*path, "args", name), did_you_mean(name, DIGITS_ARGS)
            yield scope.report("GS229", message, place, key=True, label=label, help=help)
    flatten = source.args.get("flatten", False)
    if not isinstance(flatten, bool):
        message = f"{begin}`flatten` is true or false, found {flatten!r}"
        help = "`true` gives rows of 64 numbers, `false` images [1, 8, 8]"
        yield scope.report("GS229", message, (*path, "args", "flatten"), help=help)
    if find_ink(source) is None:
        message = f"{begin}`range` is two numbers, the smaller one first, found {source.args['range']!r}"
        help = "write the numbers of blank paper and of full ink, as in `range: [-1, 1]`"
        yield scope.report("GS229", message, (*path, "args", "range"), help=help)
    split = source.part(role)
    if split not in DIGITS:
        message, label = f"{begin}`split` is one of {', '.join(DIGITS)}, found '{split}'", did_you_mean(split, DIGITS)
        help = "leave it out: `data.train` is the training part, every other set the test part"
        yield scope.report("GS229", message, (*path, "split"), label=label, help=help)
    elif source.drops_last(role) and DIGITS[split] < source.batch:
        message = f"{begin}{DIGITS[split]} samples do not fill one batch of {source.batch}"
        help = "make `batch` smaller, or write `drop_last: false`"
        yield scope.report("GS227", message, (*path, "batch"), help=help)


def _check_arrays(
    scope: RuleContext, source: DataSource, needed: tuple[str, ...], path: Path, begin: str
) -> Iterator[Diagnostic]:
    """Check that the digits have an array for every input of their batches, of its shape and of a type that fits it.

    A type fits where the numbers are only rounded: digits are numbers from 0 to 9, and pixels are not whole.
    """
    arrays = describe_digits(source)
    for name in needed:
        column, declared = source.columns.get(name, name), scope.spec.inputs[name]
        if not isinstance(column, str):
            continue
        if column not in arrays:
            near = closest(column, arrays, 1)
            meant = f"; did you mean '{near[0]}'?" if near else ""
            message = f"{begin}the source has no '{column}' for the input '{name}'{meant}"
            notes, help = (f"it offers: {', '.join(arrays)}",), f"name it with `columns: {{{name}: ...}}`"
            yield scope.report("GS223", message, path, key=True, notes=notes, help=help)
            continue
        given, found, wanted = arrays[column], arrays[column].shape or (), declared.shape
        pairs = [*zip(wanted or (), found, strict=False)][1:]  # the first sizes count rows, and a name is a free size
        is_misfit = any(isinstance(size, int) and size != other for size, other in pairs)
        if wanted is not None and (is_misfit or len(wanted) != len(found)):
            shown = ", ".join(map(str, found))
            written = ", ".join(map(str, wanted))
            message = f"{begin}the source gives '{name}' as [{shown}], the spec declares [{written}]"
            help = f"write `shape: [{shown}]` for the input"
            help += ", or `args: {flatten: true}` here for rows of 64 numbers" if len(found) == 4 else ""
            yield scope.report("GS228", message, path, key=True, help=help)
        if declared.dtype == "bool" or (given.dtype in FLOATS and declared.dtype not in FLOATS):
            message = f"{begin}the source gives '{name}' as {given.dtype}, the spec declares {declared.dtype}"
            help = f"write `dtype: {given.dtype}` for the input"
            yield scope.report("GS228", message, path, key=True, help=help)
