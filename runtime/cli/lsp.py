"""``stepgraph lsp``: the language server, for editors."""

from __future__ import annotations

import typer

from runtime.cli.options import Backend, BackendOption
from runtime.problems import problem


def lsp(backend: BackendOption = Backend.torch) -> None:
    """Serve an editor: diagnostics, completion, hover texts and more, over standard input and output."""
    try:
        from runtime.lsp.server import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        message = "the language server needs the package pygls"
        raise problem("GS255", message, help="run `pip install 'stepgraph[editor]'`") from error
    if not serve(backend.value):
        raise typer.Exit(1)
