"""What an audit reports: as text, as JSON, as SARIF, and without what a baseline accepts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler.ir.value import Json, Object
from runtime.audit.findings.catalogue import CODES, level_of
from runtime.audit.findings.finding import LEVELS, Finding, Level
from runtime.audit.trace import Place, Trace, Update

FORMAT = 1
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_SARIF_LEVELS: Mapping[Level, str] = {"error": "error", "warning": "warning", "question": "note", "waste": "note"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The findings of an audit, worst first, and the trace in which they were found.

    >>> import torch
    >>> import stepgraph as sg
    >>> net = torch.nn.Linear(4, 1)
    >>> opt = torch.optim.SGD(net.parameters(), 0.1)
    >>> with sg.audit() as audited:
    ...     for _ in range(2):
    ...         net(torch.ones(8, 4)).square().mean().backward()
    ...         opt.step()
    >>> report = audited.report
    >>> report.is_sound
    False
    """

    trace: Trace
    findings: tuple[Finding, ...]
    accepted: int = 0
    """Findings that a baseline accepts, which are left out."""

    def of(self, *levels: Level) -> tuple[Finding, ...]:
        """Return the findings of some levels.

        >>> [each.times for each in report.of("error", "warning")]
        [1]
        """
        return tuple(each for each in self.findings if level_of(each) in levels)

    @property
    def is_sound(self) -> bool:
        """Return whether there is no error and no warning."""
        return not self.of("error", "warning")

    def accept(self, known: Iterable[str]) -> Report:
        """Return the report without the findings that a baseline names by their fingerprints.

        >>> from runtime.audit.report import fingerprint
        >>> report.accept(fingerprint(each) for each in report.findings).is_sound
        True
        """
        allowed = Counter(known)
        kept: list[Finding] = []
        for finding in self.findings:
            name = fingerprint(finding)
            if allowed[name]:
                allowed[name] -= 1
            else:
                kept.append(finding)
        accepted = self.accepted + len(self.findings) - len(kept)
        return Report(trace=self.trace, findings=tuple(kept), accepted=accepted)

    def __str__(self) -> str:
        """Return the report as text."""
        return format_text(self)


def fingerprint(finding: Finding) -> str:
    """Return what a finding is recognized by: code, file and the text of its lines, so that they may move."""
    places = (finding.place, *(each.place for each in finding.others))
    return f"{finding.code} {Path(finding.place.file).name}: {' | '.join(map(read_line, places))}"


def read_line(place: Place) -> str:
    """Return the text of a line; empty where it cannot be read."""
    try:
        lines = Path(place.file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""


def format_text(report: Report) -> str:
    """Return a report as text: one paragraph for each finding, and a summary."""
    lines: list[str] = []
    for each in report.findings:
        lines.append(f"{level_of(each)}[{each.code}] {each.place}: {each.message}{format_numbers(each)}")
        text = read_line(each.place)
        lines.extend([f"    {each.place.line} | {text}"] if text else [])
        lines.extend(f"    {other.what} {other.place}" for other in each.others)
        lines.append("")
    if report.trace.error:
        lines.append(f"the program ended with {report.trace.error}")
    lines.extend(f"not seen: {each}" for each in report.trace.unseen)
    lines.append(summarize(report))
    return "\n".join(lines)


def format_numbers(finding: Finding) -> str:
    """Return how often something was found, and what part of the time it takes."""
    shown = [f"{finding.times} times"] if finding.times > 1 else []
    if finding.share is not None:
        shown.append(f"{'under 1%' if finding.share < 0.01 else f'{finding.share:.0%}'} of the time")
    return f" ({', '.join(shown)})" if shown else ""


def summarize(report: Report) -> str:
    """Return the last line of a report: how many updates were seen, and how many findings there are."""
    updates = Counter(each.optimizer for each in report.trace.of(Update))
    counts = (f"{_count(len(report.of(level)), level)}" for level in LEVELS)
    seen = ", ".join(f"{_count(number, 'step')} of {name}" for name, number in updates.items()) or "no update"
    accepted = f"; {report.accepted} accepted by the baseline" if report.accepted else ""
    return f"{', '.join(counts)} in {seen}{accepted}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 or noun == 'waste' else 's'}"


def to_json(report: Report) -> Object:
    """Return a report as JSON."""
    findings: list[Json] = [
        {
            "code": finding.code,
            "level": level_of(finding),
            "file": finding.place.file,
            "line": finding.place.line,
            "message": finding.message,
            "others": [
                {"what": each.what, "file": each.place.file, "line": each.place.line} for each in finding.others
            ],
            "times": finding.times,
            "share": None if finding.share is None else round(finding.share, 4),
            "fingerprint": fingerprint(finding),
        }
        for finding in report.findings
    ]
    return {
        "stepgraph-audit": FORMAT,
        "error": report.trace.error,
        "unseen": list(report.trace.unseen),
        "accepted": report.accepted,
        "updates": dict(Counter(each.optimizer for each in report.trace.of(Update))),
        "findings": findings,
    }


def to_sarif(report: Report, version: str) -> Object:
    """Return a report in the format SARIF 2.1.0, which code hosts show at the lines."""
    used = dict.fromkeys(each.code for each in report.findings)
    rules: list[Json] = [
        {
            "id": code,
            "shortDescription": {"text": CODES[code].summary},
            "defaultConfiguration": {"level": _SARIF_LEVELS[CODES[code].level]},
        }
        for code in used
    ]
    results: list[Json] = [
        {
            "ruleId": each.code,
            "ruleIndex": list(used).index(each.code),
            "level": _SARIF_LEVELS[level_of(each)],
            "message": {"text": each.message},
            "locations": [_location(each.place)],
            "relatedLocations": [
                {**_location(other.place), "id": index, "message": {"text": other.what}}
                for index, other in enumerate(each.others)
            ],
            "partialFingerprints": {"stepgraphAudit/v1": fingerprint(each)},
        }
        for each in report.findings
    ]
    driver: Object = {"name": "stepgraph audit", "version": version, "rules": rules}
    return {"$schema": _SARIF, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _location(place: Place) -> Object:
    path = Path(place.file)
    inside = path.is_absolute() and path.is_relative_to(Path.cwd())
    uri = os.path.relpath(path).replace(os.sep, "/") if inside else path.as_uri() if path.is_absolute() else place.file
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": max(place.line, 1)}}}
