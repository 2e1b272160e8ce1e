"""Labels in the scripts of `cases`: what an audit should find in a script, how serious it is, and at which lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).parent / "cases"
LEVELS = ("error", "warning", "question", "waste")
NEAR = (
    {"leftover-grad", "leaked-grad"},
    {"untrained", "zeroed-grad", "lost-grad"},
    {"untrained", "dead-term"},
    {"leaked-grad", "undetached-target"},
    {"target-trained", "undetached-target"},
    {"stale-read", "crossing-graph"},
    {"stale-read", "stale-value"},
    {"stale-read", "stale-read-unneeded"},
    {"crossing-graph", "freed-graph"},
)
"""Causes that are two views of one mistake."""
EXPECT = re.compile(r"#\s*expect: ([a-z-]+) ([a-z]+)(?=\s*(?:#|$))")
RAISES = re.compile(r"#\s*raises: (\w+)\s*$")
MENTIONED = re.compile(r"expect:|raises:")


@dataclass(frozen=True, kw_only=True)
class Label:
    """One bug of a script. An audit finds it if it names the cause and at least one of the lines."""

    cause: str
    level: str
    lines: tuple[int, ...]
    raises: str | None
    """The exception that ends the script, if the bug does not stay silent."""
    raised_at: int | None
    """The line from which it leaves the script."""

    def is_found(self, cause: str, lines: set[int]) -> bool:
        """Return whether a finding with this cause that points at these lines is the bug."""
        is_near = cause == self.cause or any({cause, self.cause} <= views for views in NEAR)
        return is_near and not lines.isdisjoint(self.lines)


def scripts(prefix: str = "h") -> list[Path]:
    """Return the scripts with a bug, or those with another prefix, by name."""
    return sorted(CASES.glob(f"{prefix}*.py"))


def read_label(path: Path) -> Label | None:
    """Return the label of a script, or nothing where it is sound; a script that contradicts itself is an error."""
    found: dict[int, tuple[str, str]] = {}
    raised: dict[int, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        expected, ends = EXPECT.search(line), RAISES.search(line)
        if expected:
            found[number] = (expected[1], expected[2])
        if ends:
            raised[number] = ends[1]
        if len(MENTIONED.findall(line)) != (expected is not None) + (ends is not None):
            raise ValueError(f"{path.name}:{number}: a label that cannot be read")
    if not found:
        return None
    if len({*found.values()}) > 1 or len(raised) > 1:
        raise ValueError(f"{path.name}: a script has one bug, with one cause and one level")
    (cause, level), *_ = found.values()
    at = next(iter(raised), None)
    return Label(cause=cause, level=level, lines=tuple(found), raises=raised[at] if at else None, raised_at=at)
