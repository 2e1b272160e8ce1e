"""Plans as they are printed, read back."""

from __future__ import annotations

import re

LINE = re.compile(r"^  (?P<mark>[-+]?) *(?P<number>\d+)  (?P<kind>\w+) *(?P<text>.*)$")


def read_functions(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return the numbered lines of every function of a plan, those given by differences put together again."""
    found: dict[str, list[tuple[str, str]]] = {}
    bases: dict[str, list[re.Match[str]]] = {}
    for part in text.split("\n\n"):
        title, *lines = part.splitlines()
        if "  (writes: " not in title:
            continue
        rows = [match for line in lines if (match := LINE.match(line))]
        same = re.match(r"  as (\w+)", lines[0])
        if not same:
            bases[title.split()[0]] = rows
            found[title.split()[0]] = [(row["kind"], row["text"]) for row in rows]
            continue
        found[title.split()[0]] = _patch(bases[same[1]], rows)
    return found


def _patch(base: list[re.Match[str]], rows: list[re.Match[str]]) -> list[tuple[str, str]]:
    """Return the lines of a function that is given by its differences from another.

    The number of a line counts the lines that a ``repeat`` before it stands for. How many a new one stands for is not
    printed: what is added next is then behind it, or behind the lines before one that is gone.
    """
    numbers = [int(row["number"]) for row in base]
    sizes = [after - number for number, after in zip(numbers, [*numbers[1:], numbers[-1] + 1], strict=True)]
    made: list[tuple[str, str]] = []
    at, due, known = 0, 1, True
    for row in rows:
        number = int(row["number"])
        while numbers[at : at + 1] < [number] if row["mark"] == "-" else known and due < number:
            made.append((base[at]["kind"], base[at]["text"]))
            at, due = at + 1, due + sizes[at]
        if row["mark"] == "-":
            at += 1
        else:
            made.append((row["kind"], row["text"]))
            due, known = number + 1, row["kind"] != "repeat"
    return [*made, *((row["kind"], row["text"]) for row in base[at:])]
