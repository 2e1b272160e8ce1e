"""``stepgraph schema``: the JSON Schema of the language, for editors."""

from __future__ import annotations

from importlib.resources import files

from runtime.commands.options import Output
from runtime.commands.results import deliver


def schema(output: Output = None) -> None:
    """Print the JSON Schema of graph specs, for editors that read one."""
    deliver(files("schemas").joinpath("graphspec.schema.json").read_text(encoding="utf-8"), output)
