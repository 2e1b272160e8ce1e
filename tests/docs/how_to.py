"""The diffs of docs/how-to, applied to today's tree.

A hunk goes where its lines stand. Where somebody has added a line next to it, one side of its context is enough, if
that is found in one place alone. ``python -m tests.docs.how_to`` writes the diffs of all pages anew, with the lines
that stand around them now; name pages (``add-a-pass``) for these alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
BLOCK = re.compile(r"^```(diff|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^--- (?:a/(\S+)|/dev/null)\n\+\+\+ b/(\S+)\n((?:[@ +\-\\].*\n|\n)*)", re.MULTILINE)
HUNK = re.compile(r"^(@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@.*)\n", re.MULTILINE)
AROUND = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """A change of one place: its header, the line at which the page has it, and its lines with their signs."""

    header: str
    start: int
    lines: tuple[str, ...]

    @property
    def old(self) -> list[str]:
        """Return what must be there."""
        return [line[1:] for line in self.lines if not line.startswith("+")]

    @property
    def context(self) -> tuple[int, int]:
        """Return how many lines of context stand before and behind the change."""
        signs = "".join(line[:1] or " " for line in self.lines)
        return len(signs) - len(signs.lstrip(" ")), len(signs) - len(signs.rstrip(" "))

    def without(self, before: int, behind: int) -> Hunk:
        """Return the hunk with so many lines of context less on each side."""
        return Hunk(header=self.header, start=self.start + before, lines=self.lines[before : len(self.lines) - behind])


class StaleError(Exception):
    """A hunk of a page does not fit the tree; the message says which, and what stands there."""


def read_blocks(page: Path) -> dict[str, str]:
    """Return the diff and the program of a page."""
    return dict(BLOCK.findall(page.read_text(encoding="utf-8")))


def read_hunks(diff: str) -> Iterator[tuple[str, str, list[Hunk]]]:
    """Yield every file of a diff with its hunks: its name before (none for a new one) and after."""
    for old, new, body in FILE.findall(diff):
        _, *parts = HUNK.split(body)
        triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        hunks = [Hunk(header=each, start=int(at), lines=tuple(text.splitlines())) for each, at, text in triples]
        yield old, new, hunks


def apply_page(page: Path, folder: Path) -> tuple[str, ...]:
    """Apply the diff of a page to the files of a folder, and return their names; raise StaleError."""
    names: list[str] = []
    for old, new, hunks in read_hunks(read_blocks(page)["diff"]):
        path = folder / (old or new)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        try:
            lines = apply_hunks(lines, hunks)
        except StaleError as error:
            raise StaleError(f"docs/how-to/{page.name}: {old or new}: {error}") from None
        path.unlink(missing_ok=True)
        (folder / new).parent.mkdir(parents=True, exist_ok=True)
        (folder / new).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        names.append(new)
    return tuple(names)


def apply_hunks(lines: Sequence[str], hunks: Sequence[Hunk]) -> list[str]:
    """Return the lines of a file after some hunks; raise StaleError."""
    done, shift = list(lines), 0
    for number, hunk in enumerate(hunks, start=1):
        at, least = _find_place(done, hunk, shift)
        if at is None:
            raise StaleError(_complain(done, hunk, number, shift))
        new = [line[1:] for line in least.lines if not line.startswith("-")]
        done[at : at + len(least.old)] = new
        shift = at - (least.start - 1) + len(new) - len(least.old)
    return done


def _find_place(lines: Sequence[str], hunk: Hunk, shift: int) -> tuple[int | None, Hunk]:
    """Return where a hunk goes, and as much of it as stands there: its whole context, or one side in one place."""
    if not hunk.old:
        return (None if lines else 0), hunk
    whole = _find_all(lines, hunk.old)
    if whole:
        return min(whole, key=lambda at: abs(at - (hunk.start - 1 + shift))), hunk
    before, behind = hunk.context
    for least in (hunk.without(0, behind), hunk.without(before, 0)):
        places = _find_all(lines, least.old) if any(line.strip() for line in least.old) else []
        if len(places) == 1:
            return places[0], least
    return None, hunk


def _find_all(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    return [at for at in range(len(lines) - len(wanted) + 1) if [*lines[at : at + len(wanted)]] == [*wanted]]


def _complain(lines: Sequence[str], hunk: Hunk, number: int, shift: int) -> str:
    """Return what a hunk expects, what is there instead, and what to do."""
    size = len(hunk.old)

    def rate(at: int) -> tuple[int, int]:
        there = lines[at : at + size]
        return -sum(line in there for line in hunk.old if line.strip()), abs(at - (hunk.start - 1 + shift))

    at = min(range(max(1, len(lines) - size + 1)), key=rate)
    first, last = max(0, at - AROUND), min(len(lines), at + size + AROUND)
    expected = "\n".join(f"      | {line}" for line in hunk.old)
    there = "\n".join(f"{line:5} | {lines[line - 1]}" for line in range(first + 1, last + 1))
    return (
        f"hunk {number} does not apply: {hunk.header}\nthe page expects\n{expected}\nthere now\n{there}\n"
        "Change the hunk on the page: the lines that begin with a blank or a minus must be those of the file. Line\n"
        "numbers may be wrong. If you have just added what the page shows, let the page show something else."
    )


def rewrite(page: Path) -> None:
    """Write the diff of a page anew, with as much context as it has."""
    diff = read_blocks(page)["diff"]
    names = [old for old, _, _ in read_hunks(diff) if old]
    context = max(max(hunk.context) for _, _, hunks in read_hunks(diff) for hunk in hunks)
    with TemporaryDirectory() as folder:
        for side in ("a", "b"):
            copy_files(names, Path(folder, side))
        apply_page(page, Path(folder, "b"))
        command = ["git", "diff", "--no-index", "--no-prefix", "-M", f"-U{context}", "a", "b"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    fresh = re.sub(r"^index .*\n", "", done.stdout, flags=re.MULTILINE).replace("diff --git b/", "diff --git a/")
    fresh = re.sub(r"^rename (from|to) [ab]/", r"rename \1 ", fresh, flags=re.MULTILINE)
    page.write_text(page.read_text(encoding="utf-8").replace(diff, fresh), encoding="utf-8")


def copy_files(names: Sequence[str], folder: Path) -> None:
    """Copy those files of the tree that exist into a folder."""
    texts: Mapping[str, Path] = {name: ROOT / name for name in names if (ROOT / name).exists()}
    for name, path in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    for chosen in PAGES:
        if chosen.stem in sys.argv[1:] or not sys.argv[1:]:
            rewrite(chosen)
