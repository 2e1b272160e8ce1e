"""Specs of rows that calls have moved, of models that hold one module, and of layers with penalties of their own."""

from __future__ import annotations

from collections.abc import Mapping

LINEAR = [{"linear": 3}, "tanh", {"linear": 3}]
SHAPE = {"shape": ["batch", 3]}
SGD = {"name": "sgd", "lr": 0.1}
TRAITS = {"buffers": False, "rng": False, "batch_coupled": False}


def _document(name: str, models: dict, ops: dict) -> dict:
    return {"graphspec": 1, "name": name, "inputs": {"x": SHAPE, "y": SHAPE}, "models": models, "ops": ops}


def _sums(**more: object) -> dict:
    """Return a sum over rows along the second axis, a product over rows, and an update by each."""
    ops: dict = {}
    for name in "ab":
        ops[f"out_{name}"] = {"forward": name, "inputs": "x"}
        ops[f"apart_{name}"] = {"call": "sub", "inputs": [f"out_{name}", "y"]}
        ops[f"bent_{name}"] = {"call": "square", "inputs": f"apart_{name}"}
        ops[f"turned_{name}"] = {"call": "permute", "inputs": f"bent_{name}", "args": {"dims": [1, 0]}}
        ops[f"step_{name}"] = {"update": name, "loss": f"cost_{name}", **more}
    ops["rows"] = {"call": "sum", "inputs": "turned_a", "args": {"axis": 1}}
    ops["cost_a"] = {"call": "mean", "inputs": "rows"}
    ops["product"] = {"call": "matmul", "inputs": ["turned_b", "y"]}
    ops["cost_b"] = {"call": "mean", "inputs": "product"}
    return ops


def moved_rows() -> dict:
    """Return windows over sums of rows that lie along the second axis."""
    models = {name: {"layers": LINEAR, "optimizer": SGD} for name in "ab"}
    return _document("moved-rows", models, _sums(accumulate=2))


def moved_parts() -> dict:
    """Return the same sums over micro-batches."""
    models = {name: {"layers": LINEAR, "optimizer": SGD} for name in "ab"}
    return {**_document("moved-parts", models, _sums()), "micro_batches": 2}


def shared_module() -> dict:
    """Return two models that hold one module: the one is in training while the other is evaluated."""
    kind = {"args": {"size": 3}}
    speaker = {**kind, "class": "tests.properties.users:Speaker", "traits": TRAITS, "optimizer": SGD}
    hearer = {
        **kind,
        "class": "tests.properties.users:Louder",
        "traits": {**TRAITS, "ties": ["speaker.inner.weight"]},
    }
    ops = {
        "heard": {"forward": "hearer", "inputs": "x"},
        "said": {"forward": "speaker", "inputs": "heard"},
        "fit": {"loss": "mse", "inputs": ["said", "y"]},
        "step": {"update": "speaker", "loss": "fit"},
    }
    return {**_document("shared-module", {"speaker": speaker, "hearer": hearer}, ops), "outputs": ["fit", "heard"]}


def own_terms() -> dict:
    """Return two updates of a model that brings a penalty of its own, where a layer can."""
    keeper = {"class": "tests.properties.users:Keeper", "args": {"size": 3}, "traits": TRAITS, "optimizer": SGD}
    ops = {
        "seen": {"forward": "keeper", "inputs": "x"},
        "fit": {"loss": "mse", "inputs": ["seen", "y"]},
        "small": {"loss": "mse", "inputs": ["seen", 0.0]},
        "first": {"update": "keeper", "loss": "fit"},
        "second": {"update": "keeper", "loss": "small", "after": "first"},
    }
    return _document("own-terms", {"keeper": {**keeper, "regularizer": [{"l2": 0.3, "match": "weight"}]}}, ops)


MOVED: Mapping[str, dict] = {
    "moved-rows": moved_rows(),
    "moved-parts": moved_parts(),
    "shared-module": shared_module(),
    "own-terms": own_terms(),
}
