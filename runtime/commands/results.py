"""Put the text that a command made where the user asked for it."""

from __future__ import annotations

from pathlib import Path

from runtime.folder import cannot_write
from runtime.terminal import say


def deliver(text: str, output: Path | None) -> None:
    """Print a text, or write it to a file; raise SpecError (GS234) where the file cannot be written."""
    if output is None:
        say(text.removesuffix("\n"))
        return
    try:
        output.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise cannot_write(output, error) from error
