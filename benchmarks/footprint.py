"""What one more key of a spec runs, in files and lines of this project: ``python -m benchmarks.footprint [KEY]``.

A small spec is loaded, compiled, printed and emitted, once without the key and once with it; the lines that only the
second run enters are the key's. They are counted twice: above the small spec, which charges a key with all shared
machinery that it is the first to run, and above one that uses gates, schedules, groups and transforms already. With a
KEY it lists the files. Nothing is timed.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from compiler import compile_step
from graphspec import load
from runtime import emit

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("graphspec", "compiler", "runtime"))

Document = dict[str, Any]
LINEAR = {"linear": {"out": 1, "bias": False}}
SMALL: Document = {
    "graphspec": 1,
    "name": "small",
    "inputs": {"x": {"shape": ["batch", 3]}},
    "models": {
        "net": {
            "layers": [{"linear": 4}, "relu", LINEAR],
            "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
        },
        "slow": {"like": "net"},
    },
    "ops": {
        "y": {"forward": "net", "inputs": "x"},
        "cost": {"loss": "mse", "inputs": ["y", 1.0]},
        "step": {"update": "net", "loss": "cost"},
    },
    "outputs": ["cost"],
}
"""A classifier of two layers, and one update."""
RAMP = {"schedule": "linear", "from": 0.1, "to": 0.2, "over": "10 steps"}
MODELS: Document = {
    "two": {
        "layers": [{"linear": 1}],
        "groups": [{"match": "bias", "lr_scale": 0.5}],
        "regularizer": {"l2": 0.1},
        "optimizer": {"name": "sgd", "lr": RAMP},
    },
    "late": {"like": "two"},
    "third": {"layers": [{"linear": 1}], "optimizer": {"name": "adam", "lr": 0.1}},
}
OPS: Document = {
    "v": {"forward": "two", "inputs": "x"},
    "other": {"loss": "mse", "inputs": ["v", 1.0]},
    "next": {"update": "two", "loss": "other"},
    "w": {"forward": "third", "inputs": "x", "snapshot": True},
    "more": {"call": "sub", "inputs": ["w", 2.0], "start": "2 steps", "until": "100 steps"},
    "most": {"call": "mean", "inputs": "more"},
    "last": {"loss": "mse", "inputs": ["w", 1.0], "weight": RAMP},
    "slope": {"gradient": "last", "wrt": "third"},
    "half": {"transform": "scale", "inputs": "slope", "args": {"factor": 0.5}},
    "step_third": {"update": "third", "gradients": "half", "start": "3 steps"},
    "follow": {"copy": "two", "into": "late", "every": 5},
}
LARGE: Document = {**SMALL, "models": {**SMALL["models"], **MODELS}, "ops": {**SMALL["ops"], **OPS}}
"""The small spec next to two updates that use what keys share."""


def in_update(**fields: object) -> Callable[[Document], None]:
    """Return what adds fields to the update."""
    return lambda document: document["ops"]["step"].update(fields)


def add_call(document: Document) -> None:
    """Add a call between the model and its loss."""
    document["ops"] |= {"z": {"call": "tanh", "inputs": "y"}, "cost": {"loss": "mse", "inputs": ["z", 1.0]}}


def hold_ops(**part: object) -> Callable[[Document], None]:
    """Return what puts the ops of the small spec into a part."""

    def change(document: Document) -> None:
        own = {name: document["ops"].pop(name) for name in SMALL["ops"]}
        options = [{"p": 0.5, "ops": own}, {"p": 0.5, "ops": own}] if "choose" in part else None
        held = {"choose": options} if options else {"ops": own}
        document["ops"]["part"] = {**part, **held, "outputs": ["cost"]}
        document["outputs"] = ["part.cost"]

    return change


def add_adapt(document: Document) -> None:
    """Add an inner step of the model, through which its loss is taken."""
    document["ops"] |= {
        "inner": {"loss": "mse", "inputs": ["y", 0.0]},
        "fast": {"adapt": "net", "loss": "inner", "lr": 0.1},
        "reply": {"forward": "fast", "inputs": "x"},
        "cost": {"loss": "mse", "inputs": ["reply", 1.0]},
    }


KEYS: dict[str, Callable[[Document], None]] = {
    "accumulate": in_update(accumulate=3),
    "micro_batches": lambda document: document.update(micro_batches=2),
    "frozen until": lambda document: document["models"]["net"].update(
        groups=[{"match": "^0", "frozen": {"until": "10 steps"}}]
    ),
    "loss_scale": lambda document: document.update(precision={"compute": "float16", "loss_scale": "dynamic"}),
    "ema": lambda document: document["ops"].update(avg={"ema": "net", "into": "slow", "decay": 0.9}),
    "constraint": in_update(constraint={"clip": [-1.0, 1.0]}),
    "clip": in_update(clip={"norm": 1.0}),
    "missing": in_update(missing="skip"),
    "call": add_call,
    "every": in_update(every=3),
    "repeat": hold_ops(repeat=3),
    "choose": hold_ops(choose=None),
    "adapt": add_adapt,
}


def find_lines(document: Document) -> set[tuple[str, int]]:
    """Return the lines of the project that are entered from the text of a document to its emitted source."""
    text, lines = json.dumps(document), set[tuple[str, int]]()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGES):
            return None
        if event == "line":
            lines.add((path, frame.f_lineno))
        return trace

    def run() -> None:
        plan = compile_step(load(text))
        plan.text()
        emit(plan)

    run()  # what is imported or remembered at its first use is not this document's
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)
    return lines


def count(base: Document, key: str) -> Counter[str]:
    """Return, by file, how many lines a key adds to what a document runs."""
    changed = copy.deepcopy(base)
    KEYS[key](changed)
    find_lines(changed)
    return Counter(path for path, _ in find_lines(changed) - find_lines(base))


def main(wanted: str | None) -> None:
    """Print a row for each key, or the files of one above the larger spec."""
    if wanted is not None:
        for path, lines in sorted(count(LARGE, wanted).items()):
            print(f"{lines:5}  {Path(path).relative_to(ROOT)}")
        return
    sizes = [len({path for path, _ in find_lines(each)}) for each in (SMALL, LARGE)]
    print(f"files of the small spec {sizes[0]}, of the larger one {sizes[1]}; files and lines of a key above each:")
    for key in KEYS:
        small, large = count(SMALL, key), count(LARGE, key)
        print(f"{key:14} {len(small):4} {small.total():5}   {len(large):4} {large.total():5}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("key", nargs="?", choices=KEYS, help="list its files")
    main(parser.parse_args().key)
