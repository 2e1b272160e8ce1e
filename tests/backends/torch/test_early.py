"""Updates that are made before a step knows whether they stay: by classes, and by rules that begin with a gradient."""

from __future__ import annotations

import ast

import numpy as np
import pytest
import torch

from compiler import compile_step
from compiler.ir.instructions import Accumulate, Apply, CheckFinite
from graphspec import SpecError, load
from runtime import Step, StepError, build
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.codegen.module import emit_module
from runtime.codegen.resources import find_functions
from tests.backends.torch import early
from tests.conformance.test_twice import SPEC as TWICE
from tests.conformance.test_twice import THRICE
from tests.features.overflows import INF
from tests.features.test_shared_loss_scale import ORDERED
from tests.features.waiting import counted
from tests.properties.plans import plan_of
from tests.properties.specs import random_spec

CLASS = ('models.a.optimizer={class: "tests.backends.torch.early:Counting", lr: 1.0}',)
SPARE = ORDERED.replace("a: {parameter: {shape: [], init: 1.0}", 'a: {class: "tests.backends.torch.early:Spare"')
SPARE = SPARE.replace("{update: a, loss: la}", "{update: a, loss: la, missing: skip}")
RULES = ("sgd", "adam", "rmsprop", "adadelta", "adamax", "nadam")
READING = ("adamax", "nadam")
"""Rules of which torch.optim reads the count of updates in every step, which is a tensor of the host."""


def make(text: str, settings: tuple[str, ...] = (), *, debug: bool = False) -> Step:
    """Return a step in float32."""
    return build(compile_step(load(text, settings), "torch"), device="cpu", allow=("tests",), debug=debug)


def take(step: Step, p: float, q: float) -> int:
    """Take a step with two slopes; return how often it waited for its device."""
    with counted("torch") as seen:
        step({"p": np.array(p, np.float32), "q": np.array(q, np.float32)})
    return len(seen)


def contents(step: Step) -> dict[str, bytes]:
    """Return all tensors of a step but the scale and what follows it, bit for bit."""
    return {name: step.numpy(each).tobytes() for name, each in step.tensors().items() if name.split(".")[1] == "a"}


def test_a_class_is_put_back_and_waits_with_the_others() -> None:
    step = make(ORDERED, CLASS)
    assert [take(step, *slopes) for slopes in [(1.0, 1.0), (INF, 1.0), (1.0, 1.0)]] == [1, 1, 1]
    weights = step.state().arrays
    assert weights["models.a.value"] == 1.0 - 1.0 - 1.5
    assert weights["models.b.value"] == 1.0 - 3.0
    assert step.optimizers["a"].iterations == 2


@pytest.mark.parametrize("first", [0, 1])
def test_what_a_class_keeps_is_as_before(first: int) -> None:
    step = make(ORDERED, CLASS)
    for _ in range(first):
        take(step, 1.0, 1.0)
    before, native = contents(step), step.optimizers["a"].native.optimizer
    take(step, INF, 1.0)
    assert contents(step) == before
    assert [group["calls"] for group in native.param_groups] == [first]
    assert len(native.state) == first
    assert step.report.held[:1] == ("step_a",)


def test_a_class_sees_no_gradient_that_is_not_finite() -> None:
    step = make(ORDERED, CLASS)
    early.SEEN.clear()
    for p in (1.0, INF, float("nan"), 1.0):
        take(step, p, 1.0)
    assert [float(each) for each in early.SEEN] == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("first", [0, 1])
def test_a_rule_with_gaps_is_put_back_too(rule: str, first: int) -> None:
    step = make(SPARE, (f"models.a.optimizer={{name: {rule}, lr: 0.1}}",))
    for _ in range(first):
        take(step, 1.0, 1.0)
    before = contents(step)
    waits = take(step, INF, 1.0)
    assert contents(step) == before
    assert waits == 1 or rule in READING
    take(step, 1.0, 1.0)
    plain = make(SPARE, (f"models.a.optimizer={{name: {rule}, lr: 0.1}}",))
    for _ in range(first + 1):
        take(plain, 1.0, 1.0)
    assert contents(step) == contents(plain)


def test_an_error_in_a_class_leaves_no_guard_behind() -> None:
    step = make(ORDERED, CLASS)
    native = step.optimizers["a"].native
    kept = native.optimizer.step
    native.optimizer.step = lambda: 1 / 0
    with pytest.raises(StepError, match="ZeroDivisionError"):
        take(step, 1.0, 1.0)
    native.optimizer.step = kept
    assert native.guard is None
    assert isinstance(native.optimizer, torch.optim.Optimizer)


def fail_once(step: Step, p: float, q: float) -> None:
    """Take a step that fails in its middle, see that no other follows, and restore what was before."""
    before = step.state()
    early.TRIPS.append(1)
    with pytest.raises(StepError, match="tripped"):
        take(step, p, q)
    with pytest.raises(StepError, match="GS290"):
        take(step, p, q)
    step.restore(before)


TRIPPING = ORDERED.replace("inputs: [vb, q]}", "inputs: [tripped, q]}").replace(
    "  lb:", '  tripped: {call: "tests.backends.torch.early:trip", inputs: vb}\n  lb:'
)


@pytest.mark.parametrize(
    "rule", ["{name: sgd, lr: 1.0, momentum: 0.5}", "{name: adam, lr: 0.1}", CLASS[0].partition("=")[2]]
)
@pytest.mark.parametrize("first", [0, 1])
def test_a_step_that_fails_after_an_early_update_goes_on_once_it_is_restored(rule: str, first: int) -> None:
    step, plain = (make(TRIPPING, (f"models.a.optimizer={rule}",)) for _ in range(2))
    for _ in range(first):
        take(step, 1.0, 1.0)
    fail_once(step, INF, 1.0)
    take(step, 1.0, 1.0)
    for _ in range(first + 1):
        take(plain, 1.0, 1.0)
    assert contents(step) == contents(plain)
    assert step.optimizers["a"].iterations == first + 1


AGAIN = TWICE.replace("inputs: [last, q]}", "inputs: [tripped, q]}").replace(
    "  other:", '  tripped: {call: "tests.backends.torch.early:trip", inputs: last}\n  other:'
)
LIMIT = "ops.second.clip={norm: {schedule: linear, from: 1.0, to: 0.2, over: 8}}"
STAYS = "ops.second.on_overflow=apply"
HUGE = 1e36
"""A slope that is not finite once it is scaled, while all else is."""
MOMENTUM = ("{name: sgd, lr: 1.0, momentum: 0.5}", "{name: sgd, lr: 1.0, momentum: 0.5, fused: false}")
HANGING = pytest.mark.parametrize("settings", [(LIMIT,), (STAYS,), (STAYS, LIMIT)])
"""What a second update of an optimizer has that depends on how the first ended."""


def step_by_hand(settings: tuple[str, ...], slopes: list[tuple[float, float]]) -> tuple[float, int]:
    """Return the weight that momentum makes of the slopes of two updates in each step, and how often it was applied."""
    weight, speed, applied = 1.0, 0.0, 0
    for p, q in slopes:
        if p != HUGE:
            weight, speed, applied = weight - (p + 0.5 * speed), p + 0.5 * speed, applied + 1
        if q != HUGE or STAYS in settings:
            limit = 1.0 - 0.1 * min(applied, 8) if LIMIT in settings else HUGE
            speed = min(q, limit) + 0.5 * speed
            weight, applied = weight - speed, applied + 1
    return weight, applied


@HANGING
@pytest.mark.parametrize("rule", [CLASS[0].partition("=")[2], *MOMENTUM])
@pytest.mark.parametrize("debug", [False, True])
def test_what_depends_on_an_early_update_is_as_by_hand(rule: str, settings: tuple[str, ...], debug: bool) -> None:
    step = make(AGAIN.replace("OPTIMIZER", rule), (*settings, "precision.loss_scale.initial=32768"), debug=debug)
    last = () if STAYS in settings else ((1.0, HUGE), (HUGE, HUGE), (2.0, 1.0))
    slopes = [(1.0, 2.0), (HUGE, 1.5), (0.5, 3.0), (HUGE, 2.0), *last]
    for at, burst in enumerate(slopes):
        assert take(step, *burst) == 2 or debug  # before the second update, and behind the third verdict
        weight, applied = step_by_hand(settings, slopes[: at + 1])
        assert step.state().arrays["models.a.value"] == pytest.approx(weight, rel=1e-6)
        assert step.optimizers["a"].iterations == applied
    if "class" in rule:
        assert step.optimizers["a"].native.optimizer.param_groups[0]["calls"] == applied


@HANGING
@pytest.mark.parametrize("rule", [CLASS[0].partition("=")[2], *MOMENTUM, "{name: adam, lr: 0.1}"])
@pytest.mark.parametrize("failing", [(1.0, 2.0), (INF, 2.0)])
def test_what_depends_on_an_early_update_goes_on_once_a_step_that_failed_is_restored(
    rule: str, settings: tuple[str, ...], failing: tuple[float, float]
) -> None:
    step, plain = (make(AGAIN.replace("OPTIMIZER", rule), settings) for _ in range(2))
    take(step, 1.0, 1.0)
    fail_once(step, *failing)
    for burst in (failing, (3.0, 1.0)):
        take(step, *burst)
    for burst in ((1.0, 1.0), failing, (3.0, 1.0)):
        take(plain, *burst)
    assert contents(step) == contents(plain)
    assert step.optimizers["a"].iterations == plain.optimizers["a"].iterations == 5 + (failing[0] != INF)


@HANGING
@pytest.mark.parametrize("rule", [*MOMENTUM, "{name: adam, lr: 0.1}"])
def test_a_debug_build_gives_the_same_numbers(rule: str, settings: tuple[str, ...]) -> None:
    limits = tuple(each.replace("second", "third") for each in settings if each == LIMIT)
    told = (*limits, *(each for each in settings if each == STAYS), "precision.loss_scale.initial=32768")
    checked, plain = (make(THRICE.replace("OPTIMIZER", rule), told, debug=debug) for debug in (True, False))
    for slopes in ((1.0, 2.0, 3.0), (HUGE, 2.0, 1.0), (1.0, 2.0, HUGE), (HUGE, 1.0, HUGE), (1.0, 1.0, 2.0)):
        for step in (checked, plain):
            step({name: np.array(each, np.float32) for name, each in zip("pqr", slopes, strict=True)})
        assert contents(checked) == contents(plain)


MANY = (166, 204, 306, 438)
"""Seeds of specs in which the host asks several times."""


def count_reads(text: str) -> dict[str, int]:
    """Return by function how often its text asks for verdicts."""
    functions = (each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef))
    return {each.name: ast.unparse(each).count("verdicts.read(") for each in functions}


@pytest.mark.sample(5)
@pytest.mark.parametrize("policy", ["fewest", "latest"])
@pytest.mark.parametrize("seed", [*range(40), *MANY])
def test_a_step_asks_at_most_once_for_each_condition(seed: int, policy: str) -> None:
    """The conditions are those of its updates, and those under which its windows take gradients in.

    Updates that are checked and take place in any case have one in common: what the host is told at the end.
    """
    try:
        program = plan_of(random_spec(seed), policy).program
    except SpecError:
        return  # no order at all
    reads = count_reads(emit_module(program, TORCH).own)
    for function in find_functions(program):
        checked = {each.op for each in function.instructions if isinstance(each, CheckFinite)}
        listed = (each for each in function.instructions if isinstance(each, Apply | Accumulate))
        conditions = {each.commits for each in listed if each.commits or each.op in checked}
        assert reads.get(function.name, 0) <= max(1, len(conditions))
