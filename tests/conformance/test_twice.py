"""An optimizer that a step applies again, of which any update may not stay: both backends give the same numbers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import product

import numpy as np
import pytest

from runtime import Step
from runtime.state import State
from tests.features.overflows import INF
from tests.features.steps import build_step
from tests.features.waiting import counted

SPEC = """
graphspec: 1
name: twice
inputs: {p: {shape: []}, q: {shape: []}}
models:
  a: {parameter: {shape: [], init: 1.0}, optimizer: OPTIMIZER}
  b: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 1.0}}
ops:
  seen: {forward: a}
  later: {forward: a, after: first}
  last: {forward: b, after: second}
  cost: {call: mul, inputs: [seen, p]}
  again: {call: mul, inputs: [later, q]}
  other: {call: mul, inputs: [last, q]}
  first: {update: a, loss: cost}
  second: {update: a, loss: again}
  third: {update: b, loss: other}
precision: {loss_scale: {initial: 4, growth_steps: 1}}
"""
SHORT = SPEC.replace("  third: {update: b, loss: other}\n", "")
"""The second update is the last: the host asks for all verdicts ahead of it."""
THRICE = """
graphspec: 1
name: thrice
inputs: {p: {shape: []}, q: {shape: []}, r: {shape: []}}
models:
  a: {parameter: {shape: [], init: 1.0}, optimizer: OPTIMIZER}
  b: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 1.0}}
  c: {parameter: {shape: [], init: 2.0}, optimizer: OPTIMIZER}
ops:
  a0: {forward: a}
  a1: {forward: a, after: first}
  a2: {forward: a, after: second}
  b0: {forward: b, after: third}
  c1: {forward: c, after: first}
  c2: {forward: c, after: aside}
  cost: {call: mul, inputs: [a0, p]}
  again: {call: mul, inputs: [a1, q]}
  more: {call: mul, inputs: [a2, r]}
  beside: {call: mul, inputs: [c1, q]}
  further: {call: mul, inputs: [c2, r]}
  other: {call: mul, inputs: [b0, q]}
  first: {update: a, loss: cost}
  second: {update: a, loss: again}
  third: {update: a, loss: more}
  aside: {update: c, loss: beside}
  away: {update: c, loss: further}
  last: {update: b, loss: other}
precision: {loss_scale: {initial: 4, growth_steps: 1}}
"""
"""Three updates of one optimizer and two of another: four groups, of which later ones depend on how earlier ended."""
RULES = (
    "adam",
    "adamw",
    "adagrad",
    "lion",
    "sgd",
    "sgd, momentum: 0.5, momentum_form: lr_inside",
    "sgd, momentum: 0.5, dampening: 0.25",
    "sgd, momentum: 0.5, nesterov: true",
    "sgd, momentum: 0.5, nesterov: true, fused: false",
    "rmsprop",
    "adadelta",
    "adamax",
    "nadam",
    "sgd, weight_decay: {schedule: linear, from: 1, over: 5}",
)
READING = ("adamax", "nadam")
"""Rules of which torch.optim reads the count of updates in every step, which is a tensor of the host."""
BURSTS = ((1.0, 2.0), (INF, 1.0), (1.0, INF), (INF, INF), (3.0, 1.0))


FALLING = "{schedule: linear, from: 1, to: 0.1, over: 16}"
CLIPS = (
    f"{{norm: {FALLING}}}",
    f"{{norm: {FALLING}, per: parameter}}",
    f"{{value: {FALLING}}}",
    f"{{agc: {FALLING}, eps: {FALLING}}}",
)
"""Clips by numbers that count the updates of an optimizer, which hang on what became of its updates before."""
FEW = (
    "adam",
    "sgd, momentum: 0.5, dampening: 0.25",
    "rmsprop",
    "sgd, weight_decay: {schedule: linear, from: 1, over: 5}",
)
STAYING = ((1.0, 2.0), (INF, 1.0), (INF, -3.0), (0.5, 1.0), (INF, 2.0), (1.0, INF))
"""Slopes of two updates of which nothing stops the second, which at last spoils the weights."""


def clipped(clip: str, *updates: str) -> tuple[str, ...]:
    """Return settings by which updates are clipped."""
    return tuple(f"ops.{update}.clip={clip}" for update in updates)


@lru_cache(maxsize=4)
def begun(rule: str, backend: str, settings: tuple[str, ...], text: str) -> tuple[Step, State]:
    """Build a step in float32; return it with its first state."""
    step = build_step(text.replace("OPTIMIZER", f"{{name: {rule}, lr: 0.1}}"), backend, settings, dtype="float32")
    return step, step.state()


def make(rule: str, backend: str, settings: tuple[str, ...] = (), text: str = SPEC) -> Step:
    """Return a step as it begins: one that was taken before is given back its first state."""
    step, first = begun(rule, backend, settings, text)
    step.restore(first)
    now = step.state()
    assert now.counters == first.counters
    assert now.arrays.keys() == first.arrays.keys()
    assert all(np.array_equal(array, first.arrays[name]) for name, array in now.arrays.items())
    return step


def take(step: Step, *slopes: float) -> dict[str, np.ndarray]:
    """Take a step with some slopes; return weights and slots."""
    step({name: np.array(slope, np.float32) for name, slope in zip("pqr", slopes, strict=False)})
    return dict(step.state().arrays)


def count(step: Step, *slopes: float) -> int:
    """Return how often a step waits for its device, which is not the first."""
    take(step, *(1.0 for _ in slopes))
    with counted("torch") as seen:
        step({name: np.array(slope, np.float32) for name, slope in zip("pqr", slopes, strict=False)})
    return len(seen)


def require_same(ours: Step, theirs: Step, bursts: Iterable[tuple[float, ...]]) -> None:
    """Take steps with slopes on two backends; weights and slots must be the same behind each."""
    for burst in bursts:
        found, expected = take(ours, *burst), take(theirs, *burst)
        shared = [name for name in expected if name in found and name.startswith(("models", "optimizers"))]
        assert len(shared) >= 2
        for name in shared:
            assert np.allclose(found[name], expected[name], rtol=2e-6, atol=2e-7, equal_nan=True), (burst, name)


def each(rules: Iterable[str]) -> pytest.MarkDecorator:
    """Return the parameter; what one process has built for one test it need not build for another."""
    together = [pytest.param(rule, marks=pytest.mark.xdist_group(f"twice {rule}"), id=rule) for rule in rules]
    return pytest.mark.parametrize("rule", together)


@pytest.mark.sample(9)
@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("first", [0, 2])
@each(RULES)
def test_whichever_update_stays_all_is_as_if_the_other_had_not_been(rule: str, first: int) -> None:
    ours, theirs = (make(rule, backend) for backend in ("torch", "tensorflow"))
    require_same(ours, theirs, (*BURSTS[first:], *BURSTS[:first]))
    assert ours.optimizers["a"].iterations == theirs.optimizers["a"].iterations == 6


@pytest.mark.sample(9)
@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("text", [SPEC, SHORT], ids=["early", "last"])
@pytest.mark.parametrize("clip", CLIPS)
@each(FEW)
def test_a_clip_counts_the_updates_that_stay(rule: str, clip: str, first: int, text: str) -> None:
    ours, theirs = (make(rule, backend, clipped(clip, "second"), text) for backend in ("torch", "tensorflow"))
    require_same(ours, theirs, (*BURSTS[first:], *BURSTS[:first]))
    assert ours.optimizers["a"].iterations == theirs.optimizers["a"].iterations == 6


@pytest.mark.sample(9)
@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("clip", CLIPS)
@each(FEW)
def test_a_clip_behind_two_updates_counts_those_that_stay(rule: str, clip: str) -> None:
    settings = clipped(clip, "second", "third", "away")
    ours, theirs = (make(rule, backend, settings, THRICE) for backend in ("torch", "tensorflow"))
    bursts = list(product((1.0, INF), (INF, 2.0), (3.0, INF)))
    require_same(ours, theirs, bursts)
    assert ours.optimizers["a"].iterations == theirs.optimizers["a"].iterations == 12
    assert ours.optimizers["c"].iterations == theirs.optimizers["c"].iterations == 8


@pytest.mark.sample(7)
@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("text", [SPEC, SHORT], ids=["early", "last"])
@pytest.mark.parametrize("clip", [None, CLIPS[0]])
@each(RULES)
def test_what_nothing_stops_is_made_however_another_ended(rule: str, clip: str | None, text: str) -> None:
    settings = ("ops.second.on_overflow=apply", *(() if clip is None else clipped(clip, "second")))
    ours, theirs = (make(rule, backend, settings, text) for backend in ("torch", "tensorflow"))
    require_same(ours, theirs, STAYING)
    assert ours.optimizers["a"].iterations == theirs.optimizers["a"].iterations == 9


@pytest.mark.sample(9)
@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("staying", [("second",), ("third",), ("second", "aside"), ("first", "second", "away")])
@each(FEW)
def test_what_nothing_stops_may_stand_between(rule: str, staying: tuple[str, ...]) -> None:
    settings = (*(f"ops.{each}.on_overflow=apply" for each in staying), *clipped(CLIPS[0], "third", "away"))
    ours, theirs = (make(rule, backend, settings, THRICE) for backend in ("torch", "tensorflow"))
    slopes = {"first": 0, "second": 1, "aside": 1, "third": 2, "away": 2}
    finite = {slopes[each] for each in staying}
    bursts = product(*((1.0, 2.0) if at in finite else (1.0, INF) for at in range(3)))
    require_same(ours, theirs, bursts)


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("text", "expected"), [(SPEC, 2), (SHORT, 1)], ids=["early", "last"])
@pytest.mark.parametrize("burst", BURSTS)
@each(rule for rule in RULES if rule not in READING)
def test_the_host_asks_before_it_applies_an_optimizer_again(
    rule: str, burst: tuple[float, float], text: str, expected: int
) -> None:
    assert count(make(rule, "torch", text=text), *burst) == expected


@pytest.mark.needs("torch")
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("text", [SPEC, SHORT], ids=["early", "last"])
def test_the_host_asks_before_a_clip_counts_updates(clip: str, text: str) -> None:
    """In the short spec it asks once more: the second verdict comes behind the clip."""
    step = make("adam", "torch", clipped(clip, "second"), text)
    assert [count(step, *burst) for burst in BURSTS] == [2 for _ in BURSTS]


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("text", "expected"), [(SPEC, 2), (SHORT, 1)], ids=["early", "last"])
def test_the_host_asks_before_what_nothing_stops(text: str, expected: int) -> None:
    step = make("adam", "torch", ("ops.second.on_overflow=apply",), text)
    assert [count(step, *burst) for burst in BURSTS] == [expected for _ in BURSTS]


ASKING = {
    (): 2,  # before the second update of either optimizer, and at the end
    ("second",): 3,  # before the second of `a`, before what counts `c`, and at the end
    ("third", "aside"): 2,  # `aside` always stays, so that nothing waits to hear of it
    ("second", "last", "away"): 3,
}
"""How often the host asks, by what nothing stops: at most once for each of the four groups."""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("staying", ASKING)
def test_it_asks_once_for_all_that_the_device_knows(staying: tuple[str, ...]) -> None:
    settings = (*(f"ops.{each}.on_overflow=apply" for each in staying), *clipped(CLIPS[0], "third", "away"))
    step = make("adam", "torch", settings, THRICE)
    assert [count(step, *burst) for burst in product((1.0, INF), repeat=3)] == [ASKING[staying]] * 8
