"""Specs for what random ones do not have, or too seldom."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tests.properties.specs import random_spec

LINEAR = [{"linear": 3}, "tanh", {"linear": 3}]
SHAPE = {"shape": ["batch", 3]}


def _model(layers: list) -> dict:
    return {"layers": layers, "optimizer": {"name": "sgd", "lr": 0.1}}


def _document(name: str, models: dict, ops: dict) -> dict:
    return {"graphspec": 1, "name": name, "inputs": {"x": SHAPE, "y": SHAPE}, "models": models, "ops": ops}


def other_input() -> dict:
    """Return a slope that depends on the target only by a factor: what the slope runs through, the target does not."""
    ops = {
        "v": {"call": "tanh", "inputs": "x"},
        "judged": {"forward": "a", "inputs": "v", "after": []},
        "factor": {"forward": "t", "inputs": "y"},
        "scaled": {"call": "mul", "inputs": ["judged", "factor"]},
        "score": {"call": "sum", "inputs": "scaled"},
        "slope": {"gradient": "score", "wrt": "v"},
        "loss_a": {"loss": "mse", "inputs": ["judged", "y"]},
        "loss_t": {"loss": "mse", "inputs": ["slope", 1.0]},
        "step_a": {"update": "a", "loss": "loss_a"},
        "step_t": {"update": "t", "loss": "loss_t"},
    }
    return _document("other-input", {"a": _model(LINEAR), "t": _model(LINEAR)}, ops)


def almost_equal() -> dict:
    """Return a slope behind BatchNorm, which takes most of it away: divided by its own size, rounding shows."""
    adagrad = {"name": "adagrad", "eps": 1e-4}
    models = {
        "c": {"layers": ["batch_norm", {"linear": 4}], "optimizer": "sgd"},
        "d": {"layers": ["tanh", {"linear": 4}], "optimizer": adagrad},
        "slow_d": {"like": "d"},
    }
    ops = {
        "steep": {"loss": "mse", "inputs": ["slope", 1.0]},
        "slope": {"gradient": "loss", "wrt": "given"},
        "loss": {"loss": "huber", "inputs": ["seen", "other"], "reduction": "sum"},
        "step_d": {"update": "d", "loss": "steep"},
        "step_c": {"update": "c", "loss": "loss"},
        "given": {"forward": "d", "inputs": "x"},
        "other": {"forward": "slow_d", "inputs": "x"},
        "seen": {"forward": "c", "inputs": "given"},
    }
    return {**_document("almost-equal", models, ops), "inputs": {"x": {"shape": ["batch", 4]}}, "seed": 64}


SPECIAL: Mapping[str, dict] = {"other-input": other_input(), "almost-equal": almost_equal()}


def document_of(case: int | str) -> dict:
    """Return the special spec of a name, or the random spec of a seed."""
    return SPECIAL[case] if isinstance(case, str) else random_spec(Random(case))
