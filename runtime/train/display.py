"""What a run shows while it trains: a bar with losses on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self, TextIO

from runtime.train.logs import Row, format_value

_REFRESH = 0.1
"""Seconds between two updates of the bar: updating it in every step would cost as much as a small step."""
_SHOWN = 4
"""The number of values next to the bar; the metrics files have all of them."""


class Display(Protocol):
    """Something that shows the progress of a run."""

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing."""
        ...

    def advance(self, step: int) -> None:
        """Count a step."""
        ...

    def measure(self, row: Row) -> None:
        """Show the values of a logged step."""
        ...

    def say(self, text: str) -> None:
        """Show a line of text."""
        ...


@contextmanager
def working(stream: TextIO, text: str, *, moving: bool) -> Generator[None]:
    """Show on a terminal that something slow is under way; show nothing elsewhere."""
    if not moving:
        yield
        return
    from rich.console import Console

    with Console(file=stream, highlight=False, markup=False).status(text):
        yield


class Plain:
    """One line of text for each logged step."""

    def __init__(self, stream: TextIO, total: int | None) -> None:
        self.stream = stream
        self.total = total
        self.last = Row(step=0, seconds=0.0, values={})

    def __enter__(self) -> Self:
        """Do nothing: nothing is shown before the first line."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: there is nothing to clear."""

    def advance(self, step: int) -> None:
        """Do nothing: lines come with the values."""

    def measure(self, row: Row) -> None:
        """Print the values, and the speed since the line before."""
        number = str(row.step) if self.total is None else f"{row.step:{len(str(self.total))}}/{self.total}"
        values = "".join(f"  {name} {format_value(value)}" for name, value in row.values.items())
        self.say(f"step {number}{values}{_speed(self.last, row)}")
        self.last = row

    def say(self, text: str) -> None:
        """Print a line without delay, also where the stream is a file."""
        print(text, file=self.stream, flush=True)


class Hidden(Plain):
    """Nothing: of several processes the first shows the run."""

    def measure(self, row: Row) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""


class Bar:
    """A bar that moves, with the latest values and the speed."""

    def __init__(self, stream: TextIO, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[values]}", style="cyan", markup=False),
            TextColumn("{task.fields[speed]}", style="magenta", markup=False),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        )
        self.progress = Progress(
            *columns, console=Console(file=stream, highlight=False, markup=False), refresh_per_second=10
        )
        self.task = self.progress.add_task("", total=total, values="", speed="")
        self.last = Row(step=0, seconds=0.0, values={})
        self.moved = 0.0

    def __enter__(self) -> Self:
        """Show the bar."""
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the bar and leave it in place."""
        self.progress.stop()

    def advance(self, step: int) -> None:
        """Move the bar, at most every tenth of a second."""
        now = time.monotonic()
        if now - self.moved >= _REFRESH:
            self.moved = now
            self.progress.update(self.task, completed=step)

    def measure(self, row: Row) -> None:
        """Show the values next to the bar."""
        values = "  ".join(f"{name} {format_value(value)}" for name, value in tuple(row.values.items())[:_SHOWN])
        self.progress.update(self.task, completed=row.step, values=values, speed=_speed(self.last, row).strip())
        self.last = row

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self.progress.console.print(text)


def _speed(last: Row, row: Row) -> str:
    """Return the steps per second between two rows; the first row would only measure the warm-up."""
    seconds = row.seconds - last.seconds
    if last.step in (0, row.step) or seconds <= 0:
        return ""
    return f"  {(row.step - last.step) / seconds:.4g} steps/s"
