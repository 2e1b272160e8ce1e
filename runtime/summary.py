"""What a run says before it begins and after its end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from graphspec.ops import CopyOp, EmaOp
from runtime.loop import Outcome
from runtime.metrics import show
from runtime.terminal import strong

if TYPE_CHECKING:
    from runtime.session import Session


def introduce(session: Session, stream: TextIO) -> None:
    """Print what is about to be trained, on what, and for how long."""
    plan = session.step.plan
    batch = plan.spec.data["train"].batch
    where = f"{plan.program.backend} on {session.step.device}, seed {session.seed}"
    print(f"{strong(plan.spec.name, stream)}: {where}, {session.steps:,} steps of {batch}", file=stream)
    lines = {name: _describe_model(session, name) for name in plan.spec.models if name in session.step.sizes}
    _print_columns(lines, stream)
    for note in session.step.notes:
        print(f"  note: {note}", file=stream)
    print(f"writing to {session.folder}/\n", file=stream, flush=True)


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


def sum_up(outcome: Outcome, folder: Path, stream: TextIO) -> None:
    """Print the first and the last value of each output, the speed, and the files that were written."""
    print(file=stream)
    for line in _tabulate(outcome):
        print(line, file=stream)
    print(f"\n{outcome.steps:,} steps in {outcome.seconds:.1f} s{_speed(outcome)}", file=stream)
    print(f"wrote {folder}/", file=stream)
    for path in sorted(folder.iterdir()):
        print(f"  {_describe_file(path)}", file=stream)
    stream.flush()


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
    first = outcome.rows[0].seconds if outcome.rows else outcome.seconds
    seconds = outcome.seconds - first
    return f", {(outcome.steps - 1) / seconds:.4g} steps/s" if outcome.steps > 1 and seconds > 0 else ""


def _describe_file(path: Path) -> str:
    if not path.is_dir():
        return path.name
    size = sum(file.stat().st_size for file in path.iterdir())
    return f"{path.name}/ ({', '.join(sorted(file.name for file in path.iterdir()))}; {_show_size(size)})"


def _show_size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
