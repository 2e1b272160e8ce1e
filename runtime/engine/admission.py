"""Admission of batches: checks the inputs of a step against their declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeGuard, cast, final

from msgspec import Struct

from compiler.ir.program import InputDecl, Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from graphspec.words import closest
from runtime.codegen.resources import find_inputs
from runtime.engine.backend import Engine, Signature

CODE = "GS209"


def find_needed(program: Program) -> Mapping[tuple[str, str], tuple[InputDecl, ...]]:
    """Return the inputs that functions read, by mode and data set; the empty name means no data set."""
    needed: dict[tuple[str, str], tuple[InputDecl, ...]] = {}
    for mode in program.modes:
        for dataset in dict.fromkeys(each for function in mode.functions for each in function.datasets or ("",)):
            chosen = [each for each in mode.functions if dataset in (each.datasets or ("",))]
            read = {entry.name for each in chosen for entry in find_inputs(program, each)}
            needed[mode.mode, dataset] = tuple(entry for entry in program.inputs if entry.name in read)
    return needed


def refuse_dataset(dataset: str | None, mode: str, program: Program) -> Diagnostic | None:
    """Return the problem of a batch whose data set is missing or unknown; None where there is none."""
    known = ", ".join(program.datasets)
    if dataset is None:
        is_needed = bool(program.datasets) and mode == "train"
        message = f"the spec distinguishes data sets ({known}), but the step was not given the one of this batch"
        help = f"`step(batch, dataset={program.datasets[0]!r})`" if program.datasets else ""
        return Diagnostic(code="GS281", message=message, help=help) if is_needed else None
    if dataset in program.datasets:
        return None
    near = closest(dataset, program.datasets)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    has = f"it has {known}" if known else "its ops name none"
    return Diagnostic(code="GS281", message=f"the spec has no data set {dataset!r}: {has}{meant}")


@final
class Intake(Struct, kw_only=True):
    """The inputs of a step of a mode on a data set; ``dataset`` is None where no op depends on it."""

    mode: str
    dataset: str | None
    inputs: tuple[InputDecl, ...]
    names: tuple[str, ...]
    admissions: tuple[tuple[str, Callable[[object], object]], ...]
    """For every input, what makes a tensor of it."""
    usual: tuple[object, ...] = ()
    """The fingerprints of the last inputs."""
    is_ready: bool = False
    """Whether these are used unchanged."""

    @classmethod
    def of(cls, mode: str, dataset: str | None, inputs: tuple[InputDecl, ...], engine: Engine) -> Intake:
        """Return the intake of a step that reads these inputs."""
        admissions = tuple((entry.name, engine.admission(entry)) for entry in inputs)
        names = tuple(entry.name for entry in inputs)
        return cls(mode=mode, dataset=dataset, inputs=inputs, names=names, admissions=admissions)


def is_batch(batch: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether a batch is a mapping; the check for a dictionary, the usual case, is much faster."""
    return type(batch) is dict or isinstance(batch, Mapping)


def refuse_batch(batch: object, names: tuple[str, ...], spec: GraphSpec) -> Diagnostic:
    """Return the problem of a batch that is not a mapping of inputs by name; ``names`` are the inputs of the step."""
    message = f"the batch is {type(batch).__name__}, expected a mapping from the names of inputs to arrays"
    if isinstance(batch, list) and any(spec.inputs[name].batch is not None for name in names):
        listed = cast("list[object]", batch)
        kinds = ", ".join(dict.fromkeys(type(each).__name__ for each in listed))
        found = f"{len(listed)} ({kinds})" if listed else "none"
        message = (
            f"a step takes {spec.batches} batches, each a mapping from the names of inputs to arrays; found {found}"
        )
        return Diagnostic(code=CODE, message=message, help="pass a list of them, as in `step([first, second])`")
    known = names or ("x",)
    help = f'pass a dictionary, as in `step({{"{known[0]}": array}})`'
    if isinstance(batch, (tuple, list)) and len(known) > 1:
        listed_names = ", ".join(f'"{name}"' for name in known)
        help = (
            f"pass a dictionary: `step(dict(zip([{listed_names}], batch)))`, with the names in the order of the batch"
        )
    return Diagnostic(code=CODE, message=message, help=help)


def check_batch(
    given: Mapping[str, Signature | None], declared: Mapping[InputDecl, tuple[str, ...]], spec: GraphSpec
) -> Iterator[Diagnostic]:
    """Yield a problem for every declared input that is missing, not an array, or of another rank, size or type.

    ``given`` holds shape and type by name, None for what is not an array; ``declared`` the types each input may have.
    Free sizes must agree between inputs.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for entry, dtypes in declared.items():
        for message, help in _check_input(entry, dtypes, given, sizes):
            span = spec.span("inputs", entry.name, key=True)
            yield Diagnostic(code=CODE, message=message, span=span, help=help)


def _check_input(
    entry: InputDecl,
    dtypes: tuple[str, ...],
    given: Mapping[str, Signature | None],
    sizes: dict[str, tuple[int, str]],
) -> Iterator[tuple[str, str]]:
    """Yield (message, help) for one input; ``sizes`` are the free sizes seen so far, and where."""
    if entry.name not in given:
        near = closest(entry.name, given)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        has = ", ".join(given) if given else "nothing"
        yield f"the batch has no input '{entry.name}'", f"it has {has}{meant}"
        return
    signature = given[entry.name]
    if signature is None:
        yield f"input '{entry.name}' is not an array or tensor", "pass a NumPy array or a tensor of the backend"
        return
    shape, dtype = signature
    if dtype not in dtypes:
        yield f"input '{entry.name}' has dtype {dtype}, expected {' or '.join(dtypes)}", f"convert it to {dtypes[0]}"
    if entry.shape is None:
        return
    name, declared = entry.name, entry.shape
    written = f"[{', '.join(map(str, declared))}]"
    if len(declared) != len(shape) or any(isinstance(e, int) and e != f for e, f in zip(declared, shape, strict=True)):
        yield f"input '{name}' has shape {list(shape)}, expected {written}", "change the batch or the declared shape"
        return
    for size, actual in zip(declared, shape, strict=True):
        if size == "batch" and actual == 0:
            yield f"input '{name}' has no samples: its shape is {list(shape)}", "leave out empty batches"
        if isinstance(size, str):
            first, where = sizes.setdefault(size, (actual, name))
            if first != actual:
                message = f"input '{name}' has {size} = {actual}, but '{where}' has {size} = {first}"
                yield message, f"every input with the dimension `{size}` must have the same size there"
