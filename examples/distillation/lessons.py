"""All training digits beside a few of them: what distillation.yaml trains on."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[np.generic]]


def lessons(count: int, seed: int) -> Arrays:
    """Return `image` and `label` of all training digits; in `few_...` some `count` of them, as many of every class.

    The few are repeated until there are as many as the others, so that a batch has as many of both.
    """
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        chosen = ~held["is_test"]
        image = (held["image"][chosen, np.newaxis] / 8 - 1).astype(np.float32)  # from -1 (paper) to 1 (ink)
        label = held["label"][chosen].astype(np.int64)
    random = np.random.default_rng(seed)
    each = [random.choice(np.flatnonzero(label == digit), count // 10, replace=False) for digit in range(10)]
    few = np.resize(np.concatenate(each), len(label))
    return {"image": image, "label": label, "few_image": image[few], "few_label": label[few]}
