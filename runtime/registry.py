"""The backends by name; each is imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from graphspec.words import closest
from runtime.engine.backend import Backend
from runtime.problems import problem

BACKENDS: Mapping[str, str] = {
    "torch": "runtime.backends.torch.backend:TorchBackend",
    "tensorflow": "runtime.backends.tensorflow.backend:TensorFlowBackend",
}


def find_backend(name: str) -> Backend:
    """Return a backend by name; raise SpecError (GS218) where there is none."""
    if name not in BACKENDS:
        near = closest(name, BACKENDS)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise problem("GS218", f"there is no backend {name!r}{meant}", help=f"choose one of {', '.join(BACKENDS)}")
    module, _, attribute = BACKENDS[name].partition(":")
    backend = getattr(importlib.import_module(module), attribute)()
    assert isinstance(backend, Backend)
    return backend
