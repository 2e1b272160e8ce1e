"""``stepgraph doctor``: what is installed, what works, and where a spec would run."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import typer

from runtime.cli.completion import complete_spec
from runtime.cli.doctor_child import BUILD, PROBE
from runtime.cli.inspect import deliver, make_plan
from runtime.cli.options import Allow, Backend, BackendOption, Order, Output
from runtime.problems import system_reason
from runtime.terminal import complain

if TYPE_CHECKING:
    from runtime.probe import Probe


class Format(StrEnum):
    """The forms a report can be printed in."""

    text = "text"
    json = "json"


MaybeSpec: TypeAlias = Annotated[
    Path | None, typer.Argument(metavar="SPEC", autocompletion=complete_spec, help="A graph spec to build here.")
]
FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", help="The form of the report.")]


def doctor(
    spec: MaybeSpec = None,
    backend: BackendOption = Backend.torch,
    allow: Allow = None,
    form: FormatOption = Format.text,
    output: Output = None,
) -> None:
    """Tell what is installed and works here, and whether a spec can be built."""
    if spec is not None:
        make_plan(spec, (), backend, Order.fewest)  # problems of the spec itself are reported as always
    found = examine(spec, backend.value, allow or ())
    deliver(json.dumps(found.to_plain(), indent=2) if form is Format.json else format_examination(found, spec), output)
    if found.trial is not None and found.trial.problems:
        complain(found.trial.problems)
    if not found.is_sound:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package, its version where it is installed, and the command that installs it where it is not."""

    name: str
    version: str | None
    purpose: str
    install: str


_KNOWN = (
    ("numpy", ("numpy",), "batches of data", "pip install numpy"),
    ("safetensors", ("safetensors",), "checkpoints", "pip install safetensors"),
    ("filelock", ("filelock",), "runs", "pip install filelock"),
    ("PIL", ("pillow",), "pictures", "pip install pillow"),
    ("matplotlib", ("matplotlib",), "curves.png", "pip install matplotlib"),
    ("torch", ("torch",), "running steps", "pip install 'stepgraph[torch]'"),
    (
        "tensorflow",
        ("tensorflow", "tensorflow-cpu", "tensorflow-macos"),
        "steps for TensorFlow",
        "pip install 'stepgraph[tensorflow]'",
    ),
    ("keras", ("keras",), "steps for TensorFlow", "pip install 'stepgraph[tensorflow]'"),
    ("tensorboardX", ("tensorboardX",), "`log: tensorboard`", "pip install 'stepgraph[tensorboard]'"),
    ("pygls", ("pygls",), "`stepgraph lsp`", "pip install 'stepgraph[editor]'"),
)
"""Name of the module, the distributions that hold it, what needs it, and the command that installs it."""


def find_packages() -> tuple[Package, ...]:
    """Return every package that some part of stepgraph can use."""
    return tuple(
        Package(name=name, version=_find_version(distributions), purpose=purpose, install=install)
        for name, distributions, purpose, install in _KNOWN
    )


def find_own_version() -> str | None:
    """Return the version of stepgraph; None where it runs from its source and is not installed."""
    return _find_version(("stepgraph",))


def _find_version(distributions: tuple[str, ...]) -> str | None:
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


TIMEOUT = 180.0
"""Seconds after which a process counts as stuck; importing a framework from a slow disk takes most of a minute."""

# -P: nothing in the current directory shadows an installed module, as for the command itself.
_START = "import sys; sys.path[:] = {path!r}; from runtime.cli.doctor_child import main; main(sys.argv[1:])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The findings of a process, or why it has none."""

    found: dict[str, object] | None = None
    trouble: str = ""


def run_apart(arguments: Sequence[str], *, timeout: float = TIMEOUT) -> Report:
    """Return what :mod:`runtime.cli.doctor_child` reports for arguments, or how it ended."""
    code = _START.format(path=[entry for entry in sys.path if entry])
    command = [sys.executable, "-P", "-c", code, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return Report(trouble=f"nothing came of it within {timeout:g} seconds")
    errors = done.stderr.decode(errors="replace")
    if done.returncode:
        code = done.returncode
        last = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "")
        if code > 0:
            return Report(trouble=last or f"it ended the process (exit code {code})")
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return Report(trouble=f"it ended the process ({name})")
    try:
        return Report(found=cast("dict[str, object]", json.loads(done.stdout)))
    except ValueError:
        return Report(trouble="it printed something else than its findings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework and the result of probing it; ``trouble`` says why it does not work here, ``help`` what to do."""

    name: str
    probe: Probe | None = None
    trouble: str = ""
    help: str = ""

    @property
    def works(self) -> bool:
        """Return whether a step can run with it."""
        return self.probe is not None and any(not device.trouble for device in self.probe.devices)


def find_frameworks(packages: Mapping[str, Package]) -> Iterator[Framework]:
    """Yield every framework that steps are built for, probed in a process of its own."""
    from pydantic import ValidationError

    from runtime.probe import Probe
    from runtime.registry import BACKENDS

    for name in BACKENDS:
        package = packages[name]
        if package.version is None:
            yield Framework(name=name, trouble="not installed", help=package.install)
            continue
        report = run_apart((PROBE, name))
        if report.found is None:
            trouble = f"it is installed and cannot be used: {report.trouble}"
            yield Framework(name=name, trouble=trouble, help=f"install it anew: {package.install}")
            continue
        try:
            yield Framework(name=name, probe=Probe.from_plain(report.found))
        except ValidationError:
            yield Framework(name=name, trouble="its probe gave something unexpected")


VARIABLES: Mapping[str, str] = {
    "OMP_NUM_THREADS": "how many threads a kernel on the CPU takes",
    "OMP_WAIT_POLICY": "whether threads that wait sleep (PASSIVE) or spin",
    "CUDA_VISIBLE_DEVICES": "which GPUs a process sees, and how they are numbered",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8 makes products on a GPU the same in every run",
    "PYTORCH_ENABLE_MPS_FALLBACK": "1 runs on the CPU what an Apple GPU cannot",
    "TF_ENABLE_ONEDNN_OPTS": "0 makes sums on the CPU the same in every version of TensorFlow",
    "NO_COLOR": "no colours on a terminal",
}
"""Variables of the environment that change what a run does, and how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The folder runs are written to: whether it can be, and how many bytes are free there."""

    path: str
    trouble: str
    free: int


def find_folder() -> Folder:
    """Return the state of the current directory."""
    here = Path.cwd()
    try:
        with tempfile.TemporaryFile(dir=here) as file:
            file.write(b"x")
        trouble = ""
    except OSError as error:
        trouble = system_reason(error)
    return Folder(path=str(here), trouble=trouble, free=shutil.disk_usage(here).free)


def find_variables() -> Mapping[str, str]:
    """Return the variables that matter and are set, with their values."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of building a spec: the device and the number of parameters, or why it failed."""

    backend: str
    device: str = ""
    parameters: int = 0
    refused: tuple[str, ...] = ()
    """Imports that are not allowed: the only reason why it was not built."""
    problems: str = ""

    @property
    def failed(self) -> bool:
        """Return whether something is wrong with the spec, or with its code."""
        return bool(self.problems)


def try_build(path: Path, backend: str, allow: Sequence[str]) -> Trial:
    """Return the result of building a spec in a process of its own."""
    report = run_apart((BUILD, str(path), backend, *allow))
    match report.found:
        case {"device": str() as device, "parameters": int() as parameters}:
            return Trial(backend=backend, device=device, parameters=parameters)
        case {"refused": list()}:
            return Trial(backend=backend, refused=tuple(cast("list[str]", report.found["refused"])))
        case {"problems": str() as problems}:
            return Trial(backend=backend, problems=problems)
        case _:
            return Trial(backend=backend, problems=f"building it failed: {report.trouble}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Everything that was found."""

    stepgraph: str | None
    python: str
    executable: str
    system: str
    packages: tuple[Package, ...]
    frameworks: tuple[Framework, ...]
    folder: Folder
    variables: Mapping[str, str]
    trial: Trial | None

    @property
    def is_sound(self) -> bool:
        """Return whether a step can run here; and the spec in question, if there is one."""
        return any(framework.works for framework in self.frameworks) and not (self.trial and self.trial.failed)

    def to_plain(self) -> dict[str, object]:
        """Return a JSON-compatible value."""
        return {"doctor": 1, "sound": self.is_sound, **asdict(self)}


def examine(spec: Path | None, backend: str, allow: Sequence[str]) -> Examination:
    """Return what is installed on this machine, and whether a spec can be built with a backend on it."""
    packages = find_packages()
    frameworks = tuple(find_frameworks({package.name: package for package in packages}))
    trial = None
    if spec is not None and any(framework.name == backend and framework.works for framework in frameworks):
        trial = try_build(spec, backend, allow)
    elif spec is not None:
        trial = Trial(backend=backend, problems=f"the backend {backend} runs nothing here")
    return Examination(
        stepgraph=find_own_version(),
        python=platform.python_version(),
        executable=sys.executable,
        system=f"{platform.system()} {platform.machine()}",
        packages=packages,
        frameworks=frameworks,
        folder=find_folder(),
        variables=find_variables(),
        trial=trial,
    )


__all__ = ["Examination", "examine"]


_GIB = 2**30


def format_examination(found: Examination, spec: Path | None) -> str:
    """Return an examination as text."""
    own = found.stepgraph or "(runs from its source)"
    packages = [
        (each.name, "missing", f"needed for {each.purpose}: {each.install}")
        if each.version is None
        else (each.name, each.version)
        for each in found.packages
    ]
    blocks = [
        [f"stepgraph {own}, Python {found.python} on {found.system}", f"  {found.executable}"],
        ["packages", *_align(packages)],
        *(list(_describe_framework(framework)) for framework in found.frameworks),
    ]
    folder, trial = found.folder, found.trial
    if folder.trouble:
        state = f"cannot be written to ({folder.trouble}): name another one with `run --out`"
    else:
        state = f"can be written to, {_size(folder.free)} free"
    blocks.append([f"folder {folder.path}", f"  {state}"])
    if found.variables:
        rows = [(f"{key}={value}", VARIABLES[key]) for key, value in found.variables.items()]
        blocks.append(["environment", *_align(rows)])
    else:
        blocks.append(["environment: nothing that changes a run is set"])
    if spec is not None and trial is not None:
        if trial.refused:
            headline = f"{spec}: not built, because it names code that may not be imported yet"
        elif trial.problems:  # reported separately, as by every command
            headline = f"{spec}: cannot be built here"
        else:
            size = f"{trial.parameters:,} parameters on {trial.device}"
            headline = f"{spec}: can be built: {size} ({trial.backend})"
        blocks.append([headline, *(f"  {message}" for message in trial.refused)])
    return "\n\n".join("\n".join(block) for block in blocks)


def _align(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows with their columns below each other."""
    widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(max(map(len, rows), default=0))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()


def _describe_framework(framework: Framework) -> Iterator[str]:
    if framework.probe is None:
        remedy = f"; {framework.help}" if framework.help else ""
        yield f"backend {framework.name}: {framework.trouble}{remedy}"
        return
    where = f"runs on {framework.probe.default} by default" if framework.works else "no device works"
    yield f"backend {framework.name} {framework.probe.version}: {where}"
    rows: list[tuple[str, ...]] = []
    for device in framework.probe.devices:
        if device.trouble:
            rows.append((device.name, f"does not work: {device.trouble}"))
            continue
        memory = "" if device.memory is None else f", {_size(device.memory)} ({_size(device.free or 0)} free)"
        types = "float32 and bfloat16" if device.bfloat16 else "float32, no bfloat16"
        fused = f"fused {', '.join(device.fused)}" if device.fused else "no fused optimizers"
        rows.append((device.name, f"{device.title}{memory}", types, fused))
    yield from _align(rows)


def _size(number: int) -> str:
    return f"{number / _GIB:.1f} GiB"
