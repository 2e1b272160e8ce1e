"""Small specs whose outcome is worked out by hand: what is refused, said or counted."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from compiler import compile_step
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime import Step, build
from tests.features.breaking import failing
from tests.features.typed_models import make_torch
from tests.properties.users import Coder

SGD = {"name": "sgd", "lr": 0.1}
CLASS = {"class": "tests.properties.users:Coder", "args": {"size": 3}, "optimizer": SGD}
FIT = {
    "out": {"forward": "a", "inputs": "x"},
    "fit": {"loss": "mse", "inputs": ["out", 0.0]},
    "step": {"update": "a", "loss": "fit"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is done with a spec, and what must come of it."""

    find: Callable[[], list[Any]]
    wanted: list[Any]


def has_outcome(case: str) -> bool:
    """Return whether what must come of a case does."""
    return OUTCOMES[case].find() == OUTCOMES[case].wanted


def _build(ops: Mapping[str, object], models: Mapping[str, object], given: Any = None, **fields: object) -> Step:
    """Return a step of some ops; ``given``: the module of the model `a`."""
    inputs = {"x": {"shape": ["batch", 3]}}
    document = {"graphspec": 1, "name": "outcome", "inputs": inputs, "models": models, "ops": ops, **fields}
    modules = {} if given is None else {"a": given}
    return build(compile_step(load(json.dumps(document) + "\n")), device="cpu", models=modules, allow=["tests"])


def _codes(function: Callable[..., object], *arguments: object) -> list[str]:
    """Return the codes with which a call is refused; none where it is not."""
    try:
        function(*arguments)
    except SpecError as error:
        return [one.code for one in error.diagnostics if one.severity == "error"]
    return []


def _batch(**more: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": np.ones((4, 3), np.float32), **more}


def give_replicas() -> list[str]:
    """Return how a build refuses a module for several devices."""
    return _codes(_build, FIT, {"a": CLASS}, nn.DataParallel(Coder(3)))


def give_hooked() -> list[str]:
    """Return how a build refuses a module with a hook that only ``backward()`` calls."""
    hooked = Coder(3)
    hooked.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return _codes(_build, FIT, {"a": CLASS}, hooked)


def meet_column() -> list[list[str]]:
    """Return how a step refuses rows of no declared shape for a column of predictions: a vector, not a column."""
    ops = {**FIT, "fit": {"loss": "mse", "inputs": ["out", "y"]}}
    inputs = {"x": {"shape": ["batch", 3]}, "y": {}}
    step = _build(ops, {"a": {"layers": [{"linear": 1}], "optimizer": SGD}}, inputs=inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own warning of the mistake: pytest would make it an error
        return [_codes(step, _batch(y=np.ones(shape, np.float32))) for shape in ((4,), (4, 1))]


def multiply_scale() -> list[float | None]:
    """Return the loss scale, as TensorFlow's `multiplier` moves it, after steps of which the third overflows."""
    written = {"initial_loss_scale": 4, "increment_period": 2, "multiplier": 3}
    step = _build(FIT, {"a": {"layers": [{"linear": 3}], "optimizer": SGD}}, precision={"loss_scale": written})
    found = []
    for factor in (1.0, 1.0, np.inf, 1.0, 1.0):
        step({"x": np.full((4, 3), factor, np.float32)})
        found.append(step.report.scale_after)
    return found


def go_on() -> list[list[str]]:
    """Return how a step is refused whose function raises behind a write, and the step after it."""
    second = {
        "moved": {"forward": "a", "inputs": "x", "after": "step"},
        "seen": {"forward": "b", "inputs": "moved"},
        "passed": {"call": "tests.features.breaking:second", "inputs": "seen"},
        "fit_b": {"loss": "mse", "inputs": ["passed", 0.0]},
        "step_b": {"update": "b", "loss": "fit_b"},
    }
    model = {"layers": [{"linear": 3}], "optimizer": SGD}
    step = _build({**FIT, **second}, {"a": model, "b": model})
    with failing("second"):
        broken = _codes(step, _batch())
    return [broken, _codes(step, _batch())]


def convert_types() -> list[str]:
    """Return what types of parameters a build of float32 says that it converts, of classes that make several."""
    found = []
    for dtype in ("float16", "float32", "float64"):
        net = {"class": f"{make_torch.__module__}:{make_torch.__name__}", "args": {"first": dtype, "second": dtype}}
        step = _build(FIT, {"a": {**net, "optimizer": SGD}})
        told = f"'a' makes its parameters in {dtype}; they become float32"
        found += [dtype for note in step.notes if told in note]
    return found


OUTCOMES: Mapping[str, Outcome] = {
    "replicas": Outcome(find=give_replicas, wanted=["GS273"]),
    "hooked": Outcome(find=give_hooked, wanted=["GS273"]),
    "column-and-rows": Outcome(find=meet_column, wanted=[["GS211"], []]),
    "multiplied-scale": Outcome(find=multiply_scale, wanted=[4.0, 12.0, 4.0, 4.0, 12.0]),
    "half-done": Outcome(find=go_on, wanted=[["GS210"], ["GS290"]]),
    "other-types": Outcome(find=convert_types, wanted=["float16", "float64"]),
}
