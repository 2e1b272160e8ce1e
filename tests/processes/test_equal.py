"""Processes that begin with other weights, seeds or plans are refused in a loop of one's own, not only in runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from runtime.backends.torch.equal import add_bits, digest_weights
from tests.processes.pairs import begin_all
from tests.resilience.processes import call

pytestmark = pytest.mark.xdist_group("begun processes")  # one worker starts them


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    """Return what both processes said in every case, by its name."""
    folder = tmp_path_factory.mktemp("equal")
    ended = call(begin_all, folder)
    assert ended.code == 0, ended.output
    names = ("same", "seeds", "weights", "plans", "states")
    return {name: [(folder / f"{name}.{rank}").read_text() for rank in (0, 1)] for name in names}


@pytest.mark.parametrize(
    ("case", "name"),
    [("seeds", "seed: 1"), ("weights", "set of weights: "), ("plans", "plan: "), ("states", "set of weights: ")],
)
def test_processes_that_begin_differently_are_refused_on_all(
    said: Mapping[str, list[str]], case: str, name: str
) -> None:
    assert all(each.startswith(f"error[GS258]: rank 1 has another {name}") for each in said[case])
    assert all(each.count("has another") == 1 for each in said[case])


def test_processes_that_begin_with_the_same_are_not_refused(said: Mapping[str, list[str]]) -> None:
    assert said["same"] == ["nothing", "nothing"]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8, np.bool_, np.complex64])
def test_a_digest_adds_up_the_bits_of_numbers(dtype: type[np.generic]) -> None:
    values = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    parts = values.view(np.float32) if values.dtype.kind == "c" else values
    bits = parts.view({1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[parts.itemsize])
    assert add_bits(torch.from_numpy(values).T).item() == bits.sum(dtype=np.int64)


def test_a_digest_says_whether_tensors_are_the_same() -> None:
    numbers = torch.tensor([0.1, 0.2])
    changed = numbers.clone()
    changed[0] += 1e-8  # the last bit
    assert digest_weights([("a", numbers)]) == digest_weights([("a", numbers.clone())])
    others = [[("a", changed)], [("b", numbers)], [("a", numbers[:, None])], [("a", numbers.double())], []]
    assert len({digest_weights(each) for each in ([("a", numbers)], *others)}) == 6
