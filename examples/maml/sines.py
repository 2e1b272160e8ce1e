"""Tasks for maml.yaml: each is a sine wave of its own, seen at some points and judged at others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt


def waves(count: int, shots: int, seed: int = 0) -> Mapping[str, npt.NDArray[np.float32]]:
    """Return so many waves, `shots` rows of each one after another: a batch of that size is one task.

    Amplitudes are between 0.1 and 5, phases between 0 and pi, and x between -5 and 5 (Finn et al. 2017).
    """
    random = np.random.default_rng(seed)
    amplitude, phase = random.uniform(0.1, 5.0, (count, 1)), random.uniform(0.0, np.pi, (count, 1))
    found: dict[str, npt.NDArray[np.float32]] = {}
    for before in ("", "new_"):
        x = random.uniform(-5.0, 5.0, (count, shots))
        found[f"{before}x"] = x.reshape(-1, 1).astype(np.float32)
        found[f"{before}y"] = (amplitude * np.sin(x - phase)).reshape(-1, 1).astype(np.float32)
    return found
