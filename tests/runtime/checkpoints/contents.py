"""Checkpoints whose content follows from their step, so that another process can tell what was written."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from runtime.checkpoints import Checkpoint


def content_at(step, size=257):
    draws = np.random.default_rng(step)
    arrays = {
        "models.net.0.weight": draws.normal(size=(size, 3)).astype(np.float32),
        "models.net.1.count": np.array(step, dtype=np.int64),
        "optimizers.net.exp_avg.0.weight": draws.normal(size=size),
    }
    origin = {"name": "gan", "step": step, "seed": 4, "backend": "torch", "device": "cpu", "plan": "ab12"}
    loop = {"best": {"step": step, "value": float(draws.normal())}}
    return Checkpoint(arrays=arrays, sections={"origin": origin, "counters": {"steps": {"train": step}}, "loop": loop})


def same(read, written):
    """Return whether two checkpoints agree in every bit, name, type, size and order."""
    pairs = zip(read.arrays.items(), written.arrays.items(), strict=False)
    return (
        list(read.arrays) == list(written.arrays)
        and all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for (_, a), (_, b) in pairs)
        and repr(read.sections) == repr(written.sections)
    )


def forge(folder, change):
    """Change a manifest and make its checksum right again, as only an attacker would."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["checksum"]
    change(manifest)
    manifest["checksum"] = hashlib.sha256(json.dumps(manifest, separators=(",", ":")).encode()).hexdigest()
    path.write_text(json.dumps(manifest))
