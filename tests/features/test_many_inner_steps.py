"""Many inner steps, each differentiated through the last: the closed form, and as many as TensorFlow code can nest."""

from __future__ import annotations

import json

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from graphspec.diagnostics import SpecError
from runtime.api import emit
from tests.features.steps import build_step, weights

RATE = 0.1


def adapt(steps: int, order: int = 2) -> str:
    """Return a document that moves a number towards an input by gradient descent, and learns where to begin."""
    made = {
        "graphspec": 1,
        "name": "begin",
        "inputs": {"goal": {"shape": []}},
        "models": {"v": {"parameter": {"shape": [], "init": 3.0}, "optimizer": {"name": "sgd", "lr": 1.0}}},
        "ops": {},
        "outputs": ["left"],
    }
    model = "v"
    for at in range(steps):
        made["ops"] |= {
            f"f{at}": {"forward": model},
            f"l{at}": {"loss": "mse", "inputs": [f"f{at}", "goal"]},
            f"w{at}": {"adapt": model, "loss": f"l{at}", "lr": RATE / 2, "order": order},
        }
        model = f"w{at}"
    made["ops"] |= {
        "last": {"forward": model},
        "left": {"loss": "mse", "inputs": ["last", "goal"]},
        "step": {"update": "v", "loss": "left"},
    }
    return json.dumps(made)


@pytest.mark.parametrize("order", [1, 2])
def test_a_begin_is_learnt_through_many_inner_steps(order: int, backend: str) -> None:
    """An inner step leaves 1 - RATE of the distance d; so the slope is 2 d times that share, squared in full."""
    steps, goal, value = 16, 0.5, 3.0
    share = (1 - RATE) ** steps
    step = build_step(adapt(steps, order), backend)
    for _ in range(3):
        left = step({"goal": np.asarray(goal)})["left"]
        assert np.allclose(left, (share * (value - goal)) ** 2, rtol=1e-9)
        value -= 2 * share**order * (value - goal)
        assert np.allclose(weights(step)["v.value"], value, rtol=1e-9)


def test_more_gradients_than_tensorflow_code_can_nest_are_refused_there() -> None:
    for steps in (19, 30):
        source = adapt(steps)
        compile(emit(compile_step(load(source))), "torch", "exec")
        message = rf"{steps + 1} tapes would be open .*, for the gradients of 'w0' to 'step'"
        with pytest.raises(SpecError, match=message) as refused:
            emit(compile_step(load(source), backend="tensorflow"))
        assert [each.code for each in refused.value.diagnostics] == ["E-BACKEND"]
    compile(emit(compile_step(load(adapt(18)), backend="tensorflow")), "tensorflow", "exec")
