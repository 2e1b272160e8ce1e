"""Image grids of a run: which mode they come from, when they are written, and what cannot be shown."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec.analysis.evaluation import find_image_mode
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.train.plots import ImageLogger

SPEC = """
graphspec: 1
name: show
inputs: {{x: {{shape: [batch, 1, 8, 8]}}}}
models: {{net: {{layers: [flatten, {{linear: 64}}, {{reshape: [1, 8, 8]}}], optimizer: sgd}}}}
ops:
  y: {{forward: net, inputs: x, mode: {mode}}}
  fed: {{forward: net, inputs: x}}
  error: {{call: mean, inputs: fed}}
  learn: {{update: net, loss: error}}
outputs: [error, y]
run: {{images: {{value: {value}, every: {every}}}}}
"""


class Painter:
    """A step whose pictures show how often it was called in which mode."""

    def __init__(self, shape=(4, 8, 8)):
        self.shape = shape
        self.calls: list[tuple[object, str]] = []
        self.resets: list[str] = []

    def __call__(self, batch, mode="train"):
        self.calls.append((batch, mode))
        return {"y": np.zeros(self.shape)}

    def numpy(self, value):
        return value

    def reset(self, mode="eval"):
        self.resets.append(mode)


def spec(mode="eval", value="y", every="2 steps"):
    return load(SPEC.format(mode=mode, value=value, every=every))


def show_now(folder, mode, steps, shape=(4, 8, 8)):
    step = Painter(shape)
    image_logger = ImageLogger(step=step, spec=spec(), mode=mode, folder=folder, every=2)
    for number in range(1, steps + 1):
        outputs = {"y": np.zeros(shape)} if number > 1 else {}
        image_logger.follow(number, {"x": number}, outputs)
    image_logger.finish()
    return step


@pytest.mark.parametrize(("mode", "found"), [("eval", "eval"), ("train", None)])
def test_the_mode_is_the_one_that_returns_the_value(mode, found):
    assert find_image_mode(spec(mode=mode)) == found


def test_a_value_that_evaluation_returns_is_not_taken_from_training():
    assert find_image_mode(spec(mode="[train, eval]")) == "eval"


def test_a_value_that_is_not_returned_is_told_when_the_spec_is_loaded():
    with pytest.raises(SpecError, match=r"GS230.*shows 'fed', which the step does not return") as caught:
        spec(value="fed")
    assert "add 'fed' to `outputs`" in str(caught.value)
    with pytest.raises(SpecError, match=r"GS230.*shows 'x'.*\n(.*\n)*.*the step returns"):
        spec(value="x")


def test_pictures_are_written_every_few_steps_and_at_the_end(tmp_path):
    show_now(tmp_path, "eval", steps=5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["y.png", "y_2.png", "y_4.png"]


def test_evaluation_always_sees_the_first_batch_of_the_run(tmp_path):
    calls = show_now(tmp_path, "eval", steps=5).calls
    assert calls == [({"x": 1}, "eval")] * len(calls)


def test_every_picture_is_drawn_from_the_same_random_numbers(tmp_path):
    painter = show_now(tmp_path, "eval", steps=5)
    assert painter.resets == ["eval"] * len(painter.calls)


def test_pictures_of_training_take_no_extra_step(tmp_path):
    assert show_now(tmp_path, "train", steps=5).calls == []
    assert len(list(tmp_path.iterdir())) == 3


def test_before_a_value_was_returned_nothing_is_written(tmp_path):
    show_now(tmp_path, "train", steps=1)
    assert list(tmp_path.iterdir()) == []


def test_a_picture_of_training_is_kept_with_the_checkpoint_after_which_it_may_not_be_returned_again(tmp_path):
    image_logger = ImageLogger(step=Painter(), spec=spec(), mode="train", folder=tmp_path, every=None)
    seen = []
    for number, outputs in enumerate(({}, {"y": np.zeros((4, 8, 8))}, {}), start=1):
        image_logger.follow(number, {"x": number}, outputs)
        image_logger.keep()
        seen.append([path.name for path in tmp_path.iterdir()])
        (tmp_path / "y.png").unlink(missing_ok=True)
    assert seen == [[], ["y.png"], []]


def test_a_picture_of_evaluation_is_not_made_for_a_checkpoint(tmp_path):
    image_logger = ImageLogger(step=Painter(), spec=spec(), mode="eval", folder=tmp_path, every=None)
    image_logger.follow(1, {"x": 1}, {})
    image_logger.keep()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_rows_of_numbers_are_told_as_soon_as_they_are_seen(tmp_path, mode):
    image_logger = ImageLogger(step=Painter((4, 64)), spec=spec(), mode=mode, folder=tmp_path, every=1000)
    with pytest.raises(SpecError, match=r"GS230.*'y' has the shape \[4, 64\], which is not a row of images"):
        image_logger.follow(1, {"x": 1}, {"y": np.zeros((4, 64))})
