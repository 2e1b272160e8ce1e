"""Specs written by hand for data sets in turn, windows that end with epochs, frozen groups, and what models share."""

from __future__ import annotations

from collections.abc import Mapping

SHAPE = {"shape": ["batch", 3]}
SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9}
LAYERS = [{"linear": 3}, "tanh", {"linear": 3}]


def _document(name: str, models: dict, ops: dict, **fields: object) -> dict:
    """Return a document; epochs have two steps, of which the second is on a batch of `b` where there are data sets."""
    return {"graphspec": 1, "name": name, "inputs": {"x": SHAPE, "y": SHAPE}, "models": models, "ops": ops, **fields}


def _net(**fields: object) -> dict:
    return {"layers": LAYERS, "optimizer": SGD, **fields}


def _fit(model: str, **fields: object) -> dict:
    """Return a forward of a model, its loss, and its update."""
    return {
        f"out_{model}": {"forward": model, "inputs": "x", "after": []},
        f"fit_{model}": {"loss": "mse", "inputs": [f"out_{model}", "y"]},
        f"step_{model}": {"update": model, "loss": f"fit_{model}", **fields},
    }


def ends_elsewhere() -> dict:
    """Return a window of batches of `a`, which the epoch ends on a batch of `b`, and what follows its update."""
    window = {"accumulate": {"steps": 3, "on_epoch_end": "flush"}, "dataset": "a"}
    ops = {**_fit("m", **window), **_fit("n", dataset="b"), "average": {"ema": "m", "decay": 0.5}}
    return _document("ends-elsewhere", {"m": _net(), "n": _net()}, ops)


def counted_apart() -> dict:
    """Return an update at every second batch of `a`, of which two of three are."""
    return _document(
        "counted-apart", {"m": _net(), "n": _net()}, {**_fit("m", dataset="a", every=2), **_fit("n", dataset="b")}
    )


def frozen_first() -> dict:
    """Return a model of which a part is frozen for the first step, amid a window."""
    groups = [{"match": "^0[.]", "frozen": {"until": "1 steps"}}]
    return _document("frozen-first", {"m": _net(groups=groups)}, _fit("m", accumulate=2))


def frozen_by_the_other() -> dict:
    """Return an update of a model whose weight another one freezes for the first step."""
    traits = {"buffers": False, "rng": False, "batch_coupled": False}
    kind = {"args": {"size": 3}, "traits": traits}
    coder = {
        **kind,
        "class": "tests.properties.users:Coder",
        "groups": [{"match": ".", "frozen": {"until": "1 steps"}}],
    }
    reader = {**kind, "class": "tests.properties.users:Reader", "traits": {**traits, "ties": ["coder.weight"]}}
    ops = {
        "code": {"forward": "coder", "inputs": "x"},
        "text": {"forward": "reader", "inputs": "code"},
        "fit": {"loss": "mse", "inputs": ["text", "y"]},
        "step": {"update": "reader", "loss": "fit"},
    }
    return _document("frozen-by-the-other", {"coder": coder, "reader": {**reader, "optimizer": SGD}}, ops)


def counted_as_applied() -> dict:
    """Return a model, frozen in part for two updates, and an average of these two; step 2 overflows."""
    groups = [{"match": "^0[.]", "frozen": {"until": "2 updates"}}]
    ops = {
        "burst": {"call": "mean", "inputs": "fuse_at_2"},
        **_fit("m"),
        "cost": {"call": "mul", "inputs": ["fit_m", "burst"]},
        "step_m": {"update": "m", "loss": "cost", "on_overflow": "own"},
        "mean_m": {"ema": "m", "into": "slow", "decay": 0.5, "until": "2 updates"},
    }
    found = _document("counted-as-applied", {"m": _net(groups=groups), "slow": {"like": "m"}}, ops)
    return {**found, "inputs": {**found["inputs"], "fuse_at_2": SHAPE}}


def given_nothing() -> dict:
    """Return an update that steps for two what both hold; the other's gradients overflow in the second step."""
    ops = {
        "burst": {"call": "mean", "inputs": "fuse_at_2"},
        **_fit("m", shared="sum", on_overflow="own"),
        "head_seen": {"forward": "head"},
        "headed": {"call": "add", "inputs": ["out_m", "head_seen"]},
        "far": {"loss": "huber", "inputs": ["headed", 0.3]},
        "head_loss": {"call": "mul", "inputs": ["far", "burst"]},
        "step_head": {"update": ["m", "head"], "loss": "head_loss", "optimizer": SGD, "on_overflow": "own"},
    }
    head = {"parameter": {"shape": [3], "init": 0.5}}
    found = _document("given-nothing", {"m": _net(), "head": head}, ops)
    return {**found, "inputs": {**found["inputs"], "fuse_at_2": SHAPE}}


def penalized_once() -> dict:
    """Return a window over a mean of rows and a sum over a parameter, which is the same in every step."""
    ops = {
        **_fit("m"),
        "weights": {"forward": "w"},
        "small": {"loss": "mse", "inputs": ["weights", 0.0], "reduction": "sum", "weight": 0.5},
        "cost": {"call": "add", "inputs": ["fit_m", "small"]},
        "step_m": {"update": ["m", "w"], "loss": "cost", "accumulate": 2},
    }
    w = {"parameter": {"shape": [3], "init": 2.0}, "optimizer": SGD}
    return _document("penalized-once", {"m": _net(), "w": w}, ops)


ENDING: Mapping[str, dict] = {
    "ends-elsewhere": ends_elsewhere(),
    "counted-apart": counted_apart(),
    "frozen-first": frozen_first(),
    "frozen-by-the-other": frozen_by_the_other(),
    "counted-as-applied": counted_as_applied(),
    "given-nothing": given_nothing(),
    "penalized-once": penalized_once(),
}
