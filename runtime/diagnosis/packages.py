"""The installed packages that steps, runs and logs need, by their versions; nothing is imported."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package, its version where it is installed, and what brings it where it is not."""

    name: str
    version: str | None
    purpose: str
    install: str


_KNOWN = (
    ("numpy", ("numpy",), "batches of data", "pip install numpy"),
    ("safetensors", ("safetensors",), "checkpoints", "pip install safetensors"),
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
