"""The surroundings of a run: the folder it would write to, and the environment it would read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
    """Return how it stands with the current directory."""
    here = Path.cwd()
    try:
        with tempfile.TemporaryFile(dir=here) as file:
            file.write(b"x")
        trouble = ""
    except OSError as error:
        trouble = (error.strerror or str(error)).lower()
    return Folder(path=str(here), trouble=trouble, free=shutil.disk_usage(here).free)


def find_variables() -> Mapping[str, str]:
    """Return the variables that matter and are set, with their values."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}
