"""More shapes of specs in which something could take more than twice as long for twice as many ops, or for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.shapes import SHAPES, Document, begin


def make_needless(ops: int) -> Document:
    """Return models that have nothing to do with each other, each called after another is updated."""
    made = SHAPES["independent models"](ops)
    updates = [name for name, op in made["ops"].items() if "update" in op]
    forwards = [op for op in made["ops"].values() if "forward" in op]
    for at, op in enumerate(forwards[1:]):
        op["after"] = [updates[0], updates[at]] if at else [updates[0]]
    return made


def make_penalized(ops: int) -> Document:
    """Return many updates of a regularized model, which is held where gradients are not finite."""
    made = SHAPES["updates of one model"](ops)
    made["precision"] = {"loss_scale": "dynamic"}
    made["models"]["net"]["regularizer"] = {"l2": 0.01}
    return made


def make_penalized_twice(ops: int) -> Document:
    """Return regularized models that are updated twice; their first updates are held together."""
    made = SHAPES["independent models"](ops // 2)
    made["precision"] = {"loss_scale": "dynamic"}
    for name, op in dict(made["ops"]).items():
        if "update" in op:
            made["models"][op["update"]]["regularizer"] = {"l2": 0.01}
            made["ops"] |= {
                f"{name}_seen": {"forward": op["update"], "inputs": "x", "after": [name]},
                f"{name}_loss": {"loss": "mse", "inputs": [f"{name}_seen", 0.0]},
                f"{name}_again": {"update": op["update"], "loss": f"{name}_loss"},
            }
    return made


def make_residual(ops: int) -> Document:
    """Return a chain of calls of one model, to each of which its input is added, and a target from the same model."""
    made = begin("net")
    made["ops"]["target"] = {"forward": "net", "inputs": "x"}
    value = "x"
    for at in range(ops // 2):
        made["ops"] |= {
            f"f{at}": {"forward": "net", "inputs": value},
            f"r{at}": {"call": "add", "inputs": [value, f"f{at}"]},
        }
        value = f"r{at}"
    made["ops"] |= {"loss": {"loss": "mse", "inputs": [value, "target"]}, "step": {"update": "net", "loss": "loss"}}
    return made


def make_shared_sums(ops: int) -> Document:
    """Return losses each of which is the sum of the two before it, of means and sums over several steps."""
    made = begin("net", micro_batches=2)
    made["ops"] = {
        "f": {"forward": "net", "inputs": "x"},
        "l0": {"loss": "mse", "inputs": ["f", 0.0], "reduction": "sum"},
        "l1": {"loss": "mse", "inputs": ["f", 1.0], "reduction": "sum"},
    }
    for at in range(2, ops):
        made["ops"][f"l{at}"] = {"call": "add", "inputs": [f"l{at - 1}", f"l{at - 2}"]}
    made["ops"]["step"] = {"update": "net", "loss": f"l{ops - 1}", "accumulate": 4}
    return made


def make_shared_sets(ops: int) -> Document:
    """Return gradient sets each of which is the sum of the two before it, under a loss scale."""
    made = begin("net", precision={"loss_scale": "dynamic"})
    made["ops"] = {
        "f": {"forward": "net", "inputs": "x"},
        "l0": {"loss": "mse", "inputs": ["f", 0.0]},
        "l1": {"loss": "mse", "inputs": ["f", 1.0]},
        "g0": {"gradient": "l0", "wrt": "net"},
        "g1": {"gradient": "l1", "wrt": "net"},
    }
    for at in range(2, ops):
        made["ops"][f"g{at}"] = {"call": "add", "inputs": [f"g{at - 1}", f"g{at - 2}"]}
    made["ops"]["step"] = {"update": "net", "gradients": f"g{ops - 1}", "accumulate": 4}
    return made


def make_trunk(ops: int) -> Document:
    """Return heads with updates of their own on one trunk, which is updated on the sum of their losses."""
    heads = range(ops // 4)
    made = begin("trunk", *(f"h{at}" for at in heads))
    made["ops"]["seen"] = {"forward": "trunk", "inputs": "x"}
    total = ""
    for at in heads:
        made["ops"] |= {
            f"f{at}": {"forward": f"h{at}", "inputs": "seen"},
            f"l{at}": {"loss": "mse", "inputs": [f"f{at}", 0.0]},
            f"u{at}": {"update": f"h{at}", "loss": f"l{at}"},
        }
        if total:
            made["ops"][f"s{at}"] = {"call": "add", "inputs": [total, f"l{at}"]}
        total = f"s{at}" if total else f"l{at}"
    made["ops"]["step"] = {"update": "trunk", "loss": total}
    return made


def make_deep(ops: int) -> Document:
    """Return many models, each called on what the one before gave, and one update of all."""
    models = [f"m{at}" for at in range(ops // 2)]
    made = begin(*models)
    value = "x"
    for name in models:
        made["ops"][f"f_{name}"] = {"forward": name, "inputs": value}
        value = f"f_{name}"
    made["ops"] |= {"loss": {"loss": "mse", "inputs": [value, 0.0]}, "step": {"update": models, "loss": "loss"}}
    return made


MORE: Mapping[str, Callable[[int], Document]] = {
    "needless afters": make_needless,
    "updates that may add penalties": make_penalized,
    "models that are penalized twice": make_penalized_twice,
    "residual calls": make_residual,
    "sums of shared losses": make_shared_sums,
    "sums of shared gradients": make_shared_sets,
    "heads on a trunk": make_trunk,
    "one update of many models": make_deep,
}
