"""The results as a part of docs/gpu.md: what came of every check, what was wrong, and what was measured."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.gpu.case import Check
from tests.gpu.watching import Tally

BEGIN, END = "<!-- gpu: begin -->", "<!-- gpu: end -->"
PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
SHOWN = 20
"""So many problems of a check are told; the others are counted."""


def write(path: Path, place: str, checks: Sequence[Check], tallies: Mapping[str, Tally]) -> None:
    """Write the results into a page; where there is none, it is begun as docs/gpu.md is."""
    text = (path if path.exists() else PAGE).read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    told = "\n".join(results(place, checks, tallies))
    path.write_text(f"{before}{BEGIN}\n{told}\n{END}{after}", encoding="utf-8")


def results(place: str, checks: Sequence[Check], tallies: Mapping[str, Tally]) -> Iterator[str]:
    """Yield the lines of the results."""
    yield f"Run on {place}.\n"
    yield "| check | cases | right | wrong | s | |\n|---|---:|---:|---:|---:|---|"
    for check in checks:
        tally = tallies.get(check.name, Tally())
        figures = f"{tally.done} | {tally.done - len(tally.problems)} | {len(tally.problems)} | {tally.seconds:.0f}"
        yield f"| {check.name} | {figures} | {remark(tally)} |"
    for check in checks:
        tally = tallies.get(check.name, Tally())
        if tally.problems:
            yield f"\nWrong in `{check.name}`:\n"
            yield from (f"- {case}: `{plain(text)}`" for case, text in [*tally.problems.items()][:SHOWN])
            more = len(tally.problems) - SHOWN
            yield from [f"- and {more} more"] * (more > 0)
    for check in checks:
        tally = tallies.get(check.name, Tally())
        if check.columns and tally.rows:
            titles = " | ".join(check.columns)
            yield f"\n`{check.name}`: {check.asks}\n\n| case | {titles} |\n|---{'|---' * len(check.columns)}|"
            yield from (f"| {case} | {' | '.join(map(plain, cells))} |" for case, cells in tally.rows.items())


def remark(tally: Tally) -> str:
    """Return what is to be said of a check beyond its figures."""
    if tally.is_short:
        return "the time was over"
    if not tally.has_ended:
        return "ended early" if tally.done else "not run"
    return "" if tally.done else "nothing to try on this device"


def plain(text: str) -> str:
    """Return a text that ends neither a cell of a table nor a span of code."""
    return text.replace("|", "/").replace("`", "'")


def describe_place(device: str) -> str:
    """Return the device and the versions of what runs on it."""
    import torch

    from runtime.backends.torch.meter import TorchMeter

    machine = TorchMeter(device, None).describe()
    cuda = f", CUDA {torch.version.cuda}" if torch.version.cuda else ""
    title = f"{machine.title} (`{machine.device}`)" if machine.title else f"`{machine.device}`"
    return f"{title}: {machine.framework}{cuda}, Python {platform.python_version()}"
