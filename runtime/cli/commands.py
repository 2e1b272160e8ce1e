"""The commands of ``stepgraph``: where each is written, and what it is for. One is imported where it is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from graphspec.startup import paused_collection

SETTINGS: dict[object, object] = {"help_option_names": ["-h", "--help"]}
COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": (
        "runtime.cli.init:init",
        "Write a spec and what it needs into this directory: a template to edit, or an example.",
    ),
    "fmt": (
        "runtime.cli.fmt:fmt",
        "Rewrite specs in the canonical layout: order of keys, brackets, quotes. Comments and meaning stay.",
    ),
    "check": (
        "runtime.cli.inspect:check",
        "Find every problem of one or more specs; runs nothing and imports nothing that they name.",
    ),
    "render": (
        "runtime.cli.inspect:render",
        "Print a spec with its overrides, every default and every interpolation written out.",
    ),
    "plan": (
        "runtime.cli.inspect:plan",
        "Show what happens in a step, in what order, and why; `explain frozen` says what a mark of a line means.",
    ),
    "explain": (
        "runtime.cli.inspect:explain",
        "Tell why an op stands where it stands, or what touches a model; summarize a step; show the page of a code.",
    ),
    "diff": (
        "runtime.cli.inspect:diff",
        "Show what changes from one spec to another: declarations, schedule, versions and reasons.",
    ),
    "emit": (
        "runtime.cli.inspect:emit",
        "Write the step as a Python file that needs the framework alone.",
    ),
    "watch": (
        "runtime.cli.watch:watch",
        "Check a spec and show its plan, again whenever one of its files changes; Ctrl-C ends it.",
    ),
    "run": (
        "runtime.cli.train:run",
        "Train: run the spec's step on its data, and write metrics, curves, pictures and checkpoints.",
    ),
    "eval": (
        "runtime.cli.train:evaluate",
        "Evaluate a run: one pass over a data set with the weights of its best checkpoint, or of another.",
    ),
    "average": (
        "runtime.cli.train:average",
        "Average over the checkpoints of a run: power averages to another width, or weights uniformly.",
    ),
    "export": (
        "runtime.cli.train:export",
        "Export a run: the weights of its best checkpoint as safetensors files, "
        "and a mode that runs without stepgraph.",
    ),
    "bench": (
        "runtime.cli.bench:bench",
        "Time one train step: as it is emitted, as it is built, and as loops of yours take it.",
    ),
    "audit": (
        "runtime.cli.audit:audit",
        "Run some steps of a training program as `python FILE` would, and say what is wrong with them, with its lines.",
    ),
    "port": (
        "runtime.cli.port:port",
        "Write the spec of a training program: record some steps, and compare them with those of the spec.",
    ),
    "schema": (
        "runtime.cli.inspect:schema",
        "Print the JSON Schema of graph specs, for editors that read one.",
    ),
    "lsp": (
        "runtime.cli.lsp:lsp",
        "Serve an editor: diagnostics, completion, hover texts and more, over standard input and output.",
    ),
    "doctor": (
        "runtime.cli.doctor:doctor",
        "Tell what is installed and works here, and whether a spec can be built.",
    ),
}
"""The function of each command, as ``module:name``, and its docstring."""


class Commands(TyperGroup):
    """The group of all commands; typer imports pydantic for its first option."""

    make_context = paused_collection(TyperGroup.make_context)


class _Command(TyperCommand):
    """A name and a summary, which is all that a list of commands shows; what is called is made of the function."""

    @paused_collection
    def make_context(
        self, info_name: str | None, args: list[str], parent: object = None, **extra: object
    ) -> typer.Context:
        """Return the context of the command with its options, so that these parse, complete and run."""
        made = make_command(self.name or "")
        return cast("typer.Context", made.make_context(info_name, args, cast("typer.Context | None", parent), **extra))


def make_command(name: str) -> TyperCommand:
    """Return a command with its options, made of its function; this imports the function."""
    module, _, function = COMMANDS[name][0].partition(":")
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name, context_settings=SETTINGS)(getattr(importlib.import_module(module), function))
    return cast("TyperCommand", get_command(app))


def add_commands(app: typer.Typer) -> None:
    """Add every command to an application."""
    for name, (_, summary) in COMMANDS.items():
        # The lambda stands in for the function, whose module is not imported yet.
        app.command(name, cls=_Command, help=summary)(lambda: None)
