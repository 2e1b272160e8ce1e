"""Sound scripts with one edit each, of the kind that people get wrong, to judge an audit of hand-written loops by.

`python -m tests.audit.mutants FOLDER` writes them as scripts with labels like those of `cases`: `m*.py`, and
`u*.py` where a run cannot decide whether the edit is wrong. `--score` in place of the folder audits those that it can
decide, and prints which are found, missed, and flagged with another error or warning than their label's.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.audit.labels import CASES, read_label
from tests.audit.scoring import start

EDITS = Path(__file__).with_name("edits.txt")
HEAD = re.compile(r"(?P<script>\w+): (?P<label>.+)")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A sound script in which some lines, which follow each other there once, are replaced."""

    script: str
    label: str
    """Cause and level as in `cases/README.md`, or why a run cannot decide whether the edit is wrong."""
    old: tuple[str, ...]
    new: tuple[str, ...]
    at: tuple[str, ...]
    """Lines of the edited script, without indentation, that a finding may point at, wherever they occur."""
    raises: tuple[str, str] | None
    """The exception that ends the edited script, and the line from which it leaves."""

    @property
    def is_decidable(self) -> bool:
        """Return whether a run shows that the edit is wrong, or wasteful."""
        return bool(self.at)

    @property
    def original(self) -> str:
        """Return the sound script."""
        return (CASES / f"sound_{self.script}.py").read_text(encoding="utf-8")

    def source(self) -> str:
        """Return the edited script with its labels."""
        text, old = "\n" + self.original, "".join(f"\n{line}" for line in (*self.old, ""))
        if text.count(old) != 1:
            raise ValueError(f"sound_{self.script}.py has these lines {text.count(old)} times: {self.old}")
        return "\n".join(map(self.labelled, text.replace(old, "\n".join(("", *self.new, ""))).splitlines()[1:])) + "\n"

    def labelled(self, line: str) -> str:
        """Return a line of the edited script with the labels that belong there."""
        bare = line.strip()
        ends = f"  # raises: {self.raises[0]}" if self.raises is not None and bare == self.raises[1] else ""
        return line + (f"  # expect: {self.label}" if bare in self.at else "") + ends


def read_edits() -> list[Mutant]:
    """Return all mutants, in the order of the file."""
    _, *blocks = EDITS.read_text(encoding="utf-8").strip().split("\n\n")
    return [read_edit(head, rows) for head, *rows in map(str.splitlines, blocks)]


def read_edit(head: str, rows: list[str]) -> Mutant:
    """Return the mutant that a block of the file declares."""
    named = HEAD.fullmatch(head)
    if named is None or any(row[:2].strip() not in {"-", "+", "@", "!"} for row in rows):
        raise ValueError(f"{EDITS.name}: a block that cannot be read: {head}")
    old, new, at, raised = (tuple(row[2:] for row in rows if row[0] == mark) for mark in "-+@!")
    exception = raised[0].split(" ", 1) if raised else None
    return Mutant(
        **named.groupdict(), old=old, new=new, at=at, raises=(exception[0], exception[1]) if exception else None
    )


def write(folder: Path) -> list[Path]:
    """Write all edited scripts into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for number, mutant in enumerate(read_edits(), start=1):
        paths.append(folder / f"{'m' if mutant.is_decidable else 'u'}{number:03d}_{mutant.script}.py")
        paths[-1].write_text(mutant.source(), encoding="utf-8")
    return paths


@dataclass(frozen=True, kw_only=True)
class Score:
    """How many of the mutants that a run can decide an audit finds with cause and line, by the names of the others."""

    found: int
    missed: tuple[str, ...]
    flagged: tuple[str, ...]
    """With another error or warning than their label's."""

    @property
    def rate(self) -> float:
        """Return the part that is found."""
        return self.found / (self.found + len(self.missed))

    def __str__(self) -> str:
        return f"{self.found} found, {len(self.missed)} missed, {len(self.flagged)} flagged with something else"


def score() -> Score:
    """Audit the mutants that a run can decide; print those that are missed or flagged."""
    found, missed, flagged = 0, list[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder, start() as auditor:
        for path in write(Path(folder)):
            label = read_label(path)
            if label is None:
                continue
            audited = auditor.audit(path)
            others = [str(each) for each in audited.findings if each.is_serious and not each.is_bug(label)]
            if audited.finds(label):
                found += 1
            else:
                missed.append(path.stem)
                print(f"{path.stem}: missed {label.cause} {label.level} at {label.lines}", flush=True)
            if others:
                flagged.append(path.stem)
                print(f"{path.stem}: also {'; '.join(others)}", flush=True)
    return Score(found=found, missed=tuple(missed), flagged=tuple(flagged))


if __name__ == "__main__":
    print(score() if sys.argv[1] == "--score" else f"{len(write(Path(sys.argv[1])))} scripts")
