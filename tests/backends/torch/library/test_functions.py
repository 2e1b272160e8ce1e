"""Calls and metrics of the library against plain indexing and counting."""

from __future__ import annotations

import pytest
import torch

from runtime.backends.torch.library.functions import cut, interpolate, one_hot, split
from runtime.backends.torch.library.metrics import accuracy

X = torch.arange(24).reshape(2, 6, 2)


def test_interpolate_moves_from_a_to_b():
    a, b = torch.tensor([0.0, 10.0]), torch.tensor([4.0, 20.0])
    assert interpolate(a, b, 0.25).tolist() == [1.0, 12.5]
    assert interpolate(a, b, torch.tensor([0.0, 1.0])).tolist() == [0.0, 20.0]
    assert interpolate(1.0, b, 0.5).tolist() == [2.5, 10.5]


def test_split_into_equal_parts():
    parts = split(X, 3)
    assert [part.tolist() for part in parts] == [X[:, i : i + 2].tolist() for i in (0, 2, 4)]


def test_split_into_parts_of_given_sizes():
    first, second = split(X, (1, 5))
    assert torch.equal(first, X[:, :1])
    assert torch.equal(second, X[:, 1:])


def test_split_along_another_axis():
    first, second = split(X, 2, axis=-1)
    assert torch.equal(first, X[..., :1])
    assert torch.equal(second, X[..., 1:])


def test_split_refuses_unequal_parts():
    with pytest.raises(ValueError, match="6 elements along axis 1 cannot be cut into 4 equal parts"):
        split(X, 4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start": 2}, X[:, 2:]),
        ({"start": 1, "stop": -1}, X[:, 1:-1]),
        ({"stop": 1, "axis": 0}, X[:1]),
        ({"start": -1, "axis": -1}, X[..., -1:]),
        ({}, X),
    ],
)
def test_cut_takes_a_range_along_an_axis(options, expected):
    assert torch.equal(cut(X, **options), expected)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_one_hot_adds_a_last_axis_of_float32(dtype):
    made = one_hot(torch.tensor([[2, 0]], dtype=dtype), 3)
    assert made.tolist() == [[[0, 0, 1], [1, 0, 0]]]
    assert made.dtype == torch.float32


def test_accuracy_is_the_share_of_hits():
    scores = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    assert accuracy(scores, torch.tensor([1, 1, 1, 0])).item() == 0.75


def test_accuracy_of_maps_counts_every_position():
    scores = torch.tensor([[[0.1, 0.9, 0.2], [0.9, 0.1, 0.8]]])  # one sample, two classes, three positions
    assert accuracy(scores, torch.tensor([[1, 1, 1]])).item() == pytest.approx(2 / 3)
