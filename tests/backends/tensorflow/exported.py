"""Run exported programs and an emitted file, in a process that has neither stepgraph nor the modules of the user."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.modules.update(dict.fromkeys(("graphspec", "compiler", "runtime", "torch", "pieces", "tests")))  # none of these
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0")

    import numpy as np
    import tensorflow as tf

    outputs = {}
    for folder in sorted(Path().glob("*/*.savedmodel")):
        name, program = folder.parent.name, tf.saved_model.load(str(folder))
        served = program.signatures["serving_default"]
        for file in sorted(Path().glob(f"{name} *.npz")):
            batch = {key: tf.constant(value) for key, value in np.load(file).items()}
            found, same = program(batch), served(**batch)
            for key, value in found.items():
                outputs[f"{file.stem} {key}"] = np.stack([value, same[key]])
    sys.path.insert(0, "")
    emitted = importlib.import_module("emitted")
    emitted.build(seed=2)
    for number, file in enumerate(sorted(Path().glob("batch *.npz"))):
        found = emitted.step({key: tf.constant(value) for key, value in np.load(file).items()})
        outputs |= {f"emitted {number} {key}": value.numpy() for key, value in found.items()}
    for name, model in emitted.MODELS.items():
        outputs |= {f"emitted {name} {at}": each.numpy() for at, each in enumerate(model.parameters())}
    np.savez("alone.npz", **outputs)
