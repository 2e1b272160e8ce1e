"""Contents: what training changes in an executed module, and how each item is read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, SupportsInt, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.instructions import Blend
from compiler.ir.program import ModeProgram
from graphspec.diagnostics import Diagnostic
from runtime.state import Array, Part, Plain, Tree, find_arrays
from runtime.support.clocks import Clock, Gates

if TYPE_CHECKING:
    from runtime.state import Array


FEW = 3
"""How many names a message lists."""
HELP = "restore it into a step that was built from the spec it was saved from"


class Fault(Struct, frozen=True, kw_only=True):
    """One name that does not fit, with what was found and what was expected."""

    kind: Literal["missing", "unexpected", "shape", "type", "value"]
    name: str
    found: str = ""
    expected: str = ""


def report_faults(faults: Iterable[Fault], notes: tuple[str, ...] = ()) -> Iterator[Diagnostic]:
    """Yield one diagnostic (GS264) for all faults of a kind: how many there are, and the first few."""
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.kind, []).append(fault)
    for kind, found in kinds.items():
        names = [fault.name for fault in found]
        match kind:
            case "missing":
                message = f"the state lacks what the step has: {_list(names, ', ')}"
            case "unexpected":
                message = f"the state has what the step lacks: {_list(names, ', ')}"
            case _:
                described = [f"{fault.name} is {fault.found}, expected {fault.expected}" for fault in found]
                message = f"the state has another {kind} than the step: {_list(described, '; ')}"
        yield Diagnostic(code="GS264", message=message, notes=notes, help=HELP)


def _list(entries: list[str], comma: str) -> str:
    """Return the first few entries, and how many more there are."""
    more = len(entries) - FEW
    return comma.join(entries[:FEW]) + (f" and {more} more" if more > 0 else "")


class Stored(Protocol):
    """A tensor that training changes, as an array of the host: read as a copy, written in place."""

    def describe(self) -> tuple[tuple[int, ...], str]:
        """Return shape and type of the array."""
        ...

    def read(self) -> Array:
        """Return a copy as an array."""
        ...

    def read_own(self) -> tuple[Array, Part | None]:
        """Return a copy of what this process has of it, and which part that is; None where it is all."""
        return self.read(), None

    def write(self, array: Array) -> None:
        """Take over an array of this shape and type."""


BY_TREE = frozenset({"rmsprop", "adadelta", "adamax", "nadam"})
"""Built-in rules that classes of PyTorch run: their slots are one tree, made by the first update, which also counts the
updates of every parameter. A state is the same on every backend."""
STEP = "step"
"""The slot that counts updates: it is derived from the number of times that the optimizer was applied."""
MOST_STEPS = 1 << 24
"""The largest count in that slot: in float32 adding one makes no difference from there on."""
MOMENTUM = "momentum_buffer"
"""The slot of SGD that begins with the first update."""


class Item(Struct, frozen=True, kw_only=True):
    """Something that is not a tensor of the module: at ``path`` of the counters, read and written as a whole.

    ``kind`` is what it is: a count, a set of names, the slots of an optimizer, or another tree that may hold tensors;
    ``foreign``: the user's code takes it and may refuse.
    """

    path: tuple[str, ...]
    read: Callable[[], Tree]
    write: Callable[[Tree], None]
    kind: Literal["count", "names", "slots", "tree"] = "tree"
    known: frozenset[str] = frozenset()
    """For the slots of an optimizer, the names of its parameters."""
    check: Callable[[Plain, Mapping[str, Array]], Iterable[Fault]] | None = None
    """What else is wrong with a value, given the arrays of its state."""
    foreign: bool = False
    optional: bool = False
    """A state may lack it, and have others in its section: clocks and metrics may change between runs. It is then
    ``fresh``."""
    fresh: Tree = None

    @property
    def name(self) -> str:
        """Return the path as one name."""
        return ".".join(self.path)


class Contents(Struct, frozen=True, kw_only=True):
    """All that training changes, in its present state: tensors by name, written in place, and everything else."""

    tensors: Mapping[str, Stored] = {}
    items: tuple[Item, ...] = ()


class Holder(Protocol):
    """A module whose state is read and restored."""

    @property
    def backend(self) -> str:
        """Return the framework it is of."""
        ...

    def applied(self) -> Mapping[str, int]:
        """Return how often every optimizer was applied."""
        ...

    def contents(self, applied: Mapping[str, int]) -> Contents:
        """Return the contents; ``applied`` says how often the optimizers are to be applied."""
        ...


def find_averages(mode: ModeProgram, *, gated: bool) -> frozenset[str]:
    """Return the averages of a mode that have gates, or those that are taken in every step."""
    gates = {gate.op for gate in mode.gates}
    blends = (each for function in mode.functions for each in function.instructions if isinstance(each, Blend))
    return frozenset(each.op for each in blends if (each.op in gates) == gated)


def clock_items(modes: Sequence[ModeProgram], clock: Clock, gates: Gates | None) -> Iterator[Item]:
    """Yield the steps of every mode, what gates counted, and the averages that were taken."""
    for mode in modes:
        yield _count_item(("steps", mode.mode), clock.steps, mode.mode)
        for gate in mode.gates:
            if (
                gates is not None and gate.clock == "writes" and not gate.counts_with
            ):  # the others are derived from the step number
                yield _count_item(("gates", mode.mode, gate.op), gates.counts[mode.mode], gate.op)
            if gates is not None and gate.counted:
                # Without it there is no telling how many updates were applied before, so that no state may lack it.
                counted = _count_item(("gates", mode.mode, f"{gate.op}.applied"), gates.applied[mode.mode], gate.op)
                yield replace(counted, optional=False)
    averages = frozenset[str]().union(*(find_averages(mode, gated=True) for mode in modes))
    if gates is not None and averages:
        taken = gates.taken

        def write(ops: Tree) -> None:
            """Set which averages were taken."""
            taken.difference_update(averages)
            taken.update(averages.intersection(cast("list[str]", ops)))

        def read() -> Tree:
            """Return which averages were taken."""
            return [*sorted(averages & taken)]

        yield Item(path=("averaged",), kind="names", read=read, write=write, optional=True, fresh=[])


class Counted(Protocol):
    """An average that counts how often it took place."""

    times: int


def average_items(averages: Mapping[str, Counted]) -> Iterator[Item]:
    """Yield how often every average took place; all else that its decay depends on follows from that."""
    for op, average in averages.items():

        def write(count: Tree, average: Counted = average) -> None:
            """Set how often it took place."""
            average.times = cast("int", count)

        read = partial(getattr, average, "times")
        yield Item(path=("averages", op), kind="count", read=read, write=write)


class Metric(Protocol):
    """A running metric; ``state`` is None for one of a user's that cannot say what it keeps."""

    def state(self) -> object:
        """Return what it keeps."""


def metric_items(
    metrics: Mapping[str, Mapping[str, Metric]], read: Callable[[Metric], Tree], write: Callable[[Metric, Tree], None]
) -> Iterator[Item]:
    """Yield the running metrics by mode and op whose state can be read; one that a state lacks is written None."""
    for mode, measured in metrics.items():
        for op, metric in measured.items():
            if metric.state() is not None:
                access = partial(read, metric), partial(write, metric)
                yield Item(path=("metrics", mode, op), read=access[0], write=access[1], foreign=True, optional=True)


def window_item(
    window: str,
    read: Callable[[], Tree],
    write: Callable[[Tree], None],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    is_open: bool,
    tables: frozenset[str] = frozenset(),
) -> Item:
    """Return the gradients that an update has accumulated, by parameter; without them its window begins anew.

    Where several processes have parts of them, these are there as well, with a first axis for the processes.
    ``is_open``: some may be absent. ``tables``: parameters of which it has rows, and their indices under `ids`.
    """
    check = partial(_check_window, window, shapes, is_open, tables)
    return Item(path=("windows", window), read=read, write=write, optional=True, check=check)


def rest_item(
    name: str, read: Callable[[], Tree], write: Callable[[Tree], None], shapes: Mapping[str, tuple[int, ...]]
) -> Item:
    """Return what processes have not sent yet of a gradient set: by parameter, with a first axis for the processes."""
    return Item(path=("rests", name), read=read, write=write, optional=True, check=partial(_check_rests, name, shapes))


class Scaling(Protocol):
    """The loss scale of a step."""

    initial: float
    is_fixed: bool


def scale_items(
    scale: Scaling | None, read: Callable[[Scaling], Tree], write: Callable[[Scaling, float, int, int], None]
) -> Iterator[Item]:
    """Yield the loss scale with the steps it counts, where there is one; a state may lack it, and a step too.

    A fixed one stays that of the spec.
    """
    if scale is None:
        return

    def put(tree: Tree) -> None:
        """Set the scale, and how many steps in a row were finite, or not."""
        found = cast("dict[str, int]", tree)
        write(scale, scale.initial if scale.is_fixed else found["scale"], found["good"], found["skips"])

    fresh: Tree = {"scale": scale.initial, "good": 0, "skips": 0}
    path = "scaling", "loss_scale"
    yield Item(path=path, read=partial(read, scale), write=put, optional=True, fresh=fresh, check=_check_scale)


def _check_scale(found: Plain, arrays: Mapping[str, Array]) -> Iterator[Fault]:
    """Yield what is wrong with a loss scale."""
    match found:
        case {"scale": int() | float() as scale, "good": int() as good, "skips": int() as skips}:
            is_fine = scale > 0 and good >= 0 and skips >= 0
        case _:
            is_fine = False
    if not is_fine:
        expected = "a scale above 0, and steps in a row from 0 up"
        yield Fault(kind="value", name="scaling.loss_scale", found=repr(found), expected=expected)


def _check_window(
    window: str,
    shapes: Mapping[str, tuple[int, ...]],
    is_open: bool,
    tables: frozenset[str],
    found: Plain,
    arrays: Mapping[str, Array],
) -> Iterator[Fault]:
    """Yield every difference between accumulated gradients and their parameters."""
    prefix = f"windows.{window}.totals."
    named = [name for name in find_arrays(found) if name in arrays]
    held = {name.removeprefix(prefix): arrays[name].shape for name in named if name.startswith(prefix)}
    wanted = held.keys() if is_open else shapes.keys() | held.keys()
    ids = f"windows.{window}.ids."
    counts = {name.removeprefix(ids): arrays[name].size for name in named if name.startswith(ids)}
    for name in sorted(wanted) if held else ():
        shape = shapes.get(name)
        if shape is not None and name in tables and name in counts:
            shape = (counts[name], *shape[1:])
        if held.get(name) != shape or (name in counts) != (name in tables):
            yield Fault(kind="shape", name=prefix + name, found=str(held.get(name)), expected=str(shape))
    prefix = f"windows.{window}.parts."
    parts = {name.removeprefix(prefix): arrays[name].shape for name in named if name.startswith(prefix)}
    for name in sorted(held.keys() | parts.keys()) if parts else ():
        if name not in parts or parts[name][1:] != held.get(name):
            expected = f"a first axis for processes, and {held.get(name)}"
            yield Fault(kind="shape", name=prefix + name, found=str(parts.get(name)), expected=expected)


def _check_rests(
    name: str, shapes: Mapping[str, tuple[int, ...]], found: Plain, arrays: Mapping[str, Array]
) -> Iterator[Fault]:
    """Yield every difference between what was left out of gradients and their parameters."""
    prefix = f"rests.{name}.rests."
    for parameter, shape in shapes.items() if found is not None else ():
        held = arrays.get(prefix + parameter)
        if held is None or held.shape[1:] != shape:
            was = "missing" if held is None else str(held.shape[1:])
            yield Fault(kind="shape", name=prefix + parameter, found=was, expected=str(shape))


class Stepping(Protocol):
    """An optimizer that counts its updates."""

    @property
    def applied(self) -> SupportsInt:
        """Return how often it was applied."""
        ...


Steps = TypeVar("Steps", bound=Stepping)


def applied_item(
    cell: str, optimizer: Steps, read: Callable[[Steps], int], write: Callable[[Steps, int], None]
) -> Item:
    """Return how often an optimizer was applied; ``write`` also sets what is derived from it."""
    return Item(
        path=("applied", cell),
        kind="count",
        read=lambda: read(optimizer),
        write=lambda count: write(optimizer, cast("int", count)),
    )


def groups_item(cell: str, read: Callable[[], Tree], write: Callable[[Tree], None]) -> Item:
    """Return what steps changed in the options of an optimizer, and the state that belongs to no parameter."""
    return Item(path=("groups", cell), read=read, write=write, foreign=True)


def _count_item(path: tuple[str, ...], counts: dict[str, int], key: str) -> Item:
    """Return an entry of a dictionary of counts."""

    def write(count: Tree) -> None:
        """Set the entry."""
        counts[key] = cast("int", count)

    return Item(path=path, kind="count", read=partial(counts.get, key, 0), write=write, optional=True, fresh=0)


T = TypeVar("T")


def find_names(models: Mapping[str, Iterable[tuple[str, object]]]) -> dict[int, str]:
    """Return the name of every parameter, by its id: ``<model>.<parameter>``, the first one where it has several."""
    names: dict[int, str] = {}
    for model, parameters in models.items():
        for name, parameter in parameters:
            names.setdefault(id(parameter), f"{model}.{name}")
    return names


def name_slots(parameters: Sequence[object], names: Mapping[int, str]) -> list[str]:
    """Return the names of an optimizer's parameters, without the model's where they are all of one."""
    full = [names[id(parameter)] for parameter in parameters]
    single = len({name.partition(".")[0] for name in full}) == 1
    return [name.partition(".")[2] if single else name for name in full]


def name_tensors(models: Mapping[str, Iterable[tuple[str, T]]]) -> Iterator[tuple[str, T]]:
    """Yield the tensors of models, each under the first name it has: ``models.<model>.<tensor>``."""
    seen: set[int] = set()
    for model, tensors in models.items():
        for name, tensor in tensors:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield f"models.{model}.{name}", tensor
