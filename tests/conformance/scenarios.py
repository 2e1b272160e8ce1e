"""The list of all that every backend runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch

from tests.conformance.case import Case
from tests.conformance.programs import actor_critic, byol, cyclegan, gan, one_loss
from tests.conformance.scenario import ROWS, MakeModels, Scenario

ROOT = Path(__file__).parents[2]
WHOLE = {"label": 10, "few_label": 10, "before": 28, "after_it": 28, "word": 96, "near": 96, "drawn": 96}
CODE = {
    "byol": ("views",),
    "custom": ("zoo", "keras_zoo"),
    "mean-teacher": ("partly",),
}
"""The modules beside an example that its step needs."""
KERAS_ZOO = {
    "encoder.body.1.kernel": "encoder.body.1.weight",
    "encoder.body.1.bias": "encoder.body.1.bias",
    "encoder.mean.kernel": "encoder.mean.weight",
    "encoder.log_variance.kernel": "encoder.log_variance.weight",
    "decoder.body.0.kernel": "decoder.body.0.weight",
    "decoder.body.1.kernel": "decoder.body.2.weight",
    "decoder.body.1.bias": "decoder.body.2.bias",
}


SETTINGS = {"ppo": ("ops.passes.repeat=3",)}
"""Of examples in which the same is repeated often."""


def examples() -> tuple[Scenario, ...]:
    """Return every example as it is."""
    return tuple(
        Scenario(
            name=path.stem,
            source=path,
            settings=SETTINGS.get(path.stem, ()),
            allow=CODE.get(path.stem, ()),
            classes=WHOLE,
            names=KERAS_ZOO if path.stem == "custom" else {},
            rows=24 if path.stem == "byol" else ROWS,
        )
        for path in sorted((ROOT / "examples").glob("*/*.yaml"))
    )


def catalogue() -> tuple[Scenario, ...]:
    """Return the specs of the catalogue, but for those of several processes, which run on PyTorch alone."""
    folder = ROOT / "tests" / "catalogue" / "specs"
    return tuple(
        Scenario(
            name=path.stem,
            source=path,
            allow=("tests",),
        )
        for path in sorted(folder.glob("*.yaml"))
        if not path.stem.startswith("replicated")
    )


TIED = ("ties", "tie-alone", "tie-thawed")
"""Specs whose models share a weight; they are handed to `build`."""
CLASSES = {
    "counts": {"label": 3},
    "losses": {"label": 4, "grid": 4},
    "likelihoods": {"text": 3, "length": 3},
    "numbers": {"label": 3},
    "reductions": {"label": 4},
    "calls": {"label": 4, "places": 4},
    "dense": {"word": 5, "words": 5},
    "rows": {"word": 7, "words": 7},
    "metrics": {"label": 3},
    "types": {"whole": 9, "short": 9, "byte": 9},
}


BURSTS = {
    "overflow": {"here": (2, 3, 7, 12), "there": (3, 8, 16)},
    "endings": {"here": (2, 3, 6, 12)},
    "endings-datasets": {"here": (2, 3, 6, 12), "there": (8, 16)},
}
"""Of specs in which gradients overflow."""


def specs() -> tuple[Scenario, ...]:
    """Return small specs that have every part of the language among them."""
    folder = ROOT / "tests" / "conformance" / "specs"
    return tuple(
        Scenario(
            name=path.stem,
            rows=11 if path.stem in ("micro-batches", "counts") else ROWS,
            source=path,
            allow=("tests",),
            classes=CLASSES.get(path.stem, {}),
            models={"torch": tied_torch, "tensorflow": tied_tensorflow} if path.stem in TIED else {},
            left_out=("optimizers.other.", "counters.groups.other.") if path.stem == "own-code" else (),
            bursts=BURSTS.get(path.stem, {}),
        )
        for path in sorted(folder.glob("*.yaml"))
    )


ADAM = "{name: adam, lr: 0.01, eps: 1e-4}"
"""With so large an eps that a gradient of pure rounding stays one."""


def programs() -> tuple[Scenario, ...]:
    """Return the published programs; where one is built from given nets, so it is on TensorFlow."""
    cases = (*gan.CASES, *cyclegan.CASES, *actor_critic.CASES, *byol.CASES, *one_loss.CASES)
    return tuple(
        Scenario(name=case.name, source=case.spec(ADAM), models=models_of(case) if case.given else {}, order="listed")
        for case in cases
    )


def models_of(case: Case) -> Mapping[str, MakeModels]:
    """Return what makes the models of a program that are given."""

    def make_torch() -> Mapping[str, object]:
        nets = case.loop(partial(torch.optim.SGD, lr=0.0)).nets
        return {name: nets[name] for name in case.given}

    def make_tensorflow() -> Mapping[str, object]:
        from tests.conformance.modules import Chain

        return {name: Chain(net) for name, net in make_torch().items()}

    return {"torch": make_torch, "tensorflow": make_tensorflow}


def tied_torch() -> Mapping[str, object]:
    """Return two modules of PyTorch that share a weight."""
    from tests.conformance.code_for_torch import make_tied

    return make_tied()


def tied_tensorflow() -> Mapping[str, object]:
    """Return two modules of TensorFlow that share a weight."""
    from tests.conformance.code_for_tensorflow import make_tied

    return make_tied()
