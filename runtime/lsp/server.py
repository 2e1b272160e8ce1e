"""The language server: what editors ask over standard input and output, answered from snapshots of the texts."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from compiler import Plan
from runtime.lsp.answers import REQUESTS, Question, answer, find_uris
from runtime.lsp.names import NOTHING, Names
from runtime.lsp.navigate import RenameError
from runtime.lsp.places import Units
from runtime.lsp.report import NAME, Reporter
from runtime.lsp.snapshot import Snapshot, is_spec

DELAY = 0.15
"""Seconds without a change after which a text is checked; one that was opened is at once."""
LOG = logging.getLogger(__name__)
Reports: TypeAlias = Mapping[str, list[types.Diagnostic]]


class Asked(Protocol):
    """What every question about a text has."""

    @property
    def text_document(self) -> types.TextDocumentIdentifier:
        """Return which text it is about."""
        ...


@dataclass(kw_only=True)
class Session:
    """An open spec: its newest snapshot, and what was known about it when it could last be read, and be compiled."""

    uri: str
    snapshot: Snapshot
    names: Names = NOTHING
    plan: Plan | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Who has it works out what takes time."""
    reports: Reports = field(default_factory=dict[str, list[types.Diagnostic]])
    """What was found last, by the address of the file it is in."""
    version: int | None = None
    """The version of the text in which it was found, as the editor counts."""
    files: frozenset[Path] = frozenset()
    """The files that it is made of, as far as they were read."""


class Server:
    """The specs that an editor has open, and what is known about them."""

    def __init__(self, backend: str) -> None:
        try:
            found = metadata.version(NAME)
        except metadata.PackageNotFoundError:
            found = "0"
        # Whole texts: pygls would apply changes by lines that end at more characters than those of editors do.
        self.wire = LanguageServer(NAME, found, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.backend = backend
        self.sessions: dict[str, Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_done = False
        """Whether the editor said that it needs no more answers."""

    @property
    def units(self) -> Units:
        """Return the units that the editor counts columns in."""
        encoding = self.wire.workspace.position_encoding
        return Units(encoding.value if isinstance(encoding, types.PositionEncodingKind) else encoding or "utf-16")

    def renew(self, uri: str) -> None:
        """Take a snapshot of a text that was opened or changed; check it, and what includes it, once it rests."""
        text = self.wire.workspace.get_text_document(uri).source
        if is_spec(text):
            self._take(uri, text)
        else:
            self._drop(uri)
        self._renew_others(uri)

    def renew_all(self) -> None:
        """Check every spec again, because other files changed."""
        for session in list(self.sessions.values()):
            self._take(session.uri, session.snapshot.text)

    def forget(self, uri: str) -> None:
        """Stop checking a text that was closed; for what includes it its file counts again."""
        self._drop(uri)
        self._renew_others(uri)

    def _drop(self, uri: str) -> None:
        """Take back what was found in a text."""
        session = self.sessions.pop(uri, None)
        if session is not None:
            self._publish((uri, *session.reports))

    def answer(self, work: Callable[..., object]) -> Callable[[Asked], Awaitable[object]]:
        """Return the handler of a request: it reads the newest snapshot, outside the event loop, and never fails."""

        async def handle(params: Asked) -> object:
            """Return the answer; None for a text that is no spec."""
            session = self.sessions.get(params.text_document.uri)
            if session is None:
                return None
            question = Question(
                snapshot=session.snapshot,
                names=session.names,
                plan=session.plan,
                units=self.units,
                uri=session.uri,
                opened=self._list_opened(),
            )
            try:
                return await asyncio.to_thread(work, question, params)
            except RenameError as error:
                raise JsonRpcInvalidParams(message=str(error)) from None
            except Exception:
                self._log(session.uri)
                return None

        return handle

    def _renew_others(self, uri: str) -> None:
        """Check what includes a text again."""
        changed = find_path(uri)
        for session in list(self.sessions.values()):
            if session.uri != uri and changed in session.files:
                self._take(session.uri, session.snapshot.text)

    def _take(self, uri: str, text: str) -> None:
        """Take a snapshot of a text, and check it."""
        path = find_path(uri)
        name = Path(unquote(urlsplit(uri).path) or "spec.yaml").name
        texts = {each: item.source for each, item in self.wire.workspace.text_documents.items() if each != uri}
        others = {find_path(each): source for each, source in texts.items()}
        snapshot = Snapshot(
            path=Path.cwd() / name if path is None else path,
            text=text,
            backend=self.backend,
            is_saved=path is not None,
            opened={each: source for each, source in others.items() if each is not None},
        )
        delay = DELAY if uri in self.sessions else 0.0
        session = self.sessions.setdefault(uri, Session(uri=uri, snapshot=snapshot))
        session.snapshot = snapshot
        task = asyncio.get_running_loop().create_task(self._check_soon(session, snapshot, delay))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check_soon(self, session: Session, snapshot: Snapshot, delay: float) -> None:
        """Check a text once it rests, and publish what was found, unless it has changed since."""
        version = self.wire.workspace.get_text_document(session.uri).version
        await asyncio.sleep(delay)
        try:
            # What takes time is worked out outside the event loop, one version of a text after another.
            async with session.turn:
                if self._is_newest(session, snapshot):
                    await asyncio.to_thread(lambda: (snapshot.names, snapshot.checked))
            if not self._is_newest(session, snapshot):
                return
            checked = snapshot.checked
            session.names = snapshot.names if snapshot.document is not None else session.names
            session.plan = checked.plan or session.plan
            session.files = frozenset(map(snapshot.locate, checked.texts)) - {snapshot.path}
            uris = find_uris(snapshot, session.uri, self._list_opened())
            before, session.version = session.reports, version
            session.reports = Reporter(snapshot=snapshot, units=self.units, uris=uris).list_diagnostics()
            self._publish((*before, *session.reports))
        except Exception:
            self._log(session.uri)

    def _is_newest(self, session: Session, snapshot: Snapshot) -> bool:
        return session.snapshot is snapshot and self.sessions.get(session.uri) is session

    def _list_opened(self) -> Mapping[Path, str]:
        """Return the addresses of the files that the editor has open."""
        found = {find_path(uri): uri for uri in self.wire.workspace.text_documents}
        return {path: uri for path, uri in found.items() if path is not None}

    def _publish(self, uris: Iterable[str]) -> None:
        """Publish what all specs have found in some files; a file that a spec includes is checked through it alone."""
        included = frozenset(path for each in self.sessions.values() for path in each.files)
        for uri in dict.fromkeys(uris):
            found: list[types.Diagnostic] = []
            for session in self.sessions.values():
                if session.uri != uri or session.snapshot.path not in included:
                    found += (each for each in session.reports.get(uri, ()) if each not in found)
            version = self.sessions[uri].version if uri in self.sessions else None
            params = types.PublishDiagnosticsParams(uri=uri, diagnostics=found, version=version)
            self.wire.text_document_publish_diagnostics(params)

    def _log(self, uri: str) -> None:
        """Log the error that is being handled: the server continues."""
        LOG.exception("an error while working on %s", uri)
        message = f"stepgraph: internal error while working on {uri}, please report it; the log has the traceback"
        self.wire.window_log_message(types.LogMessageParams(type=types.MessageType.Error, message=message))


def find_path(uri: str) -> Path | None:
    """Return the path of a file by its address; None for a text that has none."""
    path = to_fs_path(uri) if urlsplit(uri).scheme == "file" else None
    return None if path is None else Path(path).resolve()


def make_server(backend: str) -> Server:
    """Return the server with all that it answers."""
    server = Server(backend)

    def renew(params: types.DidOpenTextDocumentParams | types.DidChangeTextDocumentParams) -> None:
        """Look at a text that was opened or changed."""
        server.renew(params.text_document.uri)

    def forget(params: types.DidCloseTextDocumentParams) -> None:
        """Leave a text that was closed."""
        server.forget(params.text_document.uri)

    def renew_all(_: types.DidSaveTextDocumentParams | types.DidChangeWatchedFilesParams) -> None:
        """Look again, because files were written."""
        server.renew_all()

    def finish(_: None) -> None:
        """Note that the editor has said goodbye."""
        server.is_done = True

    feature = server.wire.feature
    feature(types.SHUTDOWN)(finish)
    feature(types.TEXT_DOCUMENT_DID_OPEN)(renew)
    feature(types.TEXT_DOCUMENT_DID_CHANGE)(renew)
    feature(types.TEXT_DOCUMENT_DID_CLOSE)(forget)
    feature(types.TEXT_DOCUMENT_DID_SAVE)(renew_all)
    feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)(renew_all)
    for name, options in REQUESTS.items():
        feature(name, options)(server.answer(answer))
    return server


def serve(backend: str) -> bool:
    """Answer an editor on standard input and output until it says goodbye or is gone; return whether it did."""
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("pygls.protocol").setLevel(logging.CRITICAL)  # a refused rename is an answer, and no error here
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the thread that waits for a message cannot be interrupted
    # Messages have a stream of their own: anything else that is printed must not get between them.
    sys.stdout.flush()
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server = make_server(backend)
    server.wire.start_io(stdout=stream)
    return server.is_done
