"""curves.png: which values share a panel, and that the file is a picture."""

from __future__ import annotations

import math

import matplotlib.image

from runtime.train.logs import Row
from runtime.train.plots import draw_curves, find_curves, find_panels


def rows(**values):
    count = len(next(iter(values.values())))
    return [
        Row(step=number + 1, seconds=number, values={name: each[number] for name, each in values.items()})
        for number in range(count)
    ]


def test_values_of_one_scale_share_a_panel():
    measured = rows(d_loss=[1.4, 1.2], g_loss=[0.7, 0.9], accuracy=[0.3, 0.8], penalty=[3000.0, 2000.0])
    assert find_panels(find_curves(measured)) == [["d_loss", "g_loss", "accuracy"], ["penalty"]]


def test_a_panel_holds_six_values():
    measured = rows(**{f"loss{number}": [1.0, 1.0] for number in range(8)})
    assert [len(panel) for panel in find_panels(find_curves(measured))] == [6, 2]


def test_zeros_do_not_share_a_panel_with_others():
    assert find_panels(find_curves(rows(a=[0.0, 0.0], b=[1.0, 1.0], c=[0.0, 0.0]))) == [["a", "c"], ["b"]]


def test_points_that_are_not_finite_are_left_out():
    assert find_curves(rows(loss=[1.0, math.nan, 3.0, math.inf])) == {"loss": [(1, 1.0), (3, 3.0)]}


def test_the_file_is_a_picture_with_something_on_it(tmp_path):
    path = tmp_path / "curves.png"
    assert draw_curves(rows(loss=[1.0, 0.5, 0.1], steep=[1e5, 10.0, 1e-3]), path, title="a run")
    pixels = matplotlib.image.imread(path)
    assert pixels.shape[0] > 500
    assert pixels.std() > 0.05


def test_one_row_makes_no_curve(tmp_path):
    assert not draw_curves(rows(loss=[1.0]), tmp_path / "curves.png", title="a run")
    assert not (tmp_path / "curves.png").exists()


def test_a_run_whose_losses_are_all_nan_makes_no_curve(tmp_path):
    assert not draw_curves(rows(loss=[math.nan] * 3), tmp_path / "curves.png", title="a run")
