"""Keyed random numbers: what a draw depends on and what not, its distribution, and what it leaves alone."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from runtime.backends.torch.library.layers import Dropout
from runtime.backends.torch.library.randomness import KeyedRandom, NativeRandom, PortableRandom
from runtime.backends.torch.library.threefry import square_root

KINDS = pytest.mark.parametrize("kind", [NativeRandom, PortableRandom])
DRAWS = {
    "normal": lambda random: random.normal("a", (4, 3)),
    "uniform": lambda random: random.uniform("a", (4, 3)),
    "bernoulli": lambda random: random.bernoulli("a", (40, 3)),
    "randint": lambda random: random.randint("a", (4, 3), low=0, high=1000),
    "permutation": lambda random: random.permutation("a", 30),
}
EACH = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)


def started(kind: type[KeyedRandom], seed: int = 0, mode: str = "train", steps: int = 1) -> KeyedRandom:
    """Return random numbers in a step of a mode."""
    random = kind(seed, "cpu")
    random.start(mode, steps)
    return random


def draw_and_fail(context) -> None:
    """Draw a number of torch's and raise, both inside a context."""
    with context:
        torch.randn(3)
        raise ValueError("inside")


@KINDS
@EACH
def test_the_same_key_gives_the_same_numbers_whatever_else_is_drawn(kind, draw):
    random = started(kind)
    random.normal("b", (7,))
    first = draw(random)
    assert torch.equal(draw(random), first)
    assert torch.equal(draw(started(kind)), first)


@KINDS
@EACH
def test_seed_mode_step_and_op_each_change_the_numbers(kind, draw):
    one = draw(started(kind))
    others = [started(kind, seed=1), started(kind, mode="eval"), started(kind, steps=2)]
    assert not any(torch.equal(draw(random), one) for random in others)
    random = started(kind)
    assert not torch.equal(random.normal("a", (4, 3)), random.normal("c", (4, 3)))


@KINDS
def test_numbers_depend_on_the_step_and_not_on_the_steps_and_modes_before_it(kind):
    random = kind(0, "cpu")
    for mode, step in (("train", 1), ("eval", 1), ("eval", 2), ("train", 2)):
        random.start(mode, step)
    assert torch.equal(random.normal("a", (5,)), started(kind, steps=2).normal("a", (5,)))


@KINDS
@EACH
def test_a_draw_leaves_the_random_state_of_torch_alone(kind, draw):
    random, before = started(kind), torch.get_rng_state()
    draw(random)
    assert torch.equal(torch.get_rng_state(), before)


@KINDS
def test_draws_have_their_distributions(kind):
    random, count = started(kind), (100_000,)
    normal, uniform = random.normal("a", count, mean=2.0, std=3.0), random.uniform("a", count, low=-1.0, high=3.0)
    whole, coins = random.randint("a", count, low=-2, high=3), random.bernoulli("a", count, p=0.3)
    assert (float(normal.mean()), float(normal.std())) == pytest.approx((2, 3), abs=0.05)
    assert (float(uniform.mean()), float(uniform.var())) == pytest.approx((1, 16 / 12), abs=0.03)
    assert -1 <= float(uniform.min()) < float(uniform.max()) < 3
    assert torch.bincount(whole + 2).div(100_000).tolist() == pytest.approx([0.2] * 5, abs=0.01)
    assert coins.unique().tolist() == [0, 1]
    assert float(coins.mean()) == pytest.approx(0.3, abs=0.01)


@KINDS
def test_a_permutation_holds_every_number_once(kind):
    drawn = started(kind).permutation("a", 50)
    assert sorted(drawn.tolist()) == list(range(50))
    assert drawn.tolist() != list(range(50))


@KINDS
def test_types_are_those_of_the_build_and_whole_numbers_are_int64(kind):
    random = kind(0, "cpu", torch.float64)
    random.start("train", 1)
    floating = [random.normal("a", (2,)), random.uniform("a", (2,)), random.bernoulli("a", (2,))]
    whole = [random.randint("a", (2,), high=3), random.permutation("a", 3)]
    assert {x.dtype for x in floating} == {torch.float64}
    assert {x.dtype for x in whole} == {torch.int64}


def test_portable_numbers_are_rounded_from_the_same_float64_numbers():
    exact = PortableRandom(0, "cpu", torch.float64)
    exact.start("train", 1)
    assert torch.equal(exact.normal("a", (9,)).float(), started(PortableRandom).normal("a", (9,)))


def test_rounding_never_reaches_the_upper_limit():
    random = PortableRandom(0, "cpu", torch.float16)
    random.start("train", 1)
    drawn = random.uniform("a", (20_000,))  # in float16 one number in 4096 rounds to 1
    assert float(drawn.max()) < 1
    assert float(drawn.min()) >= 0


def test_no_two_steps_of_an_op_share_the_bits_of_the_seed_that_count_on_the_cpu():
    random, seeds = NativeRandom(0, "cpu"), set()
    random.keys["train"] = {"a": (7, 2**31)}  # the worst of keys: multiples of its second word repeat after two steps
    for step in range(1, 20_001):
        random.start("train", step)
        seeds.add(random.seed_of("a") & 0xFFFFFFFF)
    assert len(seeds) == 20_000


@KINDS
def test_forked_keys_the_global_numbers_and_gives_their_state_back(kind):
    before = torch.get_rng_state()
    with started(kind).forked("a"):
        first = torch.randn(3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(5)
    with started(kind).forked("a"):
        assert torch.equal(torch.randn(3), first)
    with started(kind).forked("b"):
        assert not torch.equal(torch.randn(3), first)


@KINDS
def test_forked_gives_the_state_back_after_an_error(kind):
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="inside"):
        draw_and_fail(started(kind).forked("a"))
    assert torch.equal(torch.get_rng_state(), before)


@KINDS
def test_layers_draw_in_their_order_under_the_key_of_the_call(kind):
    random, model = started(kind), nn.Sequential(Dropout(0.5), Dropout(0.5))
    random.attach(model)
    x = torch.ones(200)
    with random.within("a"):
        first, second = model[0](x), model[1](x)
    random.normal("b", (3,))
    with random.within("a"):
        assert torch.equal(model(x), first * second)
    with random.within("c"):
        assert not torch.equal(model[0](x), first)
    assert not torch.equal(first, second)


@KINDS
def test_a_copied_model_draws_from_the_same_source(kind):
    random, model = started(kind), Dropout(0.5)
    random.attach(model)
    x, copied = torch.ones(100), copy.deepcopy(model)
    with random.within("a"):
        first = model(x)
    with random.within("a"):
        assert torch.equal(copied(x), first)


def test_portable_normals_take_roots_as_ieee_754_rounds_them():
    x = torch.rand(20_000, generator=torch.Generator().manual_seed(5), dtype=torch.float64) * 40 + 0.5
    assert square_root(x).tolist() == [math.sqrt(each) for each in x.tolist()]
