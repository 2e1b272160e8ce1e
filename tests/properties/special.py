"""Specs for what random ones do not have, or too seldom."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from tests.properties.special_endings import ENDING
from tests.properties.special_language import LANGUAGE
from tests.properties.special_moved import MOVED
from tests.properties.special_overflow import OVERFLOWING
from tests.properties.special_parted import PARTED
from tests.properties.special_rows import TABLES
from tests.properties.special_rules import RULED
from tests.properties.specs import base_spec

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


def equal() -> dict:
    """Return a distance between a model and its like, which begin alike: its slope is 1 or -1 by rounding alone."""
    ops = {
        "given": {"forward": "a", "inputs": "x"},
        "other": {"forward": "slow_a", "inputs": "x"},
        "loss": {"loss": "l1", "inputs": ["other", "given"]},
        "slopes": {"gradient": "loss", "wrt": ["a"]},
        "step": {"update": ["a"], "gradients": "slopes"},
    }
    models = {"a": {"layers": [{"linear": 4}], "optimizer": "sgd"}, "slow_a": {"like": "a"}}
    return {**_document("equal", models, ops), "inputs": {"x": {"shape": ["batch", 4]}}}


def equal_parts() -> dict:
    """Return a distance between two calls of a model on the same rows, once among others: 0 up to rounding."""
    ops = {
        "twice": {"call": "concat", "inputs": ["x", "x"], "args": {"axis": 0}},
        "seen": {"forward": "a", "inputs": "twice"},
        "halves": {"call": "split", "inputs": "seen", "outputs": ["one", "two"], "args": {"sections": 2, "axis": 0}},
        "given": {"forward": "a", "inputs": "x"},
        "loss": {"loss": "l1", "inputs": ["given", "two"]},
        "slope": {"gradient": "loss", "wrt": "two"},
        "steep": {"loss": "mse", "inputs": ["slope", 1.0]},
        "step": {"update": ["a"], "loss": "steep"},
    }
    models = {"a": {"layers": [{"linear": 4}], "optimizer": "sgd"}}
    return {**_document("equal-parts", models, ops), "inputs": {"x": {"shape": ["batch", 4]}}}


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


def lazy() -> dict:
    """Return a loss with a term that every second step does without."""
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "fit": {"loss": "mse", "inputs": ["out", "y"]},
        "penalty": {"loss": "mse", "inputs": ["out", 0.0], "every": 2},
        "loss": {"call": "add", "inputs": ["fit", "penalty"]},
        "step": {"update": "a", "loss": "loss"},
    }
    return _document("lazy", {"a": _model(LINEAR)}, ops)


def adapted() -> dict:
    """Return two inner steps of a model, and an update of it by what the weights behind them give."""
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "fit": {"loss": "mse", "inputs": ["out", "y"]},
        "slopes": {"gradient": "fit", "wrt": "a"},
        "fast": {"adapt": "a", "gradients": "slopes", "lr": 0.5},
        "again": {"forward": "fast", "inputs": "x"},
        "fit_again": {"loss": "mse", "inputs": ["again", "y"]},
        "more": {"gradient": "fit_again", "wrt": "fast"},
        "faster": {"adapt": "fast", "gradients": "more", "lr": 0.5},
        "reply": {"forward": "faster", "inputs": "y"},
        "miss": {"loss": "mse", "inputs": ["reply", "x"]},
        "step": {"update": "a", "loss": "miss"},
    }
    return _document("adapted", {"a": _model(LINEAR)}, ops)


def adapted_early() -> dict:
    """Return a derived model that is called behind an update of the model whose weights it begins with."""
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "fit": {"loss": "mse", "inputs": ["out", "y"]},
        "step": {"update": "a", "loss": "fit"},
        "slopes": {"gradient": "fit", "wrt": "a"},
        "fast": {"adapt": "a", "gradients": "slopes", "lr": 0.5},
        "reply": {"forward": "fast", "inputs": "y"},
        "judged": {"forward": "b", "inputs": "reply"},
        "miss": {"loss": "mse", "inputs": ["judged", "x"]},
        "last": {"update": "b", "loss": "miss", "after": "step"},
    }
    return _document("adapted-early", {name: _model(LINEAR) for name in "ab"}, ops)


def state() -> dict:
    """Return a state that is written as soon as a batch is there, and read later at what it was."""
    ops = {
        "mean": {"call": "mean", "inputs": "x", "args": {"axis": 0}},
        "given": {"call": "sub", "inputs": ["x", "mean"]},
        "out": {"forward": "a", "inputs": "given"},
        "aside": {"call": "sub", "inputs": ["out", "center"]},
        "loss": {"loss": "mse", "inputs": ["aside", "y"]},
        "step": {"update": "a", "loss": "loss"},
        "move": {"assign": "center", "value": "mean"},
    }
    return {**_document("state", {"a": _model(LINEAR)}, ops), "state": {"center": {"shape": [3]}}}


def weighed() -> dict:
    """Return clips by weights that others write: of a set of two models, and in the second of two updates of one."""
    ops = {
        "out_a": {"forward": "a", "inputs": "x"},
        "out_b": {"forward": "b", "inputs": "out_a"},
        "loss_a": {"loss": "mse", "inputs": ["out_a", "y"]},
        "loss_b": {"loss": "huber", "inputs": ["out_b", "y"], "weight": 9.0},
        "slopes": {"gradient": "loss_b", "wrt": ["a", "b"]},
        "step_a": {"update": "a", "loss": "loss_a"},
        "short": {"transform": "clip_agc", "inputs": "slopes", "args": {"clipping": 0.1}},
        "even": {"transform": "normalize", "inputs": "short"},
        "step_b": {"update": "b", "gradients": "even"},
        "out_c": {"forward": "c", "inputs": "x"},
        "loss_c": {"loss": "mse", "inputs": ["out_c", "y"], "weight": 9.0},
        "last_c": {"loss": "huber", "inputs": ["out_c", "x"], "weight": 9.0},
        "first_step": {"update": "c", "loss": "loss_c"},
        "last_step": {"update": "c", "loss": "last_c", "clip": {"agc": 0.1}, "after": "first_step"},
    }
    return _document("weighed", {name: _model(LINEAR) for name in "abc"}, ops)


def windows() -> dict:
    """Return updates that take the gradients of two steps: of a sum, and of a set with a clip on the way."""
    ops = {
        "seen": {"forward": "a", "inputs": "x"},
        "other": {"forward": "b", "inputs": "y"},
        "fit": {"loss": "mse", "inputs": ["seen", "y"], "reduction": "sum"},
        "small": {"loss": "mse", "inputs": ["other", 0.0]},
        "slope": {"gradient": "small", "wrt": "b"},
        "short": {"transform": "clip_norm", "inputs": "slope", "args": {"norm": 0.01}},
        "step_a": {"update": "a", "loss": "fit", "accumulate": 2},
        "step_b": {"update": "b", "gradients": "short", "accumulate": 2},
    }
    return _document("windows", {"a": _model(LINEAR), "b": _model(LINEAR)}, ops)


def counted() -> dict:
    """Return two updates of one optimizer, whose second clips by how many it has applied."""
    limit = {"schedule": "piecewise", "at": {"0": 9.0, "1": 0.02, "2": 9.0, "3": 0.03, "4": 9.0, "5": 0.01, "6": 9.0}}
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "far": {"loss": "mse", "inputs": ["out", "y"], "weight": 9.0},
        "near": {"loss": "huber", "inputs": ["out", "x"], "weight": 9.0},
        "first_step": {"update": "a", "loss": "far"},
        "last_step": {"update": "a", "loss": "near", "clip": {"norm": limit}, "after": "first_step"},
    }
    return _document("counted", {"a": _model(LINEAR)}, ops)


def penalized() -> dict:
    """Return a model with a penalty and two updates, of which the one that is listed last is applied first."""
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "fit": {"loss": "mse", "inputs": ["out", "y"]},
        "small": {"loss": "mse", "inputs": ["out", 0.0]},
        "second": {"update": "a", "loss": "small", "after": "first", "clip": {"norm": 0.05}},
        "first": {"update": "a", "loss": "fit"},
    }
    return _document("penalized", {"a": {**_model(LINEAR), "regularizer": {"l2": 0.3}}}, ops)


def moved_terms() -> dict:
    """Return a model whose groups, penalty and constraints follow the updates of its optimizer, every other step."""
    down = {"schedule": "linear", "from": 1.0, "to": 0.1, "over": 3}
    terms = {
        "groups": [{"match": "bias", "lr_scale": {**down, "from": 3.0}, "weight_decay": down}],
        "regularizer": {"l2": {**down, "from": 0.5}, "l1": {"schedule": "warmup", "to": 0.05, "over": 2}},
        "constraint": [{"clip": [{**down, "from": -0.5, "to": -0.1}, 0.4]}, {"max_norm": down}],
    }
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "fit": {"loss": "mse", "inputs": ["out", "y"]},
        "step": {"update": "a", "loss": "fit", "every": 2},
    }
    return _document("moved-terms", {"a": {**_model(LINEAR), **terms}}, ops)


def left_out() -> dict:
    """Return labels that are left out: over two steps, with a term beside that counts by rows, and over two parts."""
    ops = {
        "seen": {"forward": "a", "inputs": "x"},
        "other": {"forward": "b", "inputs": "y"},
        "fit": {"loss": "cross_entropy", "inputs": ["seen", "label"], "args": {"ignore_index": 0}},
        "small": {"loss": "mse", "inputs": ["seen", 0.0]},
        "cost": {"call": "sub", "inputs": ["small", "fit"]},
        "guess": {"loss": "cross_entropy", "inputs": ["other", "label"], "args": {"ignore_index": 1}},
        "step_a": {"update": "a", "loss": "cost", "accumulate": 2},
        "step_b": {"update": "b", "loss": "guess"},
    }
    inputs = {"x": SHAPE, "y": SHAPE, "label": {"shape": ["batch"], "dtype": "int64"}}
    models = {"a": _model(LINEAR), "b": _model(LINEAR)}
    return {**_document("left-out", models, ops), "inputs": inputs, "micro_batches": 2}


def absent_terms() -> dict:
    """Return a window of a term that counts labels and is there in some steps, beside a product over two parts."""
    ops = {
        "seen": {"forward": "a", "inputs": "x"},
        "other": {"forward": "b", "inputs": "y"},
        "factor": {"forward": "scale"},
        "fit": {"loss": "cross_entropy", "inputs": ["seen", "label"], "args": {"ignore_index": 0}, "start": 2},
        "small": {"loss": "mse", "inputs": ["seen", 0.0]},
        "cost": {"call": "add", "inputs": ["small", "fit"]},
        "slope": {"gradient": "cost", "wrt": "a", "grad_outputs": "factor"},
        "guess": {"loss": "cross_entropy", "inputs": ["other", "label"], "args": {"ignore_index": 1}},
        "scaled": {"call": "mul", "inputs": ["guess", "factor"]},
        "step_a": {"update": "a", "gradients": "slope", "accumulate": 3},
        "step_b": {"update": "b", "loss": "scaled"},
    }
    inputs = {"x": SHAPE, "y": SHAPE, "label": {"shape": ["batch"], "dtype": "int64"}}
    models = {"a": _model(LINEAR), "b": _model(LINEAR), "scale": {"parameter": {"shape": [], "init": 0.5}}}
    return {**_document("absent-terms", models, ops), "inputs": inputs, "micro_batches": 2}


def sequences() -> dict:
    """Return a window of means over sequences of several lengths, beside one over rows."""
    ops = {
        "seen": {"forward": "a", "inputs": "song"},
        "other": {"forward": "a", "inputs": "x"},
        "fit": {"loss": "mse", "inputs": ["seen", 0.3]},
        "small": {"loss": "l1", "inputs": ["other", 0.0]},
        "cost": {"call": "sub", "inputs": ["fit", "small"]},
        "step": {"update": "a", "loss": "cost", "accumulate": 2},
    }
    inputs = {"x": SHAPE, "song": {"shape": ["batch", "length", 3]}}
    return {**_document("sequences", {"a": _model(LINEAR)}, ops), "inputs": inputs}


def library() -> dict:
    """Return layers of sequences, a call and a loss whose options are not their defaults, or where defaults differ."""
    attention = {"multi_head_attention": {"heads": 1, "causal": True}}
    layers = [{"linear": 6}, {"rms_norm": 0.1}, {"reshape": [2, 3]}, attention, "flatten", {"linear": 3}]
    ops = {
        "seen": {"forward": "a", "inputs": "x"},
        "moved": {"call": "roll", "inputs": "seen", "args": {"shifts": 1}},
        "fit": {"loss": "focal", "inputs": ["seen", 1.0]},
        "gap": {"loss": "mse", "inputs": ["moved", "y"]},
        "cost": {"call": "add", "inputs": ["fit", "gap"]},
        "step": {"update": "a", "loss": "cost"},
    }
    return _document("library", {"a": _model(layers)}, ops)


def recomputed() -> dict:
    """Return a class that is recomputed, as a judge whose own weights no gradient is taken of."""
    traits = {"buffers": False, "rng": False, "batch_coupled": False, "recomputes": True}
    judge = {"class": "tests.properties.users:Recoder", "args": {"size": 3}, "traits": traits, "optimizer": "sgd"}
    ops = {
        "fake": {"forward": "a", "inputs": "x"},
        "seen": {"forward": "judge", "inputs": "y"},
        "loss_j": {"loss": "mse", "inputs": ["seen", 1.0]},
        "step_j": {"update": "judge", "loss": "loss_j"},
        "judged": {"forward": "judge", "inputs": "fake", "after": "step_j"},
        "loss_a": {"loss": "mse", "inputs": ["judged", 1.0]},
        "step_a": {"update": "a", "loss": "loss_a"},
    }
    return _document("recomputed", {"a": _model(LINEAR), "judge": judge}, ops)


def checkpointed() -> dict:
    """Return forwards with statistics that run again for two gradients, one of which needs old weights of a judge."""
    ops = {
        "fake": {"forward": "a", "inputs": "x", "checkpoint": True},
        "seen": {"forward": "judge", "inputs": "y", "checkpoint": True},
        "judged": {"forward": "judge", "inputs": "fake", "checkpoint": True},
        "near": {"loss": "mse", "inputs": ["seen", 1.0]},
        "far": {"loss": "mse", "inputs": ["judged", 0.0]},
        "loss_j": {"call": "add", "inputs": ["near", "far"]},
        "step_j": {"update": "judge", "loss": "loss_j"},
        "loss_a": {"loss": "mse", "inputs": ["judged", 1.0]},
        "step_a": {"update": "a", "loss": "loss_a"},
    }
    models = {"a": _model(LINEAR), "judge": _model([{"linear": 3}, "batch_norm", "tanh", {"linear": 1}])}
    return _document("checkpointed", models, ops)


def statistics_in_parts() -> dict:
    """Return BatchNorm in micro-batches: a forward behind an update beside one that has nothing to do with it."""
    ops = {
        "first": {"forward": "a", "inputs": "x"},
        "fit": {"loss": "mse", "inputs": ["first", "y"]},
        "step": {"update": "a", "loss": "fit"},
        "aside": {"forward": "a", "inputs": "y"},
        "between": {"forward": "b", "inputs": "x", "after": "step"},
        "again": {"forward": "a", "inputs": "between"},
    }
    models = {"a": _model([{"linear": 3}, "batch_norm"]), "b": _model(LINEAR)}
    outputs = ["fit", "aside", "again"]
    return {**_document("statistics-in-parts", models, ops), "micro_batches": 2, "outputs": outputs}


def drilled() -> dict:
    """Return an average that stands in for its model also where evaluation calls it as in training."""
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "loss": {"loss": "mse", "inputs": ["out", "y"]},
        "step": {"update": "a", "loss": "loss"},
        "mean": {"ema": "a", "decay": 0.5, "buffers": "copy", "use": {"eval": "swap"}},
        "drilled": {"forward": "a", "inputs": "x", "mode": "eval", "train": True},
        "tested": {"forward": "a", "inputs": "x", "mode": "eval"},
    }
    models = {"a": _model([{"linear": 3}, "batch_norm", "tanh"])}
    return {**_document("drilled", models, ops), "outputs": ["loss", "drilled", "tested"]}


def sums_of_rows() -> dict:
    """Return a slope of the sum over a batch of scores of which one part is the same wherever the slope is taken."""
    ops = {
        "raw": {"forward": "a", "inputs": "x"},
        "part": {"forward": "offset"},
        "score": {"call": "add", "inputs": ["raw", "part"]},
        "total": {"call": "sum", "inputs": "score"},
        "slope": {"gradient": "total", "wrt": "x"},
        "flat": {"loss": "mse", "inputs": ["slope", 1.0]},
        "fit": {"loss": "mse", "inputs": ["score", "y"]},
        "both": {"call": "add", "inputs": ["flat", "fit"]},
        "step_a": {"update": "a", "loss": "both"},
        "step_offset": {"update": "offset", "loss": "fit"},
    }
    offset = {"parameter": {"shape": [], "init": 0.5}, "optimizer": {"name": "sgd", "lr": 0.1}}
    return _document("sums-of-rows", {"a": _model(LINEAR), "offset": offset}, ops)


def unreached() -> dict:
    """Return updates that say what becomes of models that their loss never reaches."""
    steep = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}
    ops = {
        "seen": {"forward": "a", "inputs": "x"},
        "fit": {"loss": "mse", "inputs": ["seen", "y"]},
        "step_a": {"update": ["a", "b"], "loss": "fit", "missing": "skip"},
        "step_c": {"update": "c", "loss": "fit", "missing": "zero"},
    }
    models = {name: {"layers": LINEAR, "optimizer": steep} for name in "abc"}
    calls = {f"{name}_x": {"forward": name, "inputs": "x"} for name in "bc"}
    losses = {f"{name}_loss": {"loss": "mse", "inputs": [f"{name}_x", 0.0]} for name in "bc"}
    return {**_document("unreached", models, {**calls, **losses, **ops}), "outputs": ["fit", *losses]}


def counted_averages() -> dict:
    """Return averages that depend on how often they took place, and one of some parameters."""
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "loss": {"loss": "mse", "inputs": ["out", "y"]},
        "step": {"update": "a", "loss": "loss"},
        "ramp": {"ema": "a", "decay": {"kind": "tf", "max": 0.9}, "every": 2, "interval_correction": "compound"},
        "zeros": {"ema": "a", "decay": {"kind": "exp_ramp", "max": 0.9, "tau": 2.0}, "init": "zeros"},
        "late": {"ema": "a", "decay": 0.8, "start": {"at": 3, "before": "copy"}, "init": "initial"},
        "some": {"ema": "a", "decay": 0.7, "match": "weight"},
        "narrow": {"ema": "a", "decay": 0.7, "dtype": "bfloat16"},
    }
    return _document("counted-averages", {"a": _model(LINEAR)}, ops)


def written_back() -> dict:
    """Return a model that takes the weights of its average, what reads it after that, and another average of it."""
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "loss": {"loss": "mse", "inputs": ["out", "y"]},
        "step": {"update": "a", "loss": "loss"},
        "slow": {"ema": "a", "decay": 0.5, "use": {"write_back": {"every": 2}}},
        "seen": {"forward": "a", "inputs": "x", "after": "slow"},
        "other": {"ema": "a", "decay": 0.7},
    }
    return {**_document("written-back", {"a": _model(LINEAR)}, ops), "outputs": ["loss", "seen"]}


SPECIAL: Mapping[str, dict] = {
    "counted-averages": counted_averages(),
    "written-back": written_back(),
    "recomputed": recomputed(),
    "checkpointed": checkpointed(),
    "statistics-in-parts": statistics_in_parts(),
    "drilled": drilled(),
    "absent-terms": absent_terms(),
    "counted": counted(),
    "moved-terms": moved_terms(),
    "other-input": other_input(),
    "equal": equal(),
    "equal-parts": equal_parts(),
    "almost-equal": almost_equal(),
    "lazy": lazy(),
    "left-out": left_out(),
    "penalized": penalized(),
    "sequences": sequences(),
    "windows": windows(),
    "library": library(),
    "adapted": adapted(),
    "adapted-early": adapted_early(),
    "state": state(),
    "sums-of-rows": sums_of_rows(),
    "unreached": unreached(),
    "weighed": weighed(),
    **OVERFLOWING,
    **ENDING,
    **MOVED,
    **PARTED,
    **LANGUAGE,
    **TABLES,
    **RULED,
}


Kept: TypeAlias = Mapping[str, Any]
"""A document that once was random, and what was drawn beside it: the code of its mistake, the steps of its epoch."""
Case: TypeAlias = int | str | Kept
"""The seed of a random spec, the name of one that is written or kept, or what is kept."""
KILLING = Path(__file__).with_name("killing")
"""One kept document for each mutant that random specs kill, named as the mutant."""


def kept_of(case: str | Kept) -> Kept:
    """Return what is kept under a name."""
    return json.loads((KILLING / f"{case}.json").read_text(encoding="utf-8")) if isinstance(case, str) else case


def document_of(case: Case) -> dict[str, Any]:
    """Return the document of a case; a random one has the first parts of the language alone."""
    match case:
        case int():
            return base_spec(Random(case))
        case str():
            return SPECIAL[case] if case in SPECIAL else kept_of(case)["document"]
        case _:
            return case["document"]
