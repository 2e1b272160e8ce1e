"""Every code that an audit knows: its level and what it means in a line; docs/audit has a page about each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from runtime.audit.findings import weights
from runtime.audit.findings.finding import LEVELS, Evidence, Finding, Level
from runtime.audit.trace import Trace


class Entry(NamedTuple):
    """What a code means."""

    level: Level
    summary: str


CODES: Mapping[str, Entry] = {
    "stale-read": Entry("error", "weights were written before a backward that still reads them"),
    "stale-read-unneeded": Entry("warning", "PyTorch refuses a backward whose weights were written, without need"),
    "stale-statistics": Entry("error", "statistics were written before a backward that still reads them"),
    "stale-value": Entry("error", "a value was overwritten in place before a backward that reads it"),
    "recompute-differs": Entry("error", "a checkpointed forward is recomputed with other weights or random numbers"),
    "stale-cast": Entry("error", "autocast serves a copy of weights from before their update"),
    "recompute-buffers": Entry("warning", "a checkpointed forward writes its statistics twice"),
    "other-version": Entry("question", "a model is called again after its update, for another model's loss"),
}

Detector: TypeAlias = Callable[[Evidence], Iterable[Finding]]
DETECTORS: tuple[Detector, ...] = (
    weights.find_stale_reads,
    weights.find_overwritten_values,
    weights.find_stale_recomputations,
    weights.find_stale_casts,
    weights.find_alternations,
)


def find_all(trace: Trace) -> tuple[Finding, ...]:
    """Return everything that is found in a trace, each once, the worst first."""
    evidence = Evidence(trace)
    found: dict[object, Finding] = {}
    for detector in DETECTORS:
        for finding in detector(evidence):
            known = found.get(finding.key)
            found[finding.key] = finding if known is None else replace(known, times=known.times + 1)
    return tuple(sorted(found.values(), key=lambda each: (LEVELS.index(level_of(each)), each.place, each.code)))


def level_of(finding: Finding) -> Level:
    """Return the level of a finding."""
    return CODES[finding.code].level
