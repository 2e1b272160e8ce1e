"""Specs of any size in eight shapes: what the time of a compilation may depend on.

Each function returns a document with about as many ops as it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Document: TypeAlias = dict[str, Any]


def begin(*models: str, **fields: object) -> Document:
    """Return a document with some models of one layer, no ops, and other fields."""
    return {
        "graphspec": 1,
        "name": "shape",
        "inputs": {"x": {"shape": ["batch", 4]}},
        "models": {name: {"layers": [{"linear": 4}], "optimizer": "adam"} for name in models},
        "ops": {},
        **fields,
    }


def make_chain(ops: int) -> Document:
    """Return a chain of calls before one model."""
    made = begin("net")
    value = "x"
    for at in range(ops - 3):
        made["ops"][f"c{at}"] = {"call": "mul", "inputs": [value, 1.01]}
        value = f"c{at}"
    made["ops"] |= _train("net", value)
    return made


def make_independent(ops: int) -> Document:
    """Return models that have nothing to do with each other."""
    made = begin(*(f"m{at}" for at in range(ops // 3)))
    for name in made["models"]:
        made["ops"] |= _train(name, "x")
    return made


def make_coupled(ops: int) -> Document:
    """Return pairs of models that judge each other, with an average of one of each."""
    pairs = range(ops // 7)
    made = begin(*(f"{name}{at}" for at in pairs for name in "gd"))
    for at in pairs:
        made["ops"] |= {
            f"fake{at}": {"forward": f"g{at}", "inputs": "x"},
            f"on{at}": {"forward": f"d{at}", "inputs": f"fake{at}", "after": []},
            f"gl{at}": {"loss": "mse", "inputs": [f"on{at}", 1.0]},
            f"dl{at}": {"loss": "mse", "inputs": [f"on{at}", 0.0]},
            f"step_d{at}": {"update": f"d{at}", "loss": f"dl{at}"},
            f"step_g{at}": {"update": f"g{at}", "loss": f"gl{at}"},
            f"slow{at}": {"ema": f"g{at}", "decay": 0.9},
        }
    return made


def make_losses(ops: int) -> Document:
    """Return many losses of one model, added one by one."""
    made = begin("net")
    made["ops"]["out"] = {"forward": "net", "inputs": "x"}
    total = ""
    for at in range(ops // 2):
        made["ops"][f"l{at}"] = {"loss": "mse", "inputs": ["out", float(at)]}
        if total:
            made["ops"][f"s{at}"] = {"call": "add", "inputs": [total, f"l{at}"]}
        total = f"s{at}" if total else f"l{at}"
    made["ops"]["step"] = {"update": "net", "loss": total}
    return made


def make_updates(ops: int) -> Document:
    """Return many updates of one model, each after the one before."""
    made = begin("net")
    after: list[str] = []
    for at in range(ops // 3):
        made["ops"] |= {
            f"f{at}": {"forward": "net", "inputs": "x", "after": after},
            f"l{at}": {"loss": "mse", "inputs": [f"f{at}", 0.0]},
            f"u{at}": {"update": "net", "loss": f"l{at}", "after": after},
        }
        after = [f"u{at}"]
    return made


def make_blocks(ops: int) -> Document:
    """Return uses of a block, each with a model of its own."""
    made = begin(*(f"m{at}" for at in range(ops // 3)))
    made["blocks"] = {"part": {"inputs": ["source"], "outputs": ["loss"], "ops": {
        "out": {"forward": "m0", "inputs": "source"},
        "loss": {"loss": "mse", "inputs": ["out", 0.0]},
        "step": {"update": "m0", "loss": "loss"},
    }}}  # fmt: skip
    for name in made["models"]:
        made["ops"][f"b_{name}"] = {"use": "part", "inputs": {"source": "x"}, "models": {"m0": name}}
    return made


def make_averages(ops: int) -> Document:
    """Return many averages of one model."""
    made = begin("net")
    made["ops"] = _train("net", "x") | {f"a{at}": {"ema": "net", "decay": 0.9} for at in range(ops - 3)}
    return made


def make_places(ops: int) -> Document:
    """Return ops that say much, in long texts: each has many places."""
    made = begin("net")
    made["ops"] = _train("net", "x")
    for at in range(ops - 3):
        options = {"min": -1.0, "max": 1.0 + at}
        texts = {"doc": f"The output of the net, kept in a range that grows: {at}. " * 4, "mode": ["train", "eval"]}
        made["ops"][f"r{at}"] = {"call": "clip", "inputs": "f_net", "args": options, **texts}
    return made


def _train(model: str, value: str) -> Document:
    """Return the three ops that train a model on a value."""
    return {
        f"f_{model}": {"forward": model, "inputs": value},
        f"l_{model}": {"loss": "mse", "inputs": [f"f_{model}", 0.0]},
        f"u_{model}": {"update": model, "loss": f"l_{model}"},
    }


SHAPES: Mapping[str, Callable[[int], Document]] = {
    "chain of calls": make_chain,
    "independent models": make_independent,
    "coupled models": make_coupled,
    "losses of one model": make_losses,
    "updates of one model": make_updates,
    "blocks": make_blocks,
    "averages of one model": make_averages,
    "long texts": make_places,
}
