"""Grids of images: a PNG that another library reads as the same pixels."""

from __future__ import annotations

import matplotlib.image
import numpy as np
import pytest

from runtime.train.plots import find_columns, grid, is_picture, write_png


def test_a_written_file_is_read_back_by_another_library(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, size=(7, 5, 3), dtype=np.uint8)
    write_png(tmp_path / "a.png", pixels)
    read = matplotlib.image.imread(tmp_path / "a.png")
    np.testing.assert_array_equal(np.rint(read * 255), pixels)


def test_small_images_are_enlarged_by_whole_factors():
    images = np.zeros((4, 8, 8))
    assert grid(images).shape == (2 * 48 + 3 * 2, 2 * 48 + 3 * 2, 3)


def test_tiles_stand_in_reading_order():
    images = np.stack([np.full((48, 48), value / 4) for value in range(5)])
    page = grid(images)
    centres = [int(page[2 + 24 + row * 50, 2 + 24 + column * 50, 0]) for row in range(2) for column in range(3)]
    assert centres == [0, 64, 128, 191, 255, 128]


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (2, 2), (5, 3), (7, 3), (10, 5), (32, 8), (50, 10), (64, 8)])
def test_rows_come_out_even_where_they_can(count, columns):
    assert find_columns(count) == columns


def test_negative_values_mean_a_range_from_minus_one():
    both = np.stack([np.full((48, 48), -1.0), np.full((48, 48), 0.0)])
    page = grid(both)
    assert (int(page[10, 10, 0]), int(page[10, 60, 0])) == (0, 128)


def test_values_outside_are_clipped_and_nan_is_dark():
    odd = np.stack([np.full((48, 48), value) for value in (np.nan, 7.0, -9.0, np.inf)])
    page = grid(odd)
    assert [int(page[10, 10, 0]), int(page[10, 60, 0]), int(page[60, 10, 0]), int(page[60, 60, 0])] == [0, 255, 0, 255]


def test_channels_come_first_and_become_colours():
    red = np.zeros((1, 3, 48, 48))
    red[:, 0] = 1.0
    assert grid(red)[24, 24].tolist() == [255, 0, 0]
    assert grid(np.ones((1, 1, 48, 48)))[24, 24].tolist() == [255, 255, 255]


def test_whole_numbers_are_bytes():
    assert grid(np.full((1, 48, 48), 77, dtype=np.uint8))[24, 24].tolist() == [77, 77, 77]


def test_at_most_64_images_are_shown():
    assert grid(np.zeros((1000, 48, 48))).shape == (8 * 50 + 2, 8 * 50 + 2, 3)


@pytest.mark.parametrize("shape", [(3,), (3, 64), (3, 2, 8, 8), (0, 8, 8), (1, 1, 1, 8, 8)])
def test_other_shapes_are_no_pictures(shape):
    assert not is_picture(np.zeros(shape))


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 1, 8, 8), (1, 3, 5, 9)])
def test_rows_of_images_are_pictures(shape):
    assert is_picture(np.zeros(shape))
