"""Averages of seven libraries along one way: the weight is t after step t, and 0 before.

The numbers are what the libraries gave when they were run with these versions: timm 1.0.31, diffusers 0.42.1, mosaicml
(Composer) 0.32.1, mmengine 0.10.7, ema-pytorch 0.8.3, torch 2.13.0, Keras 3.15.1. A case has the name of the file and
of the class or function, with its arguments. ``python -m tests.peers.averages.libraries`` runs them again.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.peers.cases import GIVEN, Case, Document
from tests.peers.harness import check

TEXT = GIVEN.replace("LOSS_SCALE", "none").replace("shape: [2]", "shape: [1]").replace("lr: 0.5", "lr: 1.0")
CONSTANT = [1, 1.1, 1.29, 1.561, 1.9049, 2.31441, 2.782969, 3.3046721]
FROM_START = [0.1, 0.29, 0.561, 0.9049, 1.31441, 1.782969, 2.3046721, 2.87420489]
WARM = [1, 1.629960525, 2.288606806, 2.967773645, 3.662785282, 4.370618781, 5.089165256, 5.816873942]
BOUNDED = [1, 1.737787946, 2.488303724, 3.248646697, 4.124323349, 5.062161674, 6.031080837, 7.015540419]
MEAN = [1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5]


def follow(name: str, fields: str, says: list[float], watch: str = "average.value") -> Case:
    """Return the case of an average with these fields, and the numbers after every step."""
    text = TEXT.replace("\nprecision:", f"\n  average: {{ema: w, {fields}}}\nprecision:")
    feeds = [{"g": np.array([-1.0])}] * len(says)
    document = Document(text=text, feeds=feeds, watch=watch, start={"w.value": [0.0]})
    return Case(test=name, runs=document, says={t: [value] for t, value in enumerate(says, start=1)})


CASES = (
    follow("model_ema.py::ModelEmaV2[decay=0.9]", "decay: 0.9", FROM_START),
    follow("model_ema.py::ModelEmaV3[decay=0.9]", "decay: 0.9", FROM_START),
    follow("model_ema.py::ModelEmaV3[decay=0.9, step]", "decay: 0.9, init: first_update", CONSTANT),
    follow(
        "model_ema.py::ModelEmaV3[decay=0.9, use_warmup=True, step]", "decay: {kind: inverse_power, max: 0.9}", WARM
    ),
    follow(
        "model_ema.py::ModelEmaV3[decay=0.5, warmup_gamma=2, warmup_power=0.75, min_decay=0.25, step]",
        "decay: {kind: inverse_power, max: 0.5, min: 0.25, gamma: 2.0, power: 0.75}",
        BOUNDED,
    ),
    follow(
        "training_utils.py::EMAModel[decay=0.9999]",
        "decay: {kind: tf_warm, max: 0.9999}",
        [1, 1.818181818, 2.704545455, 3.601398601, 4.5004995, 5.4001998, 6.300087413, 7.200041135],
    ),
    follow(
        "training_utils.py::EMAModel[decay=0.3]",
        "decay: {kind: tf_warm, max: 0.3}",
        [1, 1.818181818, 2.704545455, 3.611363636, 4.583409091, 5.575022727, 6.572506818, 7.571752045],
    ),
    follow(
        "training_utils.py::EMAModel[min_decay=0.25]",
        "decay: {kind: tf_warm, max: 0.9999, min: 0.25}",
        [1, 1.75, 2.6875, 3.596153846, 4.498626374, 5.399450549, 6.299759615, 7.199886878],
    ),
    follow(
        "training_utils.py::EMAModel[update_after_step=3]",
        "decay: {kind: tf_warm, max: 0.9999}, start: {at: 4, before: copy}",
        [1, 2, 3, 4, 4.818181818, 5.704545455, 6.601398601, 7.5004995],
    ),
    follow("training_utils.py::EMAModel[use_ema_warmup=True]", "decay: {kind: inverse_power, max: 0.9999}", WARM),
    follow(
        "training_utils.py::EMAModel[use_ema_warmup=True, inv_gamma=2, power=0.75]",
        "decay: {kind: inverse_power, max: 0.9999, gamma: 2.0, power: 0.75}",
        [1, 1.737787946, 2.488303724, 3.248646697, 4.01695022, 4.791916102, 5.572591651, 6.358249504],
    ),
    follow("ema.py::compute_ema[smoothing=0.9]", "decay: 0.9", FROM_START),
    follow("averaged_model.py::ExponentialMovingAverage[momentum=0.1]", "decay: 0.9, init: first_update", CONSTANT),
    follow(
        "averaged_model.py::ExponentialMovingAverage[momentum=0.1, interval=2]",
        "decay: 0.9, every: 2, start: 1",
        [1, 1, 1.2, 1.2, 1.58, 1.58, 2.122, 2.122],
    ),
    follow(
        "averaged_model.py::MomentumAnnealingEMA[momentum=0.1, gamma=2]",
        "decay: {kind: anneal, max: 0.9, gamma: 2.0}",
        [1, 1.666666667, 2.333333333, 3, 3.666666667, 4.333333333, 5, 5.666666667],
    ),
    follow("averaged_model.py::StochasticWeightAverage", "decay: {kind: uniform}", MEAN),
    follow(
        "averaged_model.py::StochasticWeightAverage[interval=2]",
        "decay: {kind: uniform}, every: 2, start: 1",
        [1, 1, 2, 2, 3, 3, 4, 4],
    ),
    follow(
        "ema_pytorch.py::EMA[beta=0.9, update_after_step=0, update_every=1]",
        "decay: {kind: inverse_power, max: 0.9}",
        WARM,
    ),
    follow(
        "ema_pytorch.py::EMA[beta=0.9, update_after_step=0, update_every=2]",
        "decay: {kind: inverse_power, max: 0.9}, every: 2, start: 1",
        [1, 1, 1.961499691, 1.961499691, 3.00065215, 3.00065215, 4.093577342, 4.093577342],
    ),
    follow(
        "ema_pytorch.py::EMA[beta=0.5, update_after_step=2, update_every=1]",
        "decay: {kind: inverse_power, max: 0.5}, start: {at: 3, before: copy}",
        [1, 2, 3, 3.629960537, 4.314980268, 5.157490134, 6.078745067, 7.039372534],
    ),
    follow("swa_utils.py::AveragedModel", "decay: {kind: uniform}", MEAN),
    follow("swa_utils.py::AveragedModel[get_ema_multi_avg_fn(0.9)]", "decay: 0.9, init: first_update", CONSTANT),
    follow("optimizer.py::SGD[use_ema=True, ema_momentum=0.9]", "decay: 0.9, init: first_update", CONSTANT),
    follow(
        "optimizer.py::SGD[ema_overwrite_frequency=3, its average]",
        "decay: 0.9, init: first_update, use: {write_back: {every: 3}}",
        [1, 1.1, 1.29, 1.39, 1.58, 1.851, 1.951, 2.141],
    ),
    follow(
        "optimizer.py::SGD[ema_overwrite_frequency=3, its weight]",
        "decay: 0.9, init: first_update, use: {write_back: {every: 3}}",
        [1, 2, 1.29, 2.29, 3.29, 1.851, 2.851, 3.851],
        watch="w.value",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_averages_along_one_way(case: Case, backend: str) -> None:
    check(case, CASES, backend)
