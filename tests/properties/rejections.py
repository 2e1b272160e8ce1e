"""Specs that must be rejected: a random one with one thing added that is wrong, and the code that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from tests.properties.specs import random_spec

LINEAR = [{"linear": 3}, "tanh", {"linear": 3}]
NORMALIZED = [{"linear": 3}, "batch_norm", {"linear": 3}]
Parts = tuple[dict, dict]
"""Models and ops."""


def random_rejected(random: Random | int, make: Callable[[Random], dict] = random_spec) -> tuple[dict, str]:
    """Return a document that must be rejected, and the code of its error."""
    random = random if isinstance(random, Random) else Random(random)
    document, code = make(random), random.choice(list(MISTAKES))
    models, ops = MISTAKES[code]()
    listed = list({**document["ops"], **ops}.items())
    random.shuffle(listed)
    inputs = {**document["inputs"], "p": {"shape": ["batch", 3]}, "q": {"shape": ["batch", 3]}}
    return {**document, "inputs": inputs, "models": {**document["models"], **models}, "ops": dict(listed)}, code


def _model(layers: list | None = None, **fields: object) -> dict:
    return {"layers": layers or LINEAR, "optimizer": "sgd", **fields}


def sound_pair(**fields: object) -> Parts:
    """Return two models, the loss of one behind the other, and an update of the first."""
    ops = {
        "m_p": {"forward": "m", "inputs": "p"},
        "n_p": {"forward": "n", "inputs": "m_p", "after": []},
        "n_loss": {"loss": "mse", "inputs": ["n_p", "q"]},
        "step_m": {"update": "m", "loss": "n_loss", **fields},
    }
    return {"m": _model(), "n": _model()}, ops


def _with(parts: Parts, ops: dict, **models: dict) -> Parts:
    return {**parts[0], **models}, {**parts[1], **ops}


def unordered() -> Parts:
    """Return two updates of a model without order."""
    return _with(sound_pair(), {"again": {"update": "m", "loss": "n_loss"}})


def overlapping() -> Parts:
    """Return a model in two optimizers."""
    again = {"update": "m", "loss": "n_loss", "after": "step_m", "optimizer": "adam"}
    return _with(sound_pair(), {"again": again})


def unreached() -> Parts:
    """Return a target that the loss does not depend on."""
    return _with(sound_pair(), {"step_o": {"update": "o", "loss": "n_loss"}}, o=_model())


def unreached_term() -> Parts:
    """Return a term that depends on no target, here behind a stop."""
    ops = {"still": {"call": "stop", "inputs": "m_p"}, "idle": {"loss": "mse", "inputs": ["still", "q"]}}
    ops["both"] = {"call": "add", "inputs": ["n_loss", "idle"]}
    return _with(sound_pair(), {**ops, "step_n": {"update": "n", "loss": "both"}})


def averaged_target() -> Parts:
    """Return an average into a model that is updated."""
    step = {"step_n": {"update": "n", "loss": "n_loss"}}
    like = {"like": "m", "optimizer": "sgd"}
    return _with(sound_pair(), {**step, "mean": {"ema": "m", "into": "n", "decay": 0.9}}, n=like)


def unsaid_buffers() -> Parts:
    """Return an average of statistics without a word on them."""
    models, ops = sound_pair()
    return {**models, "m": _model(NORMALIZED)}, {**ops, "mean": {"ema": "m", "decay": 0.9}}


def circular() -> Parts:
    """Return a forward after the update that it feeds."""
    models, ops = sound_pair()
    return models, {**ops, "m_p": {**ops["m_p"], "after": "step_m"}}


def circular_values() -> Parts:
    """Return two values made of each other."""
    ops = {"one": {"call": "tanh", "inputs": "two"}, "two": {"call": "tanh", "inputs": "one"}}
    return _with(sound_pair(), ops)


def two_versions() -> Parts:
    """Return a gradient through old weights that needs what the new ones give."""
    ops = {
        "step_n": {"update": "n", "loss": "n_loss"},
        "behind": {"forward": "n", "inputs": "p", "after": "step_n"},
        "late": {"loss": "mse", "inputs": ["n_p", "behind"]},
        "step_m": {"update": "m", "loss": "late"},
    }
    return _with(sound_pair(), ops)


def absent() -> Parts:
    """Return a value used in steps in which it is not computed."""
    models, ops = sound_pair()
    return models, {**ops, "m_p": {**ops["m_p"], "every": 2}}


def misfitting() -> Parts:
    """Return one model called with two sizes."""
    ops = {"wide": {"call": "concat", "inputs": ["p", "q"]}, "odd": {"forward": "m", "inputs": "wide"}}
    return _with(sound_pair(), ops)


def never_called() -> Parts:
    """Return an average of a model that nothing calls, so that its sizes are unknown."""
    return _with(sound_pair(), {"mean": {"ema": "o", "decay": 0.9}}, o=_model())


def impatient() -> Parts:
    """Return two updates of which each must wait for the other's gradient, and neither may."""
    models, ops = sound_pair(defer="never")
    ops |= {
        "n_q": {"forward": "n", "inputs": "q"},
        "m_q": {"forward": "m", "inputs": "n_q", "after": []},
        "m_loss": {"loss": "mse", "inputs": ["m_q", "p"]},
        "step_n": {"update": "n", "loss": "m_loss", "defer": "never"},
    }
    return models, ops


def two_standins() -> Parts:
    """Return two averages in the place of one model."""
    swap = {"ema": "m", "decay": 0.9, "use": {"eval": "swap"}}
    return _with(sound_pair(), {"mean": swap, "other_mean": {**swap, "decay": 0.5}})


def uneven() -> Parts:
    """Return a half-life over steps that are not evenly apart."""
    step = {"step_n": {"update": "n", "loss": "n_loss", "every": 2, "start": 3}}
    return _with(sound_pair(), {**step, "mean": {"ema": "m", "half_life": 5, "every": "step_n"}})


def wide_clip() -> Parts:
    """Return a clip over gradients of models that are not stepped."""
    ops = {
        "all": {"gradient": "n_loss", "wrt": ["m", "n"]},
        "step_m": {"update": "m", "gradients": "all", "clip": {"norm": 1.0}},
    }
    return _with(sound_pair(), ops)


def unpaced() -> Parts:
    """Return a start in a run of unknown length."""
    return sound_pair(start="0.5 run")


def uncountable() -> Parts:
    """Return a window over a sum of rows along the second axis and a mean."""
    ops = {
        "m_turned": {"call": "permute", "inputs": "m_p", "args": {"dims": [1, 0]}},
        "m_rows": {"call": "sum", "inputs": "m_turned", "args": {"axis": 1}},
        "m_sum": {"call": "mean", "inputs": "m_rows"},
        "m_mean": {"loss": "mse", "inputs": ["m_p", "q"]},
        "m_both": {"call": "add", "inputs": ["m_sum", "m_mean"]},
        "step_m": {"update": "m", "loss": "m_both", "accumulate": 2},
    }
    return _with(sound_pair(), ops)


def recomputed_apart() -> Parts:
    """Return checkpoints of two models that share a weight, one in training and one in evaluation."""
    kind = {"class": "tests.properties.users:Coder", "args": {"size": 3}}
    models = {
        "o": {**kind, "traits": {"recomputes": False}, "optimizer": "sgd"},
        "r": {**kind, "traits": {"recomputes": False, "ties": ["o.weight"]}},
    }
    ops = {
        "r_p": {"forward": "r", "inputs": "p", "checkpoint": True},
        "o_p": {"forward": "o", "inputs": "r_p", "checkpoint": True},
        "o_loss": {"loss": "mse", "inputs": ["o_p", "q"]},
        "step_o": {"update": "o", "loss": "o_loss"},
    }
    return _with(sound_pair(), ops, **models)


MISTAKES: Mapping[str, Callable[[], Parts]] = {
    "E-UNORDERED-WRITES": unordered,
    "E-OVERLAP": overlapping,
    "E-NO-GRADIENT": unreached,
    "E-NO-GRADIENT (term)": unreached_term,
    "E-EMA-TARGET": averaged_target,
    "E-BUFFERS": unsaid_buffers,
    "E-CYCLE": circular,
    "E-CYCLE (values)": circular_values,
    "E-TWO-VERSIONS": two_versions,
    "E-ABSENT": absent,
    "E-SHAPE": misfitting,
    "E-SHAPE (sizes)": never_called,
    "E-DEFER": impatient,
    "E-SWAP": two_standins,
    "E-INTERVAL": uneven,
    "E-CLIP": wide_clip,
    "E-PACE": unpaced,
    "E-COUNTS": uncountable,
    "GS040": lambda: sound_pair(weigth=1.0),
    "GS103": lambda: _with(sound_pair(), {"lost": {"forward": "nobody", "inputs": "p"}}),
    "GS104": lambda: _with(sound_pair(), {"lost": {"forward": "m", "inputs": "nothing"}}),
    "GS105": lambda: sound_pair(after="no_step"),
    "GS106": lambda: _with(sound_pair(), {"lost": {"forward": "m", "inputs": "n"}}),
    "GS107": lambda: _with(sound_pair(), {"step_o": {"update": "o", "loss": "n_loss"}}, o={"layers": LINEAR}),
    "GS110": lambda: _with(sound_pair(), {"lost": {"call": "tanhh", "inputs": "p"}}),
    "GS115": lambda: _with(sound_pair(), {"lost": {"forward": "o", "inputs": "p"}}, o=_model([{"lineer": 3}])),
    "GS118": lambda: _with(sound_pair(), {"step_n": {"update": "n", "loss": "p"}}),
    "GS120": lambda: sound_pair(start=5, until=4),
    "GS133": recomputed_apart,
}
"""What can be wrong, by the code of the error; where a code has several, told apart in brackets."""
