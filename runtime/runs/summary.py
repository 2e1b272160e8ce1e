"""What a run says before it begins and after its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from compiler.timing.units import find_batch
from graphspec.ops import CopyOp, EmaOp
from runtime.folder import CHECKPOINTS, LOCK
from runtime.runs.loop import Outcome
from runtime.runs.metrics import show
from runtime.terminal import counted, strong

if TYPE_CHECKING:
    from runtime.runs.session import Session


def introduce(session: Session, stream: TextIO) -> None:
    """Print what is about to be trained, on what, and for how long."""
    plan = session.step.plan
    where = f"{plan.program.backend} on {session.step.device}, seed {session.record.seed}"
    print(f"{strong(plan.spec.name, stream)}: {where}, {_describe_length(session)}", file=stream)
    lines = {name: _describe_model(session, name) for name in plan.spec.models if name in session.step.sizes}
    _print_columns(lines, stream)
    inspectors = (part.inspector for part in session.feed.parts)
    looked = dict.fromkeys(note for each in inspectors if each is not None for note in each.notes)
    for note in (*session.step.notes, *looked):
        print(f"  note: {note}", file=stream)
    for change in session.past.changes if session.past is not None else ():
        print(f"  changed: {change}", file=stream)
    print(f"{'writing to' if session.past is None else 'going on in'} {session.folder}/\n", file=stream, flush=True)


def _describe_length(session: Session) -> str:
    """Return how long the run is, and how many samples a step takes."""
    batch = find_batch(session.spec) or "the size of each set"
    if session.agenda.steps is None:
        return f"{counted(session.agenda.epochs or 0, 'epoch')} in steps of {batch}"
    return f"{session.agenda.steps:,} steps of {batch}"


def _describe_model(session: Session, name: str) -> str:
    """Return how large a model is, and what moves its weights: optimizers, an average, a copy, or nothing."""
    plan = session.step.plan
    moved = [f"trained with {item.rule}" for item in plan.program.optimizers if name in item.models]
    moved += [f"average of {op.ema}" for op in plan.spec.ops.values() if isinstance(op, EmaOp) and op.into == name]
    moved += [f"copy of {op.copy_}" for op in plan.spec.ops.values() if isinstance(op, CopyOp) and op.into == name]
    return f"{session.step.sizes[name]:>12,} parameters, {', '.join(moved) or 'not trained'}"


def _print_columns(lines: Mapping[str, str], stream: TextIO) -> None:
    width = max(map(len, lines), default=0)
    for name, text in lines.items():
        print(f"  {name:{width}}{text}", file=stream)


def resumed(step: int, notes: Sequence[str], stream: TextIO) -> None:
    """Print where a run goes on, and what is to be known about its data."""
    for note in notes:
        print(f"note: {note}", file=stream)
    print(f"going on after step {step:,}\n", file=stream, flush=True)


def sum_up(outcome: Outcome, folder: Path, stream: TextIO) -> None:
    """Print the first and the last value of each output, the speed, and the files that were written."""
    print(file=stream)
    for line in _tabulate(outcome):
        print(line, file=stream)
    for line in (*_tell_end(outcome), f"{outcome.steps:,} steps in {outcome.seconds:.1f} s{_speed(outcome)}"):
        print(line, file=stream)
    print(f"wrote {folder}/", file=stream)
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(".") and path.name != LOCK:
            print(f"  {_describe_file(path)}", file=stream)
    stream.flush()


def _tell_end(outcome: Outcome) -> Iterator[str]:
    """Yield an empty line, then which checkpoint is the best, and why the run stopped before its end."""
    yield ""
    best, stop = outcome.state.best, outcome.state.stop
    if best is not None and best.value is not None:
        yield f"best {best.metric}: {show(best.value)} at step {best.step:,} ({CHECKPOINTS}/step-{best.step})"
    if outcome.exhausted and stop is not None:
        since = f"since step {stop.step:,}" if stop.step is not None else "at all"
        yield f"stopped at step {outcome.state.made:,}: {stop.metric} has not become better {since}"


def _tabulate(outcome: Outcome) -> list[str]:
    names = list(dict.fromkeys(name for row in outcome.rows for name in row.values))
    width = max((len(name) for name in names), default=0)
    lines = [f"  {'':{width}}  {'first':>10}  {'last':>10}"] if names else []
    for name in names:
        values = [row.values[name] for row in outcome.rows if name in row.values]
        lines.append(f"  {name:{width}}  {show(values[0]):>10}  {show(values[-1]):>10}")
    return lines


def _speed(outcome: Outcome) -> str:
    """Return the steps per second after the first step, which also warms up."""
    seconds = outcome.seconds - outcome.warmup
    return f", {(outcome.steps - 1) / seconds:.4g} steps/s" if outcome.steps > 1 and seconds > 0 else ""


def _describe_file(path: Path) -> str:
    if not path.is_dir():
        return path.name
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return f"{path.name}/ ({', '.join(sorted(each.name for each in path.iterdir()))}; {_show_size(size)})"


def _show_size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
