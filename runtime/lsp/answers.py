"""The answers to what editors ask, in the terms of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def _hover(question: Question, params: types.HoverParams) -> types.Hover | None:
    plan = question.snapshot.checked.plan or question.plan
    text = hover(question.snapshot, plan, question.offset(params.position))
    return types.Hover(contents=_mark_down(text)) if text else None


def _mark_down(text: str) -> types.MarkupContent:
    return types.MarkupContent(kind=types.MarkupKind.Markdown, value=text)


def _define(question: Question, params: types.DefinitionParams) -> types.Location | None:
    span = navigate.find_definition(question.snapshot, question.offset(params.position))
    return None if span is None else question.location(span)


def _refer(question: Question, params: types.ReferenceParams) -> list[types.Location]:
    offset, declaration = question.offset(params.position), params.context.include_declaration
    return [*map(question.location, navigate.find_references(question.snapshot, offset, declaration=declaration))]


def _prepare_rename(question: Question, params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder:
    mention = navigate.check_rename(question.snapshot, question.offset(params.position))
    return types.PrepareRenamePlaceholder(range=question.range(mention.span), placeholder=mention.symbol.name)


def _rename(question: Question, params: types.RenameParams) -> types.WorkspaceEdit:
    places = navigate.rename(question.snapshot, question.offset(params.position), params.new_name)
    edits = [types.TextEdit(range=question.range(each), new_text=params.new_name) for each in places]
    return types.WorkspaceEdit(changes={question.uri: edits})


def _outline(question: Question, _: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
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


def _fix(question: Question, params: types.CodeActionParams) -> list[types.CodeAction]:
    reporter = Reporter(snapshot=question.snapshot, units=question.units, uris=question.uris)
    return [*reporter.list_fixes(params.range)]


Options: TypeAlias = types.CompletionOptions | types.RenameOptions | types.CodeActionOptions | None

ANSWERS: Mapping[str, tuple[Options, Callable[..., object]]] = {
    types.TEXT_DOCUMENT_COMPLETION: (types.CompletionOptions(trigger_characters=_TRIGGERS), _complete),
    types.TEXT_DOCUMENT_HOVER: (None, _hover),
    types.TEXT_DOCUMENT_DEFINITION: (None, _define),
    types.TEXT_DOCUMENT_REFERENCES: (None, _refer),
    types.TEXT_DOCUMENT_PREPARE_RENAME: (None, _prepare_rename),
    types.TEXT_DOCUMENT_RENAME: (types.RenameOptions(prepare_provider=True), _rename),
    types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: (None, _outline),
    types.TEXT_DOCUMENT_CODE_ACTION: (
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix]),
        _fix,
    ),
}
"""The requests that are answered, the options registered for each, and the function that answers."""
