"""The checkpoint of a run: ``weights.safetensors`` and ``manifest.json`` in one folder, never half written."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

WEIGHTS = "weights.safetensors"
MANIFEST = "manifest.json"
_PACKAGES = ("stepgraph", "numpy", "safetensors")

Arrays = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the numbers come from: the spec and its text, the seed, how many steps were made, and on what."""

    name: str
    text: str
    step: int
    seed: int
    backend: str
    device: str


def save_checkpoint(folder: Path, arrays: Arrays, origin: Origin) -> int:
    """Write a checkpoint folder and return the size of its weights in bytes.

    It is made beside its place and moved there as a whole; one that was there before is replaced.
    """
    from safetensors.numpy import save

    making = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        weights = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
        (making / WEIGHTS).write_bytes(weights)
        manifest = _describe(arrays, origin, weights)
        (making / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        making.chmod(0o777 & ~_umask())
        _replace(making, folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return len(weights)


def _replace(making: Path, folder: Path) -> None:
    """Put a finished folder in its place; a folder cannot be renamed over another, so the old one steps aside."""
    if not folder.exists():
        making.rename(folder)
        return
    aside = making.with_name(f"{making.name}-old")
    folder.rename(aside)
    making.rename(folder)
    shutil.rmtree(aside)


def _umask() -> int:
    """Return the process's mask for new files: temporary folders ignore it and are closed to others."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _describe(arrays: Arrays, origin: Origin, weights: bytes) -> Mapping[str, object]:
    return {
        "checkpoint": 1,
        "name": origin.name,
        "step": origin.step,
        "seed": origin.seed,
        "backend": origin.backend,
        "device": origin.device,
        "spec_sha256": hashlib.sha256(origin.text.encode()).hexdigest(),
        "weights": {"file": WEIGHTS, "sha256": hashlib.sha256(weights).hexdigest()},
        "versions": _versions(origin.backend),
        "tensors": {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()},
    }


def _versions(backend: str) -> Mapping[str, str]:
    found = {"python": platform.python_version()}
    for package in (*_PACKAGES, backend):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
