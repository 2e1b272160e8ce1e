"""Diagnostics as editors show them, and the quick fixes of those that say what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lsprotocol import types

from graphspec.diagnostics import Diagnostic, Severity, Span
from graphspec.limits import MOST_PROBLEMS
from graphspec.read.builder import SourceText
from runtime.lsp.places import Units
from runtime.lsp.snapshot import Snapshot

NAME = "stepgraph"
START = types.Range(start=types.Position(line=0, character=0), end=types.Position(line=0, character=0))
_SEVERITIES: Mapping[Severity, types.DiagnosticSeverity] = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}
_PLACE = re.compile(r"(?P<file>[^\s'\"`(),;]+):(?P<line>\d+):(?P<column>\d+)")
_MEANT = re.compile(r"did you mean (?:its \w+ )?'(?P<name>[^']+)'")
_QUOTED = re.compile(r"'([^']+)'|`([^`]+)`")
_PLAIN = re.compile(r"[*&]?[\w.]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """Writes the findings about a snapshot in the terms of an editor."""

    snapshot: Snapshot
    units: Units
    uris: Mapping[str, str]
    """The addresses of its files by their names in messages."""

    def list_diagnostics(self) -> Mapping[str, list[types.Diagnostic]]:
        """Return the findings by the address of the file they are in; those without a place are at the beginning."""
        found = {uri: list[types.Diagnostic]() for uri in self.uris.values()}
        diagnostics = self.snapshot.checked.diagnostics
        if len(diagnostics) > MOST_PROBLEMS:
            diagnostics = sorted(diagnostics, key=lambda each: each.severity != "error")[:MOST_PROBLEMS]
        for each in diagnostics:
            file = self.snapshot.file if each.span is None else each.span.file
            uri = self.uris.get(file)
            if uri is not None:
                found[uri].append(self._write(each, uri))
        return found

    def list_fixes(self, asked: types.Range) -> Iterator[types.CodeAction]:
        """Yield a fix for every finding in a range that says what was meant."""
        own = self.uris[self.snapshot.file]
        for each in self.snapshot.checked.diagnostics:
            meant = _MEANT.search(each.label)
            if meant is None or each.span is None or each.span.file != self.snapshot.file:
                continue
            place = self._find_range(each.span)
            wrong = self._find_wrong(each, each.span)
            if wrong is None or place.start > asked.end or asked.start > place.end:
                continue
            span, text = wrong
            if text.startswith("${") and not meant["name"].startswith("${"):
                continue
            edit = types.TextEdit(range=self._find_range(span), new_text=meant["name"])
            yield types.CodeAction(
                title=f"Change {text!r} to {meant['name']!r}",
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[self._write(each, own)],
                is_preferred=True,
                edit=types.WorkspaceEdit(changes={own: [edit]}),
            )

    def _write(self, diagnostic: Diagnostic, uri: str) -> types.Diagnostic:
        """Return a finding with its remedy in the message, and its notes as related information."""
        span = diagnostic.span
        place = START if span is None else self._find_range(span)
        parts = [diagnostic.message, diagnostic.label, f"help: {diagnostic.help}" if diagnostic.help else ""]
        notes = (*diagnostic.notes, *(() if span is None else span.via))
        return types.Diagnostic(
            range=place,
            message="\n".join(filter(None, parts)),
            severity=_SEVERITIES[diagnostic.severity],
            code=diagnostic.code,
            source=NAME,
            related_information=[self._relate(note, uri, place) for note in notes] or None,
        )

    def _relate(self, note: str, uri: str, place: types.Range) -> types.DiagnosticRelatedInformation:
        """Return a note at the place that it names, else at that of its diagnostic."""
        location = types.Location(uri=uri, range=place)
        for found in _PLACE.finditer(note):
            line, column = int(found["line"]), int(found["column"])
            if found["file"] in self.uris and found["file"] in self.snapshot.checked.texts:
                start = Span(file=found["file"], line=line, column=column, end_line=line, end_column=column)
                location = types.Location(uri=self.uris[found["file"]], range=self._find_range(start))
                break
        return types.DiagnosticRelatedInformation(location=location, message=note)

    def _find_range(self, span: Span) -> types.Range:
        source = self.snapshot.source
        if span.file != self.snapshot.file:
            source = SourceText(file=span.file, content=self.snapshot.checked.texts.get(span.file, ""))
        return self.units.range(source, span)

    def _find_wrong(self, diagnostic: Diagnostic, span: Span) -> tuple[Span, str] | None:
        """Return the part of what a finding points to that is to be replaced: the word that its message quotes."""
        source = self.snapshot.source
        start, end = source.offset(span.line, span.column), source.offset(span.end_line, span.end_column)
        written = source.content[start:end]
        for found in _QUOTED.finditer(diagnostic.message):
            quoted = found[1] or found[2]
            at = written.find(quoted)
            if at >= 0:
                return source.span(start + at, start + at + len(quoted)), quoted
        return (span, written) if _PLAIN.fullmatch(written) else None
