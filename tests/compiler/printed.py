"""Plans as they are printed, read back."""

from __future__ import annotations

import re

LINE = re.compile(r"^  (?P<mark>[-+]?) *(?P<number>\d+)  (?P<kind>\w+) *(?P<text>.*)$")


def read_functions(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return the numbered lines of every function of a plan, those given by differences put together again."""
    found: dict[str, list[tuple[str, str]]] = {}
    for part in text.split("\n\n"):
        title, *lines = part.splitlines()
        if "  (writes: " not in title:
            continue
        rows = [match for line in lines if (match := LINE.match(line))]
        same = re.match(r"  as (\w+)", lines[0])
        if not same:
            found[title.split()[0]] = [(row["kind"], row["text"]) for row in rows]
            continue
        base = found[same[1]]
        gone = {int(row["number"]) for row in rows if row["mark"] == "-"}
        new = {int(row["number"]): (row["kind"], row["text"]) for row in rows if row["mark"] == "+"}
        kept = iter([row for number, row in enumerate(base, start=1) if number not in gone])
        count = len(base) - len(gone) + len(new)
        found[title.split()[0]] = [new[number] if number in new else next(kept) for number in range(1, count + 1)]
    return found
