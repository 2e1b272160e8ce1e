"""An editor for tests: pygls' own client, in a thread, that speaks with a process of `stepgraph lsp`."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from lsprotocol import types
from pygls.lsp.client import LanguageClient

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60
"""Seconds after which an answer counts as missing."""


class Editor:
    """A client with its server; texts are named by their files in a folder, or by an address."""

    def __init__(
        self,
        folder: Path,
        encodings: list[types.PositionEncodingKind] | None = None,
        command: tuple[str, ...] = (sys.executable, "-m", "runtime.cli", "lsp"),
    ):
        self.folder = folder
        self.logged: list[str] = []
        self.published: dict[str, types.PublishDiagnosticsParams] = {}
        self.texts: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self._news = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.client = LanguageClient("tests", "1")
        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self._take(params))
        self.client.feature(types.WINDOW_LOG_MESSAGE)(lambda params: self.logged.append(params.message))
        general = types.GeneralClientCapabilities(position_encodings=encodings)
        self.run(self._start(command))
        renaming = types.TextDocumentClientCapabilities(rename=types.RenameClientCapabilities(prepare_support=True))
        capabilities = types.ClientCapabilities(general=general, text_document=renaming)
        params = types.InitializeParams(capabilities=capabilities, process_id=os.getpid())
        self.server = self.run(self.client.initialize_async(params)).capabilities
        self.client.initialized(types.InitializedParams())

    async def _start(self, command):
        await self.client.start_io(*command, cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT)})

    def run(self, coroutine):
        """Return what a coroutine returns in the thread of the client."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    @property
    def process(self) -> asyncio.subprocess.Process:
        """Return the server's process."""
        return self.client._server

    def _take(self, params: types.PublishDiagnosticsParams) -> None:
        with self._news:
            self.published[params.uri] = params
            self._news.notify_all()

    def wait(self, wanted: Callable[[Mapping[str, types.PublishDiagnosticsParams]], bool]) -> None:
        """Wait until the published diagnostics are as wanted."""
        with self._news:
            assert self._news.wait_for(lambda: wanted(self.published), PATIENCE), self.published

    def uri(self, name: str) -> str:
        """Return the address of a text."""
        return name if ":" in name else f"file://{quote(str(self.folder / name))}"

    def write(self, name: str, text: str) -> None:
        """Open a text, or change an open one."""
        uri = self.uri(name)
        version = self._versions.get(uri, 0) + 1
        is_open = uri in self.texts
        self._versions[uri], self.texts[uri] = version, text
        if is_open:
            changes = [types.TextDocumentContentChangeWholeDocument(text=text)]
            document = types.VersionedTextDocumentIdentifier(uri=uri, version=version)
            self._do(self.client.text_document_did_change, types.DidChangeTextDocumentParams(document, changes))
        else:
            item = types.TextDocumentItem(uri=uri, language_id="yaml", version=version, text=text)
            self._do(self.client.text_document_did_open, types.DidOpenTextDocumentParams(item))

    def check(self, name: str, text: str) -> list[types.Diagnostic]:
        """Open or change a text and return what is found in this version of it."""
        self.write(name, text)
        uri = self.uri(name)
        self.wait(lambda found: uri in found and found[uri].version == self._versions[uri])
        return [*self.published[uri].diagnostics]

    def close(self, name: str) -> None:
        """Close a text."""
        uri = self.uri(name)
        del self.texts[uri]
        self.published.pop(uri, None)
        document = types.TextDocumentIdentifier(uri=uri)
        self._do(self.client.text_document_did_close, types.DidCloseTextDocumentParams(document))

    def _do(self, send, params) -> None:
        """Send a notification from the thread of the client."""

        async def now():
            send(params)

        self.run(now())

    def place(self, name: str, words: str, after: int = 0) -> types.Position:
        """Return the position in UTF-16 that so many characters follow after the first place of some words."""
        text = self.texts[self.uri(name)]
        before = text[: text.index(words) + after]
        lines = before.replace("\r\n", "\n").split("\n")
        return types.Position(line=len(lines) - 1, character=len(lines[-1].encode("utf-16-le")) // 2)

    def _about(self, name: str) -> types.TextDocumentIdentifier:
        return types.TextDocumentIdentifier(uri=self.uri(name))

    def complete(self, name: str, text: str) -> dict[str, types.CompletionItem]:
        """Write a text without its `|`, and return what may stand there."""
        self.write(name, text)
        place = self.place(name, text, text.index("|"))
        self.write(name, text.replace("|", "", 1))
        return self.complete_at(name, place)

    def complete_at(self, name: str, place: types.Position) -> dict[str, types.CompletionItem]:
        """Return what may stand at a position."""
        params = types.CompletionParams(text_document=self._about(name), position=place)
        found = self.run(self.client.text_document_completion_async(params))
        return {} if found is None else {each.label: each for each in found.items}

    def hover(self, name: str, words: str, after: int = 0) -> str:
        """Return the hover text at a place."""
        params = types.HoverParams(text_document=self._about(name), position=self.place(name, words, after))
        found = self.run(self.client.text_document_hover_async(params))
        return "" if found is None else found.contents.value

    def define(self, name: str, words: str, after: int = 0) -> types.Location | None:
        """Return where the name at a place is declared."""
        params = types.DefinitionParams(text_document=self._about(name), position=self.place(name, words, after))
        return self.run(self.client.text_document_definition_async(params))

    def refer(self, name: str, words: str, after: int = 0, *, declaration: bool = True) -> list[types.Location]:
        """Return where the name at a place is mentioned."""
        params = types.ReferenceParams(
            text_document=self._about(name),
            position=self.place(name, words, after),
            context=types.ReferenceContext(include_declaration=declaration),
        )
        return [*(self.run(self.client.text_document_references_async(params)) or ())]

    def rename(self, name: str, words: str, new: str, after: int = 0) -> str:
        """Return the text of a file after a name in it was changed."""
        params = types.RenameParams(
            text_document=self._about(name), position=self.place(name, words, after), new_name=new
        )
        edit = self.run(self.client.text_document_rename_async(params))
        assert [*edit.changes] == [self.uri(name)]
        return self.apply(name, edit.changes[self.uri(name)])

    def prepare_rename(self, name: str, words: str, after: int = 0):
        """Return what an editor shows before a name is changed."""
        params = types.PrepareRenameParams(text_document=self._about(name), position=self.place(name, words, after))
        return self.run(self.client.text_document_prepare_rename_async(params))

    def outline(self, name: str) -> list[types.DocumentSymbol]:
        """Return the outline of a text."""
        params = types.DocumentSymbolParams(text_document=self._about(name))
        return [*self.run(self.client.text_document_document_symbol_async(params))]

    def fixes(self, name: str, place: types.Range) -> list[types.CodeAction]:
        """Return the quick fixes for a range."""
        context = types.CodeActionContext(diagnostics=[])
        params = types.CodeActionParams(text_document=self._about(name), range=place, context=context)
        return [*(self.run(self.client.text_document_code_action_async(params)) or ())]

    def apply(self, name: str, edits) -> str:
        """Return a text with some edits made."""
        text = self.texts[self.uri(name)]
        for edit in sorted(edits, key=lambda each: (each.range.start.line, each.range.start.character), reverse=True):
            start, end = (offset(text, each) for each in (edit.range.start, edit.range.end))
            text = text[:start] + edit.new_text + text[end:]
        return text

    def read(self, name: str, place: types.Range) -> str:
        """Return the characters of a range."""
        text = self.texts[self.uri(name)]
        return text[offset(text, place.start) : offset(text, place.end)]

    def quit(self) -> int:
        """Say goodbye; return the exit code of the server."""
        self.run(self.client.shutdown_async(None))
        self._do(self.client.exit, None)
        return self.finish()

    def finish(self) -> int:
        """Wait until the server has ended; return its exit code."""
        code = self.run(self.process.wait())
        self.run(self.client.stop())
        self.process._transport.close()
        end = time.monotonic() + PATIENCE
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(max(0, end - time.monotonic()))
        self._loop.close()
        return code


def offset(text: str, place: types.Position) -> int:
    """Return the offset of a position in UTF-16."""
    start = [0, *(found.end() for found in re.finditer(r"\r\n|\n|\r", text))][place.line]
    units = text[start:].encode("utf-16-le")[: 2 * place.character]
    return start + len(units.decode("utf-16-le"))
