"""The interleaved measurement against a clock that only variants advance: every figure is known in advance."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from runtime.bench.interleaving import Stopwatch, interleave


class World:
    """A clock, a speed of the machine, and who ran when."""

    def __init__(self, drift: float = 0.0, latency: float = 0.0) -> None:
        self.now, self.drift, self.latency, self.ran = 0.0, drift, latency, []

    def variant(self, name: str, *seconds: float):
        """Return a step that takes these seconds in turn, longer and longer as the machine drifts."""

        def step():
            self.now += seconds[self.ran.count(name) % len(seconds)] * (1 + self.drift * self.now)
            self.ran.append(name)
            return name

        return step

    def wait(self, result) -> None:
        assert result == self.ran[-1]  # the last step of the slice
        self.now += self.latency

    def measure(self, variants, baseline, **options):
        stopwatch = Stopwatch(wall=lambda: self.now, cpu=lambda: self.now / 2, wait=self.wait)
        return interleave(variants, baseline, stopwatch=stopwatch, **options)


def test_times_and_ratios_are_those_of_the_clock():
    world = World()
    variants = {name: world.variant(name, each) for name, each in {"a": 0.002, "b": 0.003, "c": 0.001}.items()}
    found = world.measure(variants, "a", rounds=7)
    assert {name: each.milliseconds for name, each in found.items()} == pytest.approx({"a": 2.0, "b": 3.0, "c": 1.0})
    for name, ratio in {"a": 1.0, "b": 1.5, "c": 0.5}.items():
        each = found[name]
        assert (each.ratio, each.low, each.high, each.cpu_ratio) == pytest.approx((ratio,) * 4)
        assert each.rounds == 7


def test_a_slice_is_filled_and_every_round_has_every_variant_once():
    world = World()
    variants = {"slow": world.variant("slow", 0.1), "fast": world.variant("fast", 0.004)}
    world.measure(variants, "slow", rounds=20, slice_ms=40, seed=3)
    rounds = [tuple(world.ran[at : at + 11]) for at in range(len(world.ran) - 220, len(world.ran), 11)]
    orders = [("slow", *["fast"] * 10), (*["fast"] * 10, "slow")]  # a step of 100 ms, ten of 4 ms
    assert set(rounds) == set(orders)


def test_a_drift_of_the_machine_cancels_out_of_ratios():
    world = World(drift=0.02)  # 2 % slower after every second
    variants = {name: world.variant(name, each) for name, each in {"a": 0.02, "b": 0.03}.items()}
    found = world.measure(variants, "a", rounds=200)
    assert world.now > 15  # the machine has become much slower
    assert found["a"].milliseconds > 22
    assert found["b"].ratio == pytest.approx(1.5, rel=2e-3)


def test_the_spread_is_that_of_the_rounds():
    world = World()
    # Slices of one step: the warm-up of b takes 10 of its steps, and none to find how many fill a slice.
    seconds = [*[0.1] * 10, *np.linspace(0.1, 0.2, 11)]
    variants = {"a": world.variant("a", 0.1), "b": world.variant("b", *seconds)}
    found = world.measure(variants, "a", rounds=11, slice_ms=40)["b"]
    assert (found.ratio, found.low, found.high) == pytest.approx((1.5, 1.1, 1.9))


def test_the_time_that_the_device_needs_to_finish_counts():
    world = World(latency=0.01)
    found = world.measure({"a": world.variant("a", 0.1), "b": world.variant("b", 0.05)}, "a", rounds=3)
    assert found["a"].milliseconds == pytest.approx(110)
    assert found["b"].ratio == pytest.approx(60 / 110)


def test_a_slice_has_whole_periods_of_steps_that_do_other_work():
    world = World()
    found = world.measure(
        {"a": world.variant("a", 0.001), "lazy": world.variant("lazy", 0.001, 0.001, 0.001, 0.009)},
        "a",
        rounds=9,
        slice_ms=10,
        multiple=4,
    )["lazy"]
    assert (found.low, found.ratio, found.high) == pytest.approx((3.0, 3.0, 3.0))


@pytest.mark.parametrize("stop", [0, 1])
def test_the_user_stops_before_the_first_round(stop):
    world, asked = World(), iter([*[False] * stop, *[True] * 9])
    variants = {name: world.variant(name, 0.1) for name in ("a", "b")}
    assert world.measure(variants, "a", rounds=5, is_over=lambda: next(asked)) == {}


def test_a_round_that_was_not_finished_does_not_count():
    world = World()
    variants = {name: world.variant(name, 0.1) for name in ("a", "b")}
    asked = iter([*[False] * 2, *[False] * 4, True])  # once after every slice: warm-up, two rounds, half of one
    found = world.measure(variants, "a", rounds=50, is_over=lambda: next(asked))
    assert {name: each.rounds for name, each in found.items()} == {"a": 2, "b": 2}
    assert found["b"].ratio == pytest.approx(1.0)


def test_the_collector_of_garbage_is_on_again_after_an_error():
    def fail():
        assert not gc.isenabled()
        raise KeyError("x")

    with pytest.raises(KeyError):
        interleave({"a": fail}, "a", rounds=1)
    assert gc.isenabled()
