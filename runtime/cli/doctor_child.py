"""The other process: probe a backend, or build a spec, and print what was found as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphspec.diagnostics import SpecError

PROBE = "probe"
BUILD = "build"
UNALLOWED = frozenset(("GS201", "GS204"))
"""Codes of imports that are not allowed."""


def main(arguments: Sequence[str]) -> None:
    """Do what the first argument says, and print the findings where nothing else is printed."""
    # Output of frameworks and user code goes to standard error; only the findings go to standard output.
    findings = os.dup(1)
    os.dup2(2, 1)
    found = find(arguments)
    with os.fdopen(findings, "w", encoding="utf-8") as stream:
        json.dump(found, stream)


def find(arguments: Sequence[str]) -> Mapping[str, object]:
    """Return the findings of ``probe BACKEND``, or of ``build SPEC BACKEND PACKAGE...`` on the default device.

    The problems of a spec are findings too.
    """
    kind, *rest = arguments
    if kind == PROBE:
        from runtime.registry import find_backend

        try:
            return find_backend(rest[0]).probe().to_plain()
        except SpecError as error:
            sys.exit(error.diagnostics[0].message)
    path, backend, allow = Path(rest[0]), rest[1], rest[2:]
    from compiler import compile_step
    from compiler.timing.units import assume_pace
    from graphspec.loading import load
    from runtime import api
    from runtime.engine.imports import importable
    from runtime.train.pace import find_declared_pace

    spec = load(path)
    plan = compile_step(spec, backend=backend, pace=find_declared_pace(spec, path), pending=True)
    if plan.pending:  # whether a step can be built does not depend on the lengths
        plan = compile_step(spec, backend=backend, pace=assume_pace(plan.pace))
    try:
        with importable(path.parent):
            step = api.build(plan, allow=allow)
    except SpecError as error:
        if all(each.code in UNALLOWED for each in error.diagnostics):
            texts = (text for each in error.diagnostics for text in (each.message, each.help))
            return {"refused": sorted(dict.fromkeys(texts), key=lambda text: "--allow" in text)}
        return {"problems": str(error)}
    return {"device": step.device, "parameters": sum(step.sizes.values())}
