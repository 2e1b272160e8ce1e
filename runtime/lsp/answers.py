"""The answers to what editors ask, in the terms of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lsprotocol import types

from compiler import Plan
from graphspec.diagnostics import Span
from graphspec.read.builder import SourceText
from runtime.lsp import navigate
from runtime.lsp.complete import Kind, complete
from runtime.lsp.hover import hover
from runtime.lsp.names import Names
from runtime.lsp.places import Units
from runtime.lsp.report import START, Reporter
from runtime.lsp.snapshot import Snapshot

_TRIGGERS = ["{", "[", ",", " ", ":", ".", "$", '"', "("]
_KINDS: Mapping[Kind, types.CompletionItemKind] = {
    "key": types.CompletionItemKind.Property,
    "word": types.CompletionItemKind.EnumMember,
    "name": types.CompletionItemKind.Variable,
    "model": types.CompletionItemKind.Class,
    "variable": types.CompletionItemKind.Constant,
    "function": types.CompletionItemKind.Function,
    "block": types.CompletionItemKind.Module,
    "option": types.CompletionItemKind.Field,
}
_SYMBOLS: Mapping[str, types.SymbolKind] = {
    "vars": types.SymbolKind.Constant,
    "inputs": types.SymbolKind.Variable,
    "state": types.SymbolKind.Variable,
    "models": types.SymbolKind.Class,
    "blocks": types.SymbolKind.Module,
    "ops": types.SymbolKind.Function,
    "data": types.SymbolKind.Array,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an answer is made from: the newest snapshot, and what was last known of the names and the plan."""

    snapshot: Snapshot
    names: Names
    plan: Plan | None
    units: Units
    uri: str
    """The address of the text."""
    opened: Mapping[Path, str]
    """The addresses of the files that the editor has open."""

    @property
    def uris(self) -> Mapping[str, str]:
        """Return the addresses of the files of the spec by their names in messages."""
        return find_uris(self.snapshot, self.uri, self.opened)

    def offset(self, position: types.Position) -> int:
        """Return the offset of an editor's position."""
        return self.units.offset(self.snapshot.source, position)

    def range(self, span: Span) -> types.Range:
        """Return the range of a span in the text."""
        return self.units.range(self.snapshot.source, span)

    def location(self, span: Span) -> types.Location:
        """Return where a span is, in this file or another."""
        if span.file == self.snapshot.file:
            return types.Location(uri=self.uri, range=self.range(span))
        texts: Mapping[str, str] = {} if self.snapshot.document is None else self.snapshot.document.texts
        path = self.snapshot.locate(span.file)
        uri = self.opened.get(path) or path.as_uri()
        source = SourceText(file=span.file, content=texts.get(span.file, ""))
        return types.Location(uri=uri, range=self.units.range(source, span) if span.file in texts else START)


def find_uris(snapshot: Snapshot, uri: str, opened: Mapping[Path, str]) -> Mapping[str, str]:
    """Return the addresses of the files of a spec, by their names in messages: those that the editor uses."""
    texts: Mapping[str, str] = {} if snapshot.document is None else snapshot.document.texts
    paths = {file: snapshot.locate(file) for file in (*texts, *snapshot.checked.texts)}
    return {**{file: opened.get(path) or path.as_uri() for file, path in paths.items()}, snapshot.file: uri}


def _complete(question: Question, params: types.CompletionParams) -> types.CompletionList:
    offset = question.offset(params.position)
    start, found = complete(question.snapshot, question.names, offset)
    span = question.snapshot.source.span(start, offset)
    place = question.range(span)
    items = [
        types.CompletionItem(
            label=each.label,
            kind=_KINDS[each.kind],
            detail=each.detail or None,
            documentation=_mark_down(each.text) if each.text else None,
            text_edit=types.TextEdit(range=place, new_text=each.write(question.snapshot.text, start, offset)),
            sort_text=f"{index:04d}",
        )
        for index, each in enumerate(found)
    ]
    return types.CompletionList(is_incomplete=False, items=items)


def _mark_down(text: str) -> types.MarkupContent:
    return types.MarkupContent(kind=types.MarkupKind.Markdown, value=text)


def _outline(question: Question) -> list[types.DocumentSymbol]:
    drawn: list[types.DocumentSymbol] = []
    for section in navigate.outline(question.snapshot):
        children: list[types.DocumentSymbol] = []
        for each in section.entries:
            inside = navigate.list_inside(question.snapshot, each.symbol) if section.name == "blocks" else ()
            ops = [_draw(question, op.symbol.name, op.span, op.whole, "ops", []) for op in inside]
            children.append(_draw(question, each.symbol.name, each.span, each.whole, section.name, ops))
        drawn.append(_draw(question, section.name, section.span, section.whole, section.name, children))
    return drawn


def _draw(
    question: Question, name: str, span: Span, whole: Span, kind: str, children: list[types.DocumentSymbol]
) -> types.DocumentSymbol:
    selection, place = question.range(span), question.range(whole)
    around = types.Range(start=selection.start, end=max(selection.end, place.end))
    return types.DocumentSymbol(
        name=name, kind=_SYMBOLS[kind], range=around, selection_range=selection, children=children
    )


Options: TypeAlias = types.CompletionOptions | types.RenameOptions | types.CodeActionOptions | None
Request: TypeAlias = (
    types.CompletionParams
    | types.HoverParams
    | types.DefinitionParams
    | types.ReferenceParams
    | types.PrepareRenameParams
    | types.RenameParams
    | types.DocumentSymbolParams
    | types.CodeActionParams
)
REQUESTS: Mapping[str, Options] = {
    types.TEXT_DOCUMENT_COMPLETION: types.CompletionOptions(trigger_characters=_TRIGGERS),
    types.TEXT_DOCUMENT_HOVER: None,
    types.TEXT_DOCUMENT_DEFINITION: None,
    types.TEXT_DOCUMENT_REFERENCES: None,
    types.TEXT_DOCUMENT_PREPARE_RENAME: None,
    types.TEXT_DOCUMENT_RENAME: types.RenameOptions(prepare_provider=True),
    types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: None,
    types.TEXT_DOCUMENT_CODE_ACTION: types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix]),
}
"""The requests that are answered, and the options registered for each."""


def answer(question: Question, request: Request) -> object:
    """Return the answer to a request; raise RenameError for a name that cannot be changed."""
    snapshot = question.snapshot
    match request:
        case types.CompletionParams():
            return _complete(question, request)
        case types.HoverParams():
            plan = snapshot.checked.plan or question.plan
            text = hover(snapshot, plan, question.offset(request.position))
            return types.Hover(contents=_mark_down(text)) if text else None
        case types.DefinitionParams():
            span = navigate.find_definition(snapshot, question.offset(request.position))
            return None if span is None else question.location(span)
        case types.ReferenceParams():
            offset, declaration = question.offset(request.position), request.context.include_declaration
            return [*map(question.location, navigate.find_references(snapshot, offset, declaration=declaration))]
        case types.PrepareRenameParams():
            mention = navigate.check_rename(snapshot, question.offset(request.position))
            return types.PrepareRenamePlaceholder(range=question.range(mention.span), placeholder=mention.symbol.name)
        case types.RenameParams():
            places = navigate.rename(snapshot, question.offset(request.position), request.new_name)
            edits = [types.TextEdit(range=question.range(each), new_text=request.new_name) for each in places]
            return types.WorkspaceEdit(changes={question.uri: edits})
        case types.DocumentSymbolParams():
            return _outline(question)
        case types.CodeActionParams():
            reporter = Reporter(snapshot=snapshot, units=question.units, uris=question.uris)
            return [*reporter.list_fixes(request.range)]
