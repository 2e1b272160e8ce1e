"""Keyed random numbers: the portable ones bit for bit PyTorch's, one trace for all steps, what a key holds."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch

from runtime.backends.tensorflow.library import randomness, threefry
from runtime.backends.tensorflow.library.initial import forked_seed, initial_tensor, set_initial
from runtime.backends.tensorflow.library.layers import Dropout, Sequential
from runtime.backends.torch.library import initial as torch_initial
from runtime.backends.torch.library import randomness as torch_randomness
from runtime.backends.torch.library import threefry as torch_threefry

KINDS = pytest.mark.parametrize("kind", [randomness.NativeRandom, randomness.PortableRandom])
DRAWS = {
    "normal": lambda random: random.normal("a", (40, 3), mean=0.3, std=2.0),
    "uniform": lambda random: random.uniform("a", (40, 3), low=-0.1, high=0.7),
    "bernoulli": lambda random: random.bernoulli("a", (40, 3), p=0.3),
    "randint": lambda random: random.randint("a", (40, 3), low=-5, high=1000),
    "permutation": lambda random: random.permutation("a", 30),
}
EACH = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
TYPES = {"float32": (tf.float32, torch.float32), "float64": (tf.float64, torch.float64)}


def traced(random, draw):
    """Return a draw as a graph whose input is the number of the step."""

    def drawn(number):
        random.start("train", number)
        return draw(random)

    return tf.function(drawn, input_signature=[tf.TensorSpec([], tf.int64)], autograph=False)


def started(kind, seed=0, mode="train", step=1):
    """Return random numbers in a step."""
    random = kind(seed)
    random.start(mode, step)
    return random


@EACH
@pytest.mark.parametrize("name", TYPES)
def test_portable_draws_are_pytorchs_bit_for_bit_in_one_trace(draw, name):
    ours, theirs = TYPES[name]
    compiled = traced(randomness.PortableRandom(7, ours), draw)
    random = torch_randomness.PortableRandom(7, "cpu", theirs)
    for step in (1, 2, 2**32 - 1):
        random.start("train", step)
        np.testing.assert_array_equal(compiled(step).numpy(), draw(random).numpy(), strict=True)
    assert compiled.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("kind", ["bits", "uniform", "normal"])
def test_many_portable_numbers_are_pytorchs_bit_for_bit(kind):
    key = threefry.derive_key("any", 3)
    ours, theirs = threefry.portable_numbers(key, 100_000, kind), torch_threefry.portable_numbers(key, 100_000, kind)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), strict=True)


def test_the_quantiles_far_into_the_tails_are_pytorchs_bit_for_bit():
    p = np.concatenate((np.logspace(-15.9, -0.01, 2000), 1 - np.logspace(-15.9, -0.4, 500)))
    ours = tf.function(threefry.inverse_normal)(tf.constant(p))
    np.testing.assert_array_equal(ours.numpy(), torch_threefry.inverse_normal(torch.tensor(p)).numpy())


def test_threefry_gives_the_published_words():
    key, counter = (0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)  # Random123's kat_vectors
    words = threefry.derived_key(tf.constant(key, tf.int64), tf.constant(counter, tf.int64))
    assert words.numpy().tolist() == [0xC4923A9C, 0x483DF7A0]


def test_dropout_draws_pytorchs_numbers_for_rows_and_images_of_either_layout():
    ours, theirs = started(randomness.PortableRandom), torch_randomness.PortableRandom(0, "cpu")
    theirs.start("train", 1)
    x = np.ones((2, 3, 5, 4), np.float32)
    ours.seek("a"), theirs.seek("a")
    first, second = (theirs.keep_mask(torch.tensor(x), 0.4).numpy() / np.float32(0.6) for _ in range(2))
    layer = Dropout(0.4)
    layer.random = ours
    np.testing.assert_array_equal(layer.call(tf.constant(x), True, False).numpy(), first)
    turned = layer.call(tf.constant(x.transpose(0, 2, 3, 1)), True, True).numpy()
    np.testing.assert_array_equal(turned.transpose(0, 3, 1, 2), second)


@KINDS
@EACH
def test_the_same_key_gives_the_same_numbers_whatever_else_is_drawn(kind, draw):
    random = started(kind)
    random.normal("b", (7,))
    first = draw(random).numpy()
    np.testing.assert_array_equal(draw(random).numpy(), first)
    np.testing.assert_array_equal(traced(kind(0), draw)(1).numpy(), first)


@KINDS
@EACH
def test_seed_mode_step_and_op_each_change_the_numbers(kind, draw):
    one = draw(started(kind)).numpy()
    others = [started(kind, seed=1), started(kind, mode="eval"), started(kind, step=2)]
    assert not any(np.array_equal(draw(random).numpy(), one) for random in others)
    random = started(kind)
    assert not np.array_equal(random.normal("a", (4, 3)).numpy(), random.normal("c", (4, 3)).numpy())


@KINDS
def test_draws_have_their_distributions(kind):
    random, count = started(kind), (100_000,)
    normal, uniform = random.normal("a", count, mean=2.0, std=3.0), random.uniform("a", count, low=-1.0, high=3.0)
    whole, coins = random.randint("a", count, low=-2, high=3), random.bernoulli("a", count, p=0.3)
    assert (np.mean(normal), np.std(normal)) == pytest.approx((2, 3), abs=0.05)
    assert (np.mean(uniform), np.var(uniform)) == pytest.approx((1, 16 / 12), abs=0.03)
    assert -1 <= np.min(uniform) < np.max(uniform) < 3
    assert (np.bincount(whole.numpy() + 2) / 100_000).tolist() == pytest.approx([0.2] * 5, abs=0.01)
    assert np.unique(coins).tolist() == [0, 1]
    assert float(np.mean(coins)) == pytest.approx(0.3, abs=0.01)


@KINDS
def test_a_permutation_holds_every_number_once(kind):
    drawn = started(kind).permutation("a", 50).numpy()
    assert sorted(drawn.tolist()) == list(range(50))
    assert drawn.dtype == np.int64


def test_rounding_never_reaches_the_upper_limit():
    random = randomness.PortableRandom(0, tf.float16)
    random.start("train", 1)
    drawn = random.uniform("a", (20_000,)).numpy()  # in float16 one number in 4096 rounds to 1
    assert 0 <= drawn.min() < drawn.max() < 1


@KINDS
def test_shapes_may_hold_the_size_of_the_batch(kind):
    random = kind(0)

    @tf.function(input_signature=[tf.TensorSpec([None, 3])], autograph=False)
    def draw(x):
        random.start("train", 1)
        return random.normal("a", (tf.shape(x)[0], 5)), random.uniform("b", tf.shape(x))

    shapes = [[each.shape for each in draw(tf.zeros((batch, 3)))] for batch in (1, 4)]
    assert shapes == [[(1, 5), (1, 3)], [(4, 5), (4, 3)]]


@KINDS
def test_layers_draw_in_their_order_under_the_key_of_the_call(kind):
    random, model, x = started(kind), Sequential(Dropout(0.5), Dropout(0.5)), tf.ones((1, 200))
    random.attach(model)
    random.seek("a")
    first, second = (layer.call(x, True, False).numpy() for layer in model.layers)
    random.seek("a")
    np.testing.assert_array_equal(model(x, training=True).numpy(), first * second)
    random.seek("c")
    assert not np.array_equal(model(x, training=True).numpy(), first * second)
    assert not np.array_equal(first, second)


@KINDS
def test_the_generators_of_a_users_model_are_keyed_in_the_graph(kind):
    random, generator = kind(0), tf.random.Generator.from_seed(1)

    def draw(random):
        random.rekey("a", [generator.state])
        return generator.normal((5,))

    compiled = traced(random, draw)
    first, second, again = (compiled(step).numpy().tolist() for step in (1, 2, 1))
    assert first == again != second


@pytest.mark.parametrize(
    "case", [("zeros", 0.0), ("ones", 0.0), ("constant", 0.1), ("uniform", 0.3), ("normal", 0.02)], ids=lambda c: c[0]
)
@pytest.mark.parametrize("name", TYPES)
def test_initial_values_are_pytorchs_bit_for_bit(case, name):
    ours, theirs = TYPES[name]
    made = initial_tensor(5, "net", "0.weight", (7, 3), *case, ours)
    expected = torch_initial.initial_tensor(5, "net", "0.weight", (7, 3), *case, theirs)
    np.testing.assert_array_equal(made.numpy(), expected.numpy(), strict=True)


def test_a_users_class_is_made_under_a_seed_of_its_own_and_nothing_else_notices():
    import keras

    def weights(seed, name):
        with forked_seed(seed, name):
            dense = keras.layers.Dense(3)
            dense.build((None, 2))
            return [*dense.kernel.numpy().flatten().tolist(), *tf.random.normal((2,)).numpy().tolist()]

    tf.random.set_seed(4)
    before = tf.random.normal((3,)).numpy().tolist()
    tf.random.set_seed(4)
    first = weights(0, "net")
    assert tf.random.normal((3,)).numpy().tolist() == before
    assert weights(0, "net") == first
    assert weights(1, "net") != first != weights(0, "other")


def test_set_initial_fills_parameters_and_buffers_in_their_types():
    from runtime.backends.tensorflow.library.dense import Linear
    from runtime.backends.tensorflow.library.normalization import BatchNorm

    model = Sequential(Linear(2, 3), BatchNorm(3), dtype=tf.float64)
    values = {"0.weight": ("uniform", 0.5), "1.running_var": ("ones", 0.0), "1.num_batches_tracked": ("zeros", 0.0)}
    set_initial(model, 5, "net", values)
    expected = torch_initial.initial_tensor(5, "net", "0.weight", (3, 2), "uniform", 0.5, torch.float64)
    np.testing.assert_array_equal(model.named_parameters()["0.weight"].numpy(), expected.numpy())
    assert model.named_buffers()["1.running_var"].numpy().tolist() == [1, 1, 1]
