"""What the tests of conditions share: a run that meets trouble, what it may leave behind, and how it must end then."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from runtime.checkpoints import Store, read_checkpoint
from tests.resilience import processes
from tests.resilience.trials import SPECS, compare_checkpoints

HERE = Path(__file__).parent
ALLOWED = ("--allow", "trouble", "--allow", "torch")
Before = Callable[[], None] | None


def make(folder: Path, *changes: tuple[str, str], spec: str = "small") -> Path:
    """Put a spec, with some of its text replaced, and the module that it names into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = (SPECS / f"{spec}.yaml").read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (folder / "spec.yaml").write_text(text)
    shutil.copy(HERE / "trouble.py", folder)
    return folder


def run(folder: Path, *more: str, out: str = "out", trouble: str = "", before: Before = None) -> processes.Ended:
    """Run the spec in a folder, with a trouble on the way; whatever happens is told without a traceback."""
    (folder / "trouble.txt").write_text(trouble)
    arguments = ["run", "spec.yaml", "--out", out, "--plain", *ALLOWED, *more]
    ended = processes.run(arguments, folder, before=before)
    for name in ("trouble.txt", "waiting"):
        (folder / name).unlink(missing_ok=True)
    assert "Traceback" not in ended.output, ended.output
    assert "internal error" not in ended.output, ended.output
    return ended


def refuse(folder: Path, *more: str, code: int = 1, **how) -> str:
    """Run with a trouble that ends the run with an exit code; return what it prints, as one line."""
    ended = run(folder, *more, **how)
    assert ended.code == code, ended.output
    return " ".join(ended.output.split())


def go_on(folder: Path, *more: str, **how) -> str:
    """Let a run go on to its end; return what it prints."""
    ended = run(folder, "--resume", *more, **how)
    assert ended.code == 0, ended.output
    return ended.output


def steps(out: Path) -> tuple[int, ...]:
    """Return the steps of a run's checkpoints, after making sure that all in its folder is whole.

    No file is half written or temporary, every checkpoint reads back, and both files of metrics hold the same rows, but
    for those that only the first was given when the disk became full.
    """
    hidden = [str(path) for path in out.rglob(".*")]
    assert hidden == []
    store = Store(out / "checkpoints", 1)
    for step in store.steps():
        assert read_checkpoint(store.path(step)).sections["origin"]["step"] == step
    if (out / "metrics.jsonl").exists():
        rows, table = read_rows(out), read_table(out)
        assert table == rows[: len(table)]
    return store.steps()


def read_rows(out: Path) -> list[dict[str, float]]:
    """Return the rows of metrics, none of which is cut."""
    text = (out / "metrics.jsonl").read_text()
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def read_table(out: Path) -> list[dict[str, float]]:
    """Return the rows of the table of metrics."""
    table = csv.DictReader((out / "metrics.csv").read_text().splitlines())
    return [{name: json.loads(value) for name, value in row.items() if value} for row in table]


def differences(whole: Path, out: Path) -> list[str]:
    """Return in what a run ended otherwise than one without trouble, other than in the time that it took."""
    if steps(whole) != steps(out):
        return [f"checkpoints {steps(whole)} and {steps(out)}"]
    assert read_table(out) == read_rows(out)
    found = [read_checkpoint(Store(each / "checkpoints", 1).newest()) for each in (whole, out)]
    one, other = ([{**row, "time": 0} for row in read_rows(each)] for each in (whole, out))
    return [*compare_checkpoints(*found), *([] if other == one else ["rows of metrics"])]


def become_nobody() -> None:
    """Go on as a user without rights."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def strike_in_write(number: int, *names: str) -> None:
    """Send signals to this process where it waits, for the so-many-th time in checkpoint writes, for the disk."""
    calls, sync = iter(range(1, 10**6)), os.fsync

    def struck(file: int) -> None:
        if has_hidden(Path("out", "checkpoints")) and next(calls) == number:
            for name in names:
                os.kill(os.getpid(), signal.Signals[name])
        sync(file)

    os.fsync = struck


def has_hidden(folder: Path) -> bool:
    """Tell whether a checkpoint is being written or removed."""
    try:
        return any(name.startswith(".") for name in os.listdir(folder))
    except FileNotFoundError:
        return False


def deafen() -> None:
    """Make standard output a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    os.close(reader)
    sys.stdout = os.fdopen(1, "w", closefd=False)


def fill_at_curves() -> None:
    """Fill the disk when all was trained and saved."""
    import runtime.train.run

    draw = runtime.train.run.draw_curves

    def late(*arguments: object, **options: object) -> object:
        sys.modules["trouble"].fill("")
        return draw(*arguments, **options)

    runtime.train.run.draw_curves = late
