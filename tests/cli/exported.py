"""Run exported programs: a script for a process that has neither stepgraph nor the user's modules."""

from __future__ import annotations

import sys
from pathlib import Path

OPTIONS = {"classifier": ("--value", "scores")}
VALUES = {"classifier": "scores", "gan": "samples", "custom": "code"}
"""Name of the run -> the output that is compared."""

if __name__ == "__main__":
    sys.modules.update(dict.fromkeys(("graphspec", "compiler", "runtime", "pieces", "tests")))  # cannot be imported

    import numpy as np
    import torch

    outputs = {}
    for name, value in VALUES.items():
        program = torch.export.load(next(Path("runs", name, "export").glob("*.pt2"))).module()
        with np.load(f"{name}.npz") as arrays:
            for key in arrays.files:
                given, size = key.split()
                if given != "expected":
                    with torch.no_grad():
                        outputs[f"{name} {size}"] = program({given: torch.from_numpy(arrays[key])})[value].numpy()
    np.savez("alone.npz", **outputs)
