"""Ranges tell the least, greatest and mean finite number, and the share of the others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from runtime.backends.torch.library.ranges import fault_of, first_row, range_of

HOLED = torch.tensor([[1.0, 2.0], [torch.nan, -5.0], [torch.inf, 4.0]])


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (HOLED, "nan"),
        (HOLED[2], "inf"),
        (-HOLED[2], "inf"),
        (HOLED[0], ""),
        (torch.tensor([1, 2]), ""),
        (torch.empty(0, 3), ""),
        (torch.tensor([1j, complex(0, torch.nan)]), "nan"),
        (torch.sparse_coo_tensor([[0, 1]], [1.0, torch.inf], (9,), check_invariants=True), "inf"),
        ((HOLED[0], None, HOLED[2]), "inf"),
        ("text", ""),
    ],
)
def test_the_worst_of_a_value_is_its_fault(value, fault):
    assert fault_of(value) == fault


def test_statistics_are_of_the_finite_numbers():
    finite = np.array([1, 2, -5, 4])
    mean = f"min {finite.min():.4g}, max {finite.max():.4g}, mean {finite.mean():.4g}"
    assert range_of("x", HOLED) == f"x: float32 [3, 2], {mean}, 1 of 6 nan (16.7 %), 1 of 6 inf (16.7 %)"


def test_a_single_number_is_shown_itself():
    assert range_of("loss", torch.tensor(2.5)) == "loss: float32 [], 2.5"
    assert range_of("loss", torch.tensor(-torch.inf)) == "loss: float32 [], -inf"


def test_a_set_is_described_as_one():
    gradients = (torch.tensor([1.0, 3.0]), torch.tensor([[-4.0]]))
    assert range_of("g", gradients) == "g: float32 in 2 tensors, min -4, max 3, mean 0"


def test_the_first_bad_row_is_found():
    assert first_row(HOLED) == ", first in row 1"
    assert first_row(HOLED[0, 0]) == ""
