"""An examination as text, in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from runtime.diagnosis.examination import Examination
from runtime.diagnosis.frameworks import Framework
from runtime.diagnosis.packages import Package
from runtime.diagnosis.surroundings import VARIABLES, Folder
from runtime.diagnosis.trial import Trial
from runtime.probe import DeviceProbe

_GIB = 2**30


def tell_examination(found: Examination, spec: Path | None) -> str:
    """Return an examination as text."""
    own = found.stepgraph or "(runs from its source)"
    blocks = [
        [f"stepgraph {own}, Python {found.python} on {found.system}", f"  {found.executable}"],
        ["packages", *_align([_tell_package(package) for package in found.packages])],
        *(list(_tell_framework(framework)) for framework in found.frameworks),
        [f"folder {found.folder.path}", f"  {_tell_folder(found.folder)}"],
        _tell_variables(found),
        [] if spec is None or found.trial is None else list(_tell_trial(found.trial, spec)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _align(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows with their columns below each other."""
    widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(max(map(len, rows), default=0))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()


def _tell_package(package: Package) -> tuple[str, ...]:
    if package.version is not None:
        return package.name, package.version
    return package.name, "missing", f"needed for {package.purpose}: {package.install}"


def _tell_framework(framework: Framework) -> Iterator[str]:
    if framework.probe is None:
        remedy = f"; {framework.help}" if framework.help else ""
        yield f"backend {framework.name}: {framework.trouble}{remedy}"
        return
    where = f"runs on {framework.probe.default} unless told otherwise" if framework.works else "no device works"
    yield f"backend {framework.name} {framework.probe.version}: {where}"
    yield from _align([_tell_device(device) for device in framework.probe.devices])


def _tell_device(device: DeviceProbe) -> tuple[str, ...]:
    if device.trouble:
        return device.name, f"does not work: {device.trouble}"
    memory = "" if device.memory is None else f", {_size(device.memory)} ({_size(device.free or 0)} free)"
    types = "float32 and bfloat16" if device.bfloat16 else "float32, no bfloat16"
    fused = f"fused {', '.join(device.fused)}" if device.fused else "no fused optimizers"
    return device.name, f"{device.title}{memory}", types, fused


def _size(number: int) -> str:
    return f"{number / _GIB:.1f} GiB"


def _tell_folder(folder: Folder) -> str:
    if folder.trouble:
        return f"cannot be written to ({folder.trouble}): name another one with `run --out`"
    return f"can be written to, {_size(folder.free)} free"


def _tell_variables(found: Examination) -> list[str]:
    if not found.variables:
        return ["environment: nothing that changes a run is set"]
    return ["environment", *_align([(f"{key}={value}", VARIABLES[key]) for key, value in found.variables.items()])]


def _tell_trial(trial: Trial, spec: Path) -> Iterator[str]:
    """Yield what came of building the spec; its problems are told apart, as those of every command."""
    if trial.refused:
        yield f"{spec}: not built, because it names code that may not be imported yet"
        yield from (f"  {message}" for message in trial.refused)
    elif trial.problems:
        yield f"{spec}: cannot be built here"
    else:
        yield f"{spec}: can be built: {trial.parameters:,} parameters on {trial.device} ({trial.backend})"
