"""A feed: what it gives, where it stands, and that a restored one gives exactly what would have followed."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.data import open_feed
from runtime.data.share import Share
from runtime.state import flatten, unflatten

SPEC = """
graphspec: 1
name: numbers
inputs: {{x: {{shape: [batch]}}}}
ops: {{mean: {{call: mean, inputs: x}}}}
outputs: mean
data: {{train: {{{source}, {options}}}}}
"""
SOURCES = """
import random
import numpy as np

class Stream:
    def __init__(self, count=5): self.count = count
    def __iter__(self):
        for start in range(self.count): yield {"x": np.full(2, start, np.float32)}

class Shuffling(Stream):
    def __init__(self, count=5):
        super().__init__(count)
        self.order = random.Random(7)
    def __iter__(self):
        rows = list(range(self.count))
        self.order.shuffle(rows)
        for row in rows: yield {"x": np.full(2, row, np.float32)}

class Replay:
    \"\"\"Draws from a buffer that grows with every batch, for as long as it is asked.\"\"\"
    def __init__(self):
        self.random, self.buffer = np.random.default_rng(3), np.zeros(1, np.float32)
        self.step = None
    def attach(self, step): self.step = step
    def __iter__(self):
        while True:
            drawn = self.random.choice(self.buffer, 2)
            self.buffer = np.append(self.buffer, np.float32(len(self.buffer)))
            yield {"x": drawn}
    def state_dict(self): return {"random": self.random.bit_generator.state, "buffer": [self.buffer, ()]}
    def load_state_dict(self, state):
        self.random.bit_generator.state, self.buffer = state["random"], state["buffer"][0]
        self.buffer += 0

class Epochs(Stream):
    \"\"\"Keeps its place in an epoch.\"\"\"
    at = loads = 0
    def __iter__(self):
        while self.at < self.count:
            self.at += 1
            yield {"x": np.full(2, self.at, np.float32)}
        self.at = 0
    def state_dict(self): return {"at": np.int64(self.at)}
    def load_state_dict(self, state): self.at, self.loads = state["at"], self.loads + 1

class Noisy:
    \"\"\"Samples by number, with noise of its own.\"\"\"
    def __init__(self): self.random = random.Random(1)
    def __len__(self): return 7
    def __getitem__(self, i): return {"x": np.float32(i + self.random.random())}
    def state_dict(self): return {"random": self.random.getstate()}
    def load_state_dict(self, state):
        version, words, gauss = state["random"]
        self.random.setstate((version, tuple(words), gauss))

class Refusing(Epochs):
    def load_state_dict(self, state): raise KeyError("seed")
"""


@pytest.fixture
def feed(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(11, dtype=np.float32))
    (tmp_path / "my_feeds.py").write_text(SOURCES)

    def make(name: str = "", options: str = "", *, batch: int = 2, seed: int = 5):
        source = f'class: "my_feeds:{name}"' if name else "source: npz, path: x.npz, shuffle: true"
        spec = load(SPEC.format(source=f"{source}, batch: {batch}", options=options))
        return open_feed(spec, "train", seed=seed, allow=["my_feeds"], directory=tmp_path)

    return make


def take(feed, count: int) -> list[list[float] | None]:
    """Return what so many calls give; None is the end of an epoch."""
    taken = [feed.next() for _ in range(count)]
    return [None if batch is None else batch["x"].tolist() for batch in taken]


def saved(feed):
    """Return the state as a checkpoint keeps it: plain data and arrays apart."""
    plain, arrays = flatten(feed.state(), "data")
    return unflatten(plain, {name: array.copy() for name, array in arrays.items()})


def resumed(feed, tree):
    feed.restore(tree)
    return feed


def test_an_epoch_ends_with_none_and_the_next_one_follows(feed):
    order = [np.random.Generator(np.random.Philox(key=(epoch << 64) + 5)).permutation(11) for epoch in (0, 1)]
    given = feed()
    assert take(given, 12) == [*order[0][:10].reshape(5, 2).tolist(), None, *order[1][:10].reshape(5, 2).tolist(), None]
    assert (given.epoch, given.index, given.taken, given.length) == (2, 0, 10, 5)


@pytest.mark.parametrize("name", ["", "Stream", "Shuffling", "Replay", "Epochs", "Noisy"])
@pytest.mark.parametrize("calls", [0, 1, 3, 5, 6, 8, 13])
def test_a_restored_feed_gives_exactly_what_would_have_followed(feed, name, calls):
    first = feed(name)
    take(first, calls)
    state = saved(first)
    assert take(resumed(feed(name), state), 14) == take(first, 14)


@pytest.mark.parametrize("name", ["", "Stream", "Epochs", "Noisy"])
def test_a_restored_feed_knows_where_it_is(feed, name):
    first = feed(name)
    take(first, 7)
    second = resumed(feed(name), saved(first))
    assert (second.epoch, second.index, second.taken) == (first.epoch, first.index, first.taken)


def test_a_ragged_last_batch_counts_as_its_samples(feed):
    first = feed("", "drop_last: false", batch=4)
    assert [len(batch) for batch in take(first, 3)] == [4, 4, 3]
    assert (first.length, take(resumed(feed("", "drop_last: false", batch=4), saved(first)), 1)) == (3, [None])


def test_after_a_change_of_the_batch_no_sample_comes_twice_in_the_epoch(feed):
    order = np.random.Generator(np.random.Philox(key=5)).permutation(11)
    first = feed(batch=3)
    take(first, 1)
    second = resumed(feed(batch=4), saved(first))
    assert take(second, 3) == [order[3:7].tolist(), order[7:11].tolist(), None]
    assert second.notes == ("data.train has batches of 4, it had 3: the epoch continues after its first 3 samples",)


def test_a_stream_without_a_state_is_read_again_and_says_so(feed):
    first = feed("Stream")
    take(first, 8)
    second = resumed(feed("Stream"), saved(first))
    assert second.notes == ("data.train keeps no state: 7 batches are read again to reach its position",)
    assert resumed(feed("Stream"), saved(feed("Stream"))).notes == ()


def test_a_stream_with_a_state_is_not_read_again(feed):
    first = feed("Replay")
    take(first, 3)
    second = resumed(feed("Replay"), saved(first))
    assert (second.notes, second.batches.passes) == ((), 0)


def test_a_state_does_not_change_while_the_source_goes_on(feed):
    first = feed("Replay")
    take(first, 2)
    state = first.state()
    before = state["state"]["buffer"][0].tolist()
    first.batches.origin.buffer += 1
    assert state["state"]["buffer"][0].tolist() == before


def test_the_step_is_attached_to_a_source_that_wants_it(feed):
    step, acting = object(), feed("Replay")
    acting.attach(step)
    feed("Stream").attach(step)
    assert acting.batches.origin.step is step


@pytest.mark.parametrize("name", ["", "Stream", "Epochs", "Noisy"])
def test_one_pass_is_the_first_epoch_and_moves_nothing(feed, name):
    first, other, plain = feed(name), feed(name), feed(name)
    passed = [[batch["x"].tolist() for batch in first.one_pass()] for _ in range(2)]
    assert passed == [take(other, len(passed[0]))] * 2
    assert (first.taken, take(first, 9)) == (0, take(plain, 9))


def test_one_pass_in_the_middle_of_an_epoch_moves_nothing(feed):
    first, plain = feed(), feed()
    assert (take(first, 2), len(list(first.one_pass())), take(first, 2)) == (take(plain, 2), 5, take(plain, 2))


def test_rows_are_the_samples_of_a_batch(feed):
    given = feed("", "drop_last: false", batch=4)
    assert [given.rows(batch) for batch in given.one_pass()] == [4, 4, 3]


def test_a_position_of_another_kind_of_source_is_told(feed):
    with pytest.raises(
        SpecError, match=r"GS252.*gives batches one after another, the run was saved with one that gives samp"
    ):
        feed("Stream").restore(saved(feed()))


def test_a_position_beyond_the_end_is_told(feed, tmp_path):
    first = feed()
    take(first, 5)
    np.savez(tmp_path / "x.npz", x=np.arange(8, dtype=np.float32))
    with pytest.raises(SpecError, match=r"GS252.*10 samples of epoch 1 had been taken, the source has 8"):
        feed().restore(saved(first))


def test_another_number_of_samples_is_noted(feed, tmp_path):
    first = feed()
    np.savez(tmp_path / "x.npz", x=np.arange(12, dtype=np.float32))
    assert resumed(feed(), saved(first)).notes == ("data.train has 12 samples, it had 11: the next batches differ",)


def test_a_stream_that_has_become_too_short_is_told(feed):
    first = feed("Stream")
    take(first, 4)
    second = resumed(feed("Stream", "args: {count: 3}"), saved(first))
    with pytest.raises(SpecError, match=r"GS252.*the source ended after 3 batches, 4 had been taken"):
        second.next()


def test_a_state_for_a_source_that_takes_none_is_told(feed):
    with pytest.raises(SpecError, match=r"GS252.*has no load_state_dict, the run was saved with a state of it"):
        feed("Stream").restore(saved(feed("Epochs")))
    with pytest.raises(SpecError, match=r"GS252.*has a load_state_dict, the run was saved with no state of it"):
        feed("Epochs").restore(saved(feed("Stream")))


@pytest.mark.parametrize("tree", [None, 3, {}, {"kind": "samples", "size": 11, "stateful": False, "epoch": -1}])
def test_what_is_no_position_is_told(feed, tree):
    with pytest.raises(SpecError, match=r"GS252.*the checkpoint holds no position in the data"):
        feed().restore(tree)


def test_a_source_that_refuses_its_state_is_told_with_its_line_and_nothing_moves(feed):
    refusing = feed("Refusing")
    take(refusing, 1)
    with pytest.raises(SpecError, match=r"(?s)GS226.*raised KeyError: 'seed'.*my_feeds.py.*in load_state_dict"):
        refusing.restore(saved(feed("Refusing")))
    assert refusing.taken == 1


GROUPED = """
graphspec: 1
name: several batches
inputs: {x: {shape: [batch]}}
models: {v: {parameter: {shape: []}, optimizer: sgd}}
ops:
  several:
    repeat: 3
    batch: next
    ops: {value: {forward: v}, cost: {expr: "mean(value * x)"}, step: {update: v, loss: cost}}
data: {train: {source: npz, path: numbers.npz, batch: 2, shuffle: true}}
"""


def test_a_step_that_takes_several_batches_gets_them_in_order_and_leaves_out_the_rest_of_an_epoch(tmp_path):
    np.savez(tmp_path / "numbers.npz", x=np.arange(15, dtype=np.float32))  # seven batches: two steps, and one is left
    spec, single = load(GROUPED), load(GROUPED.replace("batch: next", "batch: reuse"))
    feed, alone = (open_feed(each, "train", seed=3, directory=tmp_path) for each in (spec, single))
    assert (feed.length, alone.length) == (2, 7)
    for epoch in range(2):
        batches = [alone.next()["x"].tolist() for _ in range(7)]
        assert alone.next() is None
        for number in range(2):
            given = feed.next()
            names = ("batch_1.x", "batch_2.x", "x")
            assert [given[name].tolist() for name in names] == batches[number * 3 : number * 3 + 3]
            assert (feed.epoch, feed.index, feed.rows(given)) == (epoch, number + 1, 6)
        assert feed.next() is None


def test_several_batches_of_a_step_say_how_many_rows_all_processes_have_of_each(tmp_path):
    np.savez(tmp_path / "numbers.npz", x=np.arange(15, dtype=np.float32))
    replicated = load(GROUPED.replace("batch: 2", "batch: 3") + "parallel: {kind: replicated}\n")
    for rank, own in enumerate((2, 1)):
        given = open_feed(replicated, "train", seed=3, directory=tmp_path, share=Share(rank=rank, count=2)).next()
        assert (given.rows, len(given["x"]), len(given["batch_1.x"])) == (3, own, own)


def test_a_feed_of_several_batches_goes_on_where_it_was(tmp_path):
    np.savez(tmp_path / "numbers.npz", x=np.arange(15, dtype=np.float32))
    one, other = (open_feed(load(GROUPED), "train", seed=3, directory=tmp_path) for _ in range(2))
    one.next()
    other.restore(saved(one))
    following = [one.next(), one.next(), one.next()]
    assert following[1] is None  # the end of the epoch
    for expected in following:
        given = other.next()
        assert (given is None) == (expected is None)
        assert given is None or all((given[name] == expected[name]).all() for name in expected)
