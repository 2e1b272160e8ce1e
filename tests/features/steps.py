"""Steps of small specs, with their weights as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from compiler import compile_step
from graphspec import load
from runtime import Step, build


def build_step(
    text: str, backend: str, settings: Sequence[str] = (), *, dtype: str = "float64", device: str = "cpu"
) -> Step:
    """Return the step of a spec, with portable random numbers."""
    plan = compile_step(load(text, [*settings, "rng=portable"]), backend)
    return build(plan, device=device, dtype=dtype, allow=("tests",))


def weights(step: Step) -> Mapping[str, np.ndarray]:
    """Return parameters and buffers as ``model.name``."""
    arrays = step.state().arrays
    return {name.removeprefix("models."): value for name, value in arrays.items() if name.startswith("models.")}


def set_weights(step: Step, values: Mapping[str, object]) -> None:
    """Give some parameters other values, named ``model.name``."""
    from dataclasses import replace

    state = step.state()
    given = {f"models.{name}": np.asarray(value) for name, value in values.items()}
    changed = {
        name: given[name].astype(value.dtype).reshape(value.shape)
        for name, value in state.arrays.items()
        if name in given
    }
    assert changed.keys() == given.keys()
    step.restore(replace(state, arrays={**state.arrays, **changed}))
