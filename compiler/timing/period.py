"""Firing periods: in which train steps an update, an average or a copy fires, where the interval is constant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from compiler.facts.steppers import find_stepped_cells
from compiler.ir.cell import Cell, find_parameter_cells, parameters_of
from compiler.lower.verdict import find_skippable_updates
from graphspec.analysis.datasets import find_datasets, find_places
from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.durations import Duration
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import MODES, CopyOp, EmaOp, Op, UpdateOp
from graphspec.declare.parts import find_gate

NONE: frozenset[str] = frozenset()


class FiringPeriod(Struct, frozen=True, kw_only=True):
    """Firing in the steps ``first``, ``first + every``, ... (from 1), forever or up to ``until``."""

    first: int
    every: int
    endless: bool = True

    @property
    def is_plain(self) -> bool:
        """Return whether it fires in every step."""
        return self.first == 1 and self.every == 1 and self.endless

    def step(self, number: int) -> int:
        """Return the step of a firing, counted from 1."""
        return self.first + (number - 1) * self.every

    def thin(self, every: int, start: int | None, *, endless: bool) -> FiringPeriod:
        """Return the period of every n-th firing; with a start, the first firing from it on and every n-th after."""
        skipped = every - 1 if start is None else max(0, -((self.first - start) // self.every))
        first = self.first + skipped * self.every
        return FiringPeriod(first=first, every=self.every * every, endless=self.endless and endless)


EVERY_STEP = FiringPeriod(first=1, every=1)


def find_firing_period(
    spec: GraphSpec, name: str, within: frozenset[str] = NONE, *, epoch: int | None = None
) -> FiringPeriod | None:
    """Return the firing period of an update, ema or copy in train mode; None where it has none.

    Starts and ends are in steps here; ``within`` are the ops on whose period this one's depends; ``epoch`` is the
    length of an epoch, where it is known.
    """
    op, datasets = spec.ops[name], find_datasets(spec)
    if name in within or (datasets and not find_places(spec)[name].issuperset(datasets)):
        return None
    if [mode for mode in MODES if op.runs_in(mode)] != ["train"]:
        return None
    if (op.opens is not None and op.opens.unit != "steps") or isinstance(op.every, Duration):
        return None
    if find_gate(op.within) is not None:
        return None
    # An op counts all steps, or those of its `every:` update and of its source.
    source, within = find_source(op), within | {name}
    base = EVERY_STEP if source is None else find_writes(spec, source, within, epoch=epoch)
    if isinstance(op.every, str):
        named = find_firing_period(spec, op.every, within, epoch=epoch)
        base = named if base is not None and (base.is_plain or base == named) else None
    every = 1 if isinstance(op.every, str) else op.every or 1
    start = None if op.opens is None else int(op.opens.count)
    own = None if base is None else base.thin(every, start, endless=op.until is None)
    if own is None or not isinstance(op, UpdateOp) or op.window == 1:
        return own
    whole = own.thin(op.window, None, endless=True)
    # Where every epoch ends with a firing no window is open there, and its policy does not matter.
    is_closed = epoch is not None and whole.first == whole.every and epoch % whole.every == 0
    return whole if op.at_epoch_end == "carry" or is_closed else None


def find_writes(
    spec: GraphSpec, model: str, within: frozenset[str] = NONE, *, epoch: int | None = None
) -> FiringPeriod | None:
    """Return the period in which a model's weights are written; None where it has none."""
    periods = [find_firing_period(spec, name, within, epoch=epoch) for name in find_model_writers(spec, model)]
    if any(period is not None and period.is_plain for period in periods):
        return EVERY_STEP
    return periods[0] if len(periods) == 1 else None


def find_skippable(spec: GraphSpec, names: Iterable[str]) -> str | None:
    """Return the first of some writes, and those they follow, that may be skipped: only the run can count it."""
    pending = list(dict.fromkeys(names))
    for name in pending:
        op = spec.ops[name]
        source = find_source(op)
        followed = (
            *((op.every,) if isinstance(op.every, str) else ()),
            *(find_model_writers(spec, source) if source else ()),
        )
        pending.extend(each for each in dict.fromkeys(followed) if each not in pending)
    return next((name for name in pending if name in find_skippable_updates(spec)), None)


def find_model_writers(spec: GraphSpec, model: str) -> tuple[str, ...]:
    """Return the updates, averages and copies that write parameters of a model: its own, or such as it shares."""
    found: dict[str, int] = {}
    for cell in find_parameter_cells(spec).get(model, (parameters_of(model),)):
        found.update(find_cell_writers(spec).get(cell, {}))
    return tuple(sorted(found, key=found.__getitem__))


@once_per_spec
def find_cell_writers(spec: GraphSpec) -> Mapping[Cell, Mapping[str, int]]:
    """Return, by parameter cell, what writes it, with its place among the ops."""
    cells = find_parameter_cells(spec)
    found: dict[Cell, dict[str, int]] = {}
    for place, (name, op) in enumerate(spec.ops.items()):
        written: tuple[Cell, ...] = ()
        match op:
            case UpdateOp():
                written = find_stepped_cells(spec, name)
            case EmaOp() | CopyOp():
                target = op.target(name) if isinstance(op, EmaOp) else op.into
                written = cells.get(target, (parameters_of(target),))
            case _:
                pass
        for cell in written:
            found.setdefault(cell, {})[name] = place
    return found


def find_source(op: Op) -> str | None:
    """Return the model that an op follows; None for what follows none."""
    match op:
        case EmaOp():
            return op.ema
        case CopyOp():
            return op.copy_
        case _:
            return None
