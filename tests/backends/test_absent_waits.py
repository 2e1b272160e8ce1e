"""`missing: skip` in windows under verdicts: the host asks which steps were taken in before it takes a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from random import Random

import numpy as np
import pytest

from runtime import Step
from runtime.state import State
from tests.features.paced import build_paced
from tests.features.steps import weights
from tests.features.waiting import counted

BACKENDS = pytest.mark.parametrize("backend", ["torch", "tensorflow"])
ONE = """
graphspec: 1
name: gaps
inputs: {x: {shape: [batch]}, y: {shape: [batch]}}
models:
  net: {parameter: {shape: [], init: 0.0}, optimizer: {OPTIMIZER}}
  head: {parameter: {shape: [], init: 1.0}, optimizer: {OPTIMIZER}}
ops:
  w: {forward: net}
  product: {call: mul, inputs: [x, w]}
  cost: {call: mean, inputs: product}
  h: {forward: head}
  scaled: {call: mul, inputs: [x, h]}
  loss: {loss: wasserstein, inputs: scaled, args: {sign: 1.0}, every: 4, lazy: none}
  both: {call: add, inputs: [cost, loss]}
  step: {update: [net, head], loss: both, missing: skip, accumulate: {steps: 3}, on_overflow: own}
precision: {loss_scale: {initial: 4, growth_steps: 2}}
"""
"""Either slope is that of the batch. The head has one in every fourth step: twelve steps are four windows, with it in
none of their steps, in the first, in the middle, in the last."""
LATER = """
  u: {forward: net, after: step}
  v: {forward: head, after: step}
  z: {forward: last}
  sum: {call: add, inputs: [u, v]}
  all: {call: add, inputs: [sum, y]}
  most: {call: mul, inputs: [all, z]}
  second: {call: mean, inputs: most}
  final: {update: last, loss: second}
precision:"""
TWO = ONE.replace("\nprecision:", LATER).replace(
    "ops:", "  last: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 1.0}}\nops:"
)
"""A second update reads what the first wrote: its verdict comes last."""
AGAIN = """
  a: {forward: net, after: step}
  b: {forward: head, after: step}
  near: {call: mul, inputs: [y, a]}
  far: {call: mul, inputs: [y, b]}
  fee: {call: mean, inputs: near}
  toll: {loss: wasserstein, inputs: far, args: {sign: 1.0}, every: 3, lazy: none}
  pair: {call: add, inputs: [fee, toll]}
  again: {update: [net, head], loss: pair, missing: skip, accumulate: {steps: 2}, clip: {norm: 1.5}, on_overflow: own}
  u: {forward: net, after: again}
  v: {forward: head, after: again}
  z:"""
THRICE = f"{TWO[: TWO.index(chr(10) + '  u:')]}{AGAIN}{TWO[TWO.index(chr(10) + '  z:') + 5 :]}"
"""Another update of the same optimizers stands between, with a window of its own."""
GIVEN = "{update: [net, head], loss: both, missing: skip, accumulate: {steps: 3}"
MODELS = """
  side: {parameter: {shape: [], init: 0.5}, optimizer: {OPTIMIZER}}
  wing: {parameter: {shape: [], init: 1.5}, optimizer: {OPTIMIZER}}
ops:
  s: {forward: side}
  spread: {call: mul, inputs: [x, s]}
  fee: {call: mean, inputs: spread}
  t: {forward: wing}
  flown: {call: mul, inputs: [y, t]}
  toll: {loss: wasserstein, inputs: flown, args: {sign: 1.0}, every: 3, lazy: none}
  pair: {call: add, inputs: [fee, toll]}"""
GRADIENTS = """
  ga: {gradient: both, wrt: [net, head], unconnected: skip}
  gb: {gradient: pair, wrt: [side, wing], unconnected: skip}"""
NOISE = "\n  noisy: {transform: noise, inputs: gb, args: {std: 0.5}}"
BESIDE = "\n  beside: {update: [side, wing], loss: pair, missing: skip, accumulate: {steps: 2}, on_overflow: own}"
FALLING = "{schedule: linear, from: 3, to: 0.5, over: 3}"
FOUR = "{update: [net, head, side, wing], missing: skip, accumulate: {steps: 3}"
SEVERAL = {
    "windows": (f"{MODELS}{GRADIENTS}", f"{FOUR}, gradients: [ga, gb]"),
    "noise": (f"{MODELS}{GRADIENTS}{NOISE}", f"{FOUR}, gradients: [ga, noisy], clip: {{norm: 2.5}}"),
    "updates": (f"{MODELS}{BESIDE}", GIVEN),
    "clip": ("\nops:", f"{GIVEN}, clip: {{norm: 1.5}}"),
    "rate": ("\nops:", f"{GIVEN}, optimizer: {{OPTIMIZER}}, clip: {{norm: {FALLING}}}"),
}
"""What stands in the place of `ops:`, and of the update: several windows, and what is made of what they give."""
SGD = "name: sgd, lr: 0.5, momentum: 0.5, weight_decay: 0.25"
RULES = ("name: adam, lr: 0.1, weight_decay: 0.1", "name: rmsprop, lr: 0.1", "name: adagrad, lr: 0.1", SGD)
WHOLE = "ops.step.accumulate.on_nonfinite=window"
FLUSH = "ops.step.accumulate.on_epoch_end=flush"
KINDS: Mapping[str, tuple[str, ...]] = {"drop": (), "window": (WHOLE,), "flush": (FLUSH,), "both": (WHOLE, FLUSH)}
each_kind = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.xdist_group(f"gaps {kind}")) for kind in KINDS]
)  # what one process has built for one test it need not build for another
EPOCH = 7
BAD = np.inf
MASKS = tuple(product((False, True), repeat=3))
"""Which steps of a window are not finite."""
Pairs = Sequence[tuple[float, float]]


def find_slopes(masks: Sequence[Sequence[bool]]) -> Pairs:
    """Return slopes of twelve steps for each mask, those not finite that it says; so the later update's."""
    random = Random(0)
    drawn = [(random.uniform(-2, 2), random.uniform(-2, 2), bad) for mask in masks for bad in (*mask,) * 4]
    return [(BAD if bad else p, BAD if at % 5 == 2 else q) for at, (p, q, bad) in enumerate(drawn)]


ALL = find_slopes(MASKS)
"""Every mask over windows that have the head in none of their steps, in the first, in the middle and in the last."""
SOME = find_slopes([MASKS[each] for each in (2, 5, 4)])


@lru_cache(maxsize=20)
def begun(text: str, backend: str, settings: tuple[str, ...], rule: str) -> tuple[Step, State]:
    """Build a step; return it with its first state."""
    step = build_paced(text.replace("OPTIMIZER", rule), backend, settings, epoch=EPOCH)
    return step, step.state()


def make(text: str, backend: str, settings: tuple[str, ...] = (), rule: str = SGD) -> Step:
    """Return a step as it begins: one that was taken before is given back its first state."""
    step, first = begun(text, backend, settings, rule)
    step.restore(first)
    return step


def take(step: Step, pair: tuple[float, float]) -> dict[str, float]:
    """Take a step on a batch of one row; return the weights."""
    step({name: np.array([value]) for name, value in zip("xy", pair, strict=True)})
    return {name: float(value) for name, value in weights(step).items()}


class ByHand:
    """SGD with momentum and weight decay on means of windows, written down as the rule says."""

    def __init__(self, settings: Sequence[str]) -> None:
        self.is_whole, self.flushes = WHOLE in settings, FLUSH in settings
        self.values, self.speeds = {"net": 0.0, "head": 1.0, "last": 1.0}, dict[str, float]()
        self.window: list[dict[str, float] | None] = []
        self.at = 0

    def take(self, x: float, y: float) -> dict[str, float]:
        """Take a step; return the weights."""
        self.at += 1
        found = {"net": x, "head": x} if self.at % 4 == 0 else {"net": x}
        self.window.append(found if np.isfinite(x) else None)
        if len(self.window) == 3 or (self.flushes and self.at % EPOCH == 0):
            self.apply(self.window)
            self.window = []
        if np.isfinite(slope := self.values["net"] + self.values["head"] + y):
            self.values["last"] -= slope
        return dict(self.values)

    def apply(self, window: Sequence[dict[str, float] | None]) -> None:
        """Apply a window, without the steps that are missing."""
        taken = [each for each in window if each is not None]
        if not taken or (self.is_whole and len(taken) < len(window)):
            return
        for name in ("net", "head"):
            there = [each[name] for each in taken if name in each]
            if there:
                gradient = sum(there) / len(taken) + 0.25 * self.values[name]
                self.speeds[name] = 0.5 * self.speeds.get(name, 0.0) + gradient
                self.values[name] -= 0.5 * self.speeds[name]


@pytest.mark.sample(3)
@BACKENDS
@each_kind
@pytest.mark.parametrize("text", [ONE, TWO], ids=["one", "two"])
def test_the_numbers_are_those_made_by_hand(text: str, kind: str, backend: str) -> None:
    step, other = make(text, backend, KINDS[kind]), ByHand(KINDS[kind])
    for pair in ALL:
        found, expected = take(step, pair), other.take(*pair)
        assert {name: expected[name.removesuffix(".value")] for name in found} == pytest.approx(found)


def count(step: Step, slopes: Pairs) -> list[int]:
    """Return by step how often it waited for its device."""
    counts: list[int] = []
    for pair in slopes:
        batch = {name: np.array([value]) for name, value in zip("xy", pair, strict=True)}
        with counted("torch") as seen:
            step(batch)
        counts.append(len(seen))
    return counts


def expect(kind: str, *, again: bool = False) -> list[int]:
    """Return by step how often the host asks: at its end, and before it takes a window that leaves steps out.

    ``again``: an update beside has such a window of two steps.
    """
    counts, begun = list[int](), 0
    for at in range(1, len(ALL) + 1):
        begun += 1
        is_full = begun == 3 or (FLUSH in KINDS[kind] and at % EPOCH == 0)
        begun = 0 if is_full else begun
        counts.append(1 + (is_full and WHOLE not in KINDS[kind]) + (again and at % 2 == 0))
    return counts


@pytest.mark.needs("torch")
@each_kind
@pytest.mark.parametrize("text", [ONE, TWO, THRICE], ids=["one", "two", "thrice"])
def test_the_host_asks_before_it_takes_a_window_with_gaps(text: str, kind: str) -> None:
    assert count(make(text, "torch", KINDS[kind]), ALL) == expect(kind, again=text == THRICE)


def several(name: str, text: str) -> str:
    """Return a spec whose first update is made of something else."""
    begin, update = SEVERAL[name]
    if "optimizer" in update:
        text = text.replace(", optimizer: {OPTIMIZER}}", "}")
    return text.replace("\nops:", begin).replace(GIVEN, update)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize(("text", "kind"), [(ONE, "flush"), (TWO, "drop")], ids=["one", "two"])
def test_it_asks_once_for_all_windows_of_an_update(text: str, name: str, kind: str) -> None:
    assert count(make(several(name, text), "torch", KINDS[kind]), ALL) == expect(kind, again=name == "updates")


def require_same(text: str, settings: tuple[str, ...], rule: str) -> None:
    """Take steps on two backends; weights and slots must be the same behind each."""
    ours, theirs = (make(text, backend, settings, rule) for backend in ("torch", "tensorflow"))
    for at, pair in enumerate(SOME):
        take(ours, pair), take(theirs, pair)
        found, expected = ours.state().arrays, theirs.state().arrays
        shared = [name for name in expected if name in found and name.startswith(("models", "optimizers"))]
        assert len(shared) >= 2
        for name in shared:
            assert np.allclose(found[name], expected[name], rtol=1e-6, atol=1e-7), (at, name)


@pytest.mark.sample(2)
@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize(
    ("text", "kind", "rule"),
    [(ONE, "window", RULES[1]), (TWO, "flush", RULES[2]), (TWO, "both", RULES[3]), (THRICE, "drop", RULES[0])],
    ids=["one", "two", "two-whole", "thrice"],
)
def test_both_backends_give_the_same_numbers(text: str, kind: str, rule: str) -> None:
    require_same(text, KINDS[kind], rule)


@pytest.mark.sample(3)
@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize(
    ("text", "kind", "name"), [(ONE, "flush", each) for each in ("updates", "rate")] + [(TWO, "drop", "noise")]
)
def test_they_do_where_windows_are_several_or_made_something_of(text: str, name: str, kind: str) -> None:
    require_same(several(name, text), KINDS[kind], RULES[0])


@pytest.mark.sample(3)
@BACKENDS
@each_kind
@pytest.mark.parametrize("text", [ONE, TWO], ids=["one", "two"])
def test_a_run_goes_on_from_any_step(text: str, kind: str, backend: str) -> None:
    step, states, found = make(text, backend, KINDS[kind]), list[State](), list[dict[str, float]]()
    for pair in SOME:
        states.append(step.state())
        found.append(take(step, pair))
    for cut in (1, 4, 5, 10, 11, 13):
        step.restore(states[cut])
        assert [take(step, pair) for pair in SOME[cut:]] == found[cut:]


@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("text", [ONE, TWO], ids=["one", "two"])
def test_a_run_goes_on_with_the_other_backend(text: str) -> None:
    for backends in (("torch", "tensorflow"), ("tensorflow", "torch")):
        ours, theirs = (make(text, backend) for backend in backends)
        for pair in SOME[:22]:
            theirs.restore(ours.state())
            assert take(theirs, pair) == pytest.approx(take(ours, pair))
