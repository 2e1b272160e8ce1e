"""Keras: keras/src/optimizers/*_test.py. One step, weight decay, and five steps compared with stored values.

Every spec has ``compat: tf_keras``, so options have Keras's defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from tests.peers import rules
from tests.peers.cases import Case, Differs, descent
from tests.peers.harness import check
from tests.peers.reasons import DECAY, EPSILON

KERAS = "tf_keras"

SINGLE = {
    "sgd": [0.5, -1.0, -0.5, 3.0],
    "adam": [0.5, 1.5, 2.5, 3.5],
    "adamw": [0.498, 1.496, 2.494, 3.492],
    "adamax": [0.5, 1.5, 2.5, 3.5],
    "adadelta": [0.9993, 1.9993, 2.9993, 3.9993],
    "adagrad": [0.5233, 1.5007, 2.5005, 3.5061],
    "nadam": [0.4686, 1.4686, 2.4686, 3.4686],
    "rmsprop": [-0.5811, 0.4189, 1.4189, 2.4189],
    "lion": [0.5, 1.5, 2.5, 3.5],
}
"""1, 2, 3, 4 after one step with the gradients 1, 6, 7, 2 and the rate 0.5."""


def single_steps() -> Iterator[Case]:
    for name, says in SINGLE.items():
        yield descent(
            f"{name}_test.py::test_single_step",
            {"name": name, "lr": 0.5},
            [1.0, 2.0, 3.0, 4.0],
            [[1.0, 6.0, 7.0, 2.0]],
            {1: says},
            compat=KERAS,
            rtol=1e-4,
            atol=1e-4,
        )


COUPLED = {
    "adam": rules.coupled(rules.adam, 0.004, 3, lr=1.0, eps=1e-7),
    "adamax": rules.coupled(rules.adamax, 0.004, 3, lr=1.0, eps=1e-7),
    "adadelta": rules.coupled(rules.adadelta, 0.004, 3, lr=1.0, rho=0.95, eps=1e-7),
    "adagrad": rules.coupled(rules.adagrad, 0.004, 3, lr=1.0, eps=1e-7, initial=0.1),
    "nadam": rules.coupled(rules.nadam, 0.004, 3, lr=1.0, eps=1e-7),
    "rmsprop": rules.coupled(rules.rmsprop, 0.004, 3, lr=1.0, rho=0.9, eps=1e-7),
}
"""What 2 becomes in three steps at rate 1 if the decay is the gradient. (With sgd that is Keras's 1.976096.)"""


def weight_decays() -> Iterator[Case]:
    for name in SINGLE:
        optimizer = {"name": name, "lr": 1.0, "weight_decay": 0.004}
        differs = None
        if name in COUPLED:
            differs = Differs(ours={3: COUPLED[name]}, why=DECAY, theirs=lambda: 2 * (1 - 0.004) ** 3)
        yield descent(
            f"{name}_test.py::test_weight_decay[decayed]",
            optimizer,
            2.0,
            [0.0] * 3,
            {3: 1.9760959},
            compat=KERAS,
            differs=differs,
        )
        yield descent(
            f"{name}_test.py::test_weight_decay[excluded]",
            optimizer,
            2.0,
            [0.0] * 3,
            {3: 2.0},
            model={"groups": [{"match": "value", "weight_decay": 0}]},
            compat=KERAS,
        )


FIRST, LATER = np.full(10, 0.01), np.arange(0.1, 1.1, 0.1)
STORED = {
    "sgd": ({}, [1 - 1e-4 - 0.01 * step * LATER for step in range(5)]),
    "adam": ({}, [0.999, 0.9982, 0.9974, 0.9965, 0.9955]),
    "adamw": (
        {"lr": 1.0, "weight_decay": 0.5, "eps": 2},
        [
            [0.4998] * 10,
            [0.2486, 0.2475, 0.2463, 0.2451, 0.244, 0.2428, 0.2417, 0.2405, 0.2394, 0.2382],
            [0.1223, 0.1198, 0.1174, 0.1149, 0.1124, 0.11, 0.1075, 0.1051, 0.1027, 0.1003],
            [0.0586, 0.0549, 0.0512, 0.0475, 0.0439, 0.0402, 0.0366, 0.033, 0.0294, 0.0258],
            [0.0263, 0.0215, 0.0167, 0.012, 0.0073, 0.0026, -0.0021, -0.0067, -0.0113, -0.0159],
        ],
    ),
    "adamax": (
        {"lr": 0.2, "betas": [0.85, 0.95], "eps": 1e-6},
        [
            [0.8] * 10,
            [0.6827, 0.6873, 0.6888, 0.6896, 0.6901, 0.6904, 0.6906, 0.6908, 0.6909, 0.691],
            [0.5333, 0.5407, 0.5431, 0.5444, 0.5451, 0.5456, 0.546, 0.5462, 0.5464, 0.5466],
            [0.368, 0.3773, 0.3804, 0.382, 0.3829, 0.3835, 0.384, 0.3843, 0.3846, 0.3848],
            [0.1933, 0.204, 0.2076, 0.2094, 0.2105, 0.2112, 0.2117, 0.2121, 0.2124, 0.2126],
        ],
    ),
    "adadelta": ({"lr": 1.0, "rho": 0.8, "eps": 1e-6}, [0.9978, 0.9947, 0.9915, 0.9882, 0.9849]),
    "adagrad": (
        {"lr": 0.2, "initial_accumulator_value": 0.3, "eps": 1e-6},
        [
            [0.9963] * 10,
            [0.9604, 0.9278, 0.9003, 0.8784, 0.8615, 0.8487, 0.8388, 0.8313, 0.8255, 0.8209],
            [0.9251, 0.8629, 0.8137, 0.7768, 0.7497, 0.7298, 0.7151, 0.704, 0.6956, 0.6891],
            [0.8903, 0.8012, 0.7342, 0.6862, 0.6521, 0.6277, 0.6099, 0.5967, 0.5867, 0.579],
            [0.856, 0.7422, 0.6604, 0.6037, 0.5644, 0.5367, 0.5168, 0.5021, 0.491, 0.4825],
        ],
    ),
    "nadam": (
        {"lr": 0.5, "betas": [0.5, 0.67], "eps": 1e-5},
        [
            [0.4281] * 10,
            [-0.1738, -0.1731, -0.1726, -0.1723, -0.1721, -0.172, -0.1719, -0.1718, -0.1718, -0.1717],
            [-0.7115, -0.7103, -0.7096, -0.7092, -0.709, -0.7088, -0.7086, -0.7085, -0.7085, -0.7084],
            [-1.2335, -1.2322, -1.2313, -1.2309, -1.2306, -1.2304, -1.2302, -1.2301, -1.23, -1.2299],
            [-1.7492, -1.7478, -1.7469, -1.7464, -1.7461, -1.7459, -1.7457, -1.7456, -1.7455, -1.7454],
        ],
    ),
    "rmsprop": ({"centered": True}, [0.9967, 0.9933, 0.9908, 0.9885, 0.9864]),
    "lion": ({}, [0.999, 0.998, 0.997, 0.996, 0.995]),
}
"""Options, and what ten ones are after each of five steps. The first gradient is 0.01, the others are 0.1, 0.2, ... 1.

Keras's tests also pass ``nesterov`` to sgd, which does nothing without momentum, and ``amsgrad`` to adam, which does
nothing while gradients grow.
"""


def adamw(*, inside: bool) -> np.ndarray:
    """Return the result of five steps of AdamW, with epsilon where Keras adds it, or where we do."""
    rule = partial(rules.adamw, lr=1.0, eps=2.0, decay=0.5, inside=inside)
    return rules.descend(rule, np.ones(10), lambda w, step: LATER if step > 1 else FIRST, 5)


def stored_values() -> Iterator[Case]:
    for name, (options, values) in STORED.items():
        differs = Differs(ours={5: adamw(inside=False)}, why=EPSILON, theirs=lambda: adamw(inside=True))
        yield descent(
            f"{name}_test.py::test_correctness_with_golden",
            {"name": name, **options},
            np.ones(10),
            [FIRST] + [LATER] * 4,
            dict(enumerate(values, start=1)),
            compat=KERAS,
            rtol=5e-4,
            atol=5e-4,
            differs=differs if name == "adamw" else None,
        )


CASES = (*single_steps(), *weight_decays(), *stored_values())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_keras_optimizers(case: Case, backend: str) -> None:
    check(case, CASES, backend)
