"""Sources that fail, end or change in the middle: what is said, and that the place is kept."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.data import open_feed

SPEC = """
graphspec: 1
name: failing
inputs: {{x: {{shape: [batch, 2]}}{more}}}
ops: {{mean: {{call: mean, inputs: x}}}}
outputs: mean
data: {{train: {{class: "failing:{name}", batch: 2}}}}
"""
SOURCE = """
import numpy as np

class Numbered:
    count = 6
    def __len__(self): return self.count
    def __getitem__(self, i): return {"x": np.full(2, i, np.float32)}

class Once(Numbered):
    \"\"\"Fails when sample 3 is asked for the second time, and only then.\"\"\"
    asked = 0
    def __getitem__(self, i):
        self.asked += i == 3
        if self.asked == 2:
            self.asked = 3
            raise OSError("the disk is not mounted")
        return super().__getitem__(i)

class Growing(Numbered):
    def __getitem__(self, i):
        if i == 5: self.count = 8
        return super().__getitem__(i)

class Reshaped(Numbered):
    def __getitem__(self, i): return {"x": np.zeros(2 + (i > 3), np.float32)}

class Stream:
    passes = 0
    lengths = (3, 3, 1, 2)
    def __iter__(self):
        self.passes += 1
        for number in range(self.lengths[self.passes - 1]):
            yield {"x": self.make(number)}
    def make(self, number): return np.full((2, 2), number, np.float32)

class Dry(Stream): lengths = (3, 0)
class Wide(Stream):
    def make(self, number): return np.zeros((2, 2 + (self.passes == 2 and number == 1)), np.float32)
class Torn(Stream):
    def make(self, number):
        if number == 2: raise RuntimeError("torn")
        return super().make(number)
class Nameless(Stream):
    def __iter__(self): yield {"x": self.make(0)}; yield {"z": self.make(1)}
class Constant(Stream):
    def __iter__(self): yield {"x": self.make(0), "scale": np.ones(9, np.float32)}
class Unattachable(Stream):
    def attach(self, step): raise ValueError("not this step")
"""


@pytest.fixture
def feed(tmp_path):
    (tmp_path / "failing.py").write_text(SOURCE)

    def make(name: str, more: str = ""):
        spec = load(SPEC.format(name=name, more=more))
        return open_feed(spec, "train", seed=0, allow=["failing"], directory=tmp_path)

    return make


def first(batch) -> float | None:
    return None if batch is None else float(batch["x"][0, 0])


def refusal(feed) -> str:
    """Return what is said by the first call that fails."""
    with pytest.raises(SpecError, match="GS2") as caught:
        deque((feed.next() for _ in range(20)), maxlen=0)
    return str(caught.value)


def test_an_error_names_epoch_and_batch_and_the_users_line(feed):
    text = refusal(feed("Once"))
    assert "error[GS226]: data.train, epoch 2, batch 2: the source raised OSError: the disk is not mounted" in text
    assert "in __getitem__: raise OSError" in text
    assert 'data: {train: {class: "failing:Once"' in text


def test_after_an_error_the_feed_stands_before_the_batch_that_failed(feed):
    failing = feed("Once")
    refusal(failing)
    assert (failing.epoch, failing.index, failing.taken) == (1, 1, 4)
    assert [first(failing.next()) for _ in range(3)] == [2, 4, None]


def test_an_error_in_a_stream_is_no_end_of_its_epoch(feed):
    failing = feed("Torn")
    assert "epoch 1, batch 3: the source raised RuntimeError: torn" in refusal(failing)
    assert "epoch 1, batch 3: the source raised RuntimeError: torn" in refusal(failing)


def test_a_source_of_samples_may_not_grow(feed):
    text = refusal(feed("Growing"))
    assert "GS225" in text
    assert "data.train, epoch 2, batch 1: the source has 8 samples now, it had 6 when it was opened" in text


def test_a_sample_of_another_shape_in_the_middle_is_told(feed):
    text = refusal(feed("Reshaped"))
    assert "GS228" in text
    assert "epoch 1, batch 3: the source gives 'x' as [batch, 3], the spec declares [batch, 2]" in text


def test_a_batch_of_another_shape_in_a_later_epoch_is_told(feed):
    assert "epoch 2, batch 2: the source gives 'x' as [batch, 3]" in refusal(feed("Wide"))


def test_a_name_that_is_missing_in_the_middle_is_told(feed):
    assert "epoch 1, batch 2: the source has no 'x' for the input 'x'" in refusal(feed("Nameless"))


def test_epochs_of_a_stream_may_have_different_lengths(feed):
    given = feed("Stream")
    assert [first(given.next()) for _ in range(13)] == [0, 1, 2, None, 0, 1, 2, None, 0, None, 0, 1, None]


def test_an_epoch_without_a_batch_is_told(feed):
    assert "GS225]: data.train, epoch 2, batch 1: the source gave no batches for a second pass" in refusal(feed("Dry"))


def test_an_input_without_samples_does_not_count_as_rows(feed):
    given = feed("Constant", ", scale: {shape: [9]}")
    assert given.rows(given.next()) == 2


def test_an_error_of_attach_is_the_users(feed):
    with pytest.raises(SpecError, match=r"(?s)GS226.*the source raised ValueError: not this step.*in attach"):
        feed("Unattachable").attach(object())


def test_an_error_in_a_pass_for_an_evaluation_names_its_batch(feed):
    with pytest.raises(SpecError, match=r"GS226\]: data.train, epoch 1, batch 3: the source raised RuntimeError: torn"):
        list(feed("Torn").one_pass())


def test_one_pass_twice_over_an_iterator_that_runs_once_is_told(feed, tmp_path):
    (tmp_path / "failing.py").write_text(f"{SOURCE}\ndef Iterator(): return iter(Stream())\n")
    given = feed("Iterator")
    assert len(list(given.one_pass())) == 3
    with pytest.raises(SpecError, match=r"GS225.*no batches for a second pass"):
        list(given.one_pass())


def test_arrays_stay_as_they_were_when_the_step_writes_into_a_batch(feed):
    given = feed("Numbered")
    batch = given.next()
    batch["x"] += 100
    assert [first(each) for each in given.one_pass()] == [0, 2, 4]
    assert np.all(batch["x"] >= 100)
