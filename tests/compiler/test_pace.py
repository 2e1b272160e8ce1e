"""Durations become steps and updates by the pace of a run; where they cannot, E-PACE says what is missing."""

from __future__ import annotations

import re

import pytest

from compiler import Pace, Plan, compile_step
from compiler.ir.verify import verify
from compiler.timing.period import FiringPeriod, find_firing_period, find_writes
from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.loading import load
from tests.compiler.conftest import PRELUDE, document
from tests.compiler.test_activity import active_sets, steps_of

PACE = Pace(epoch=22, batch=64, run=100)
STEP = """
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la, CLOCK_A}
  fb: {forward: b, inputs: x}
  lb: {loss: mse, inputs: [fb, y]}
  step_b: {update: b, loss: lb, CLOCK_B}
"""


def plan_of(
    clock_b: str = "every: 1", clock_a: str = "every: 1", more: str = "", *, pace: Pace | None = PACE, end: str = ""
) -> Plan:
    """Compile two updates with clocks, and more ops behind them, at a pace."""
    ops = STEP.replace("CLOCK_A", clock_a).replace("CLOCK_B", clock_b) + more
    spec = load(document(ops, PRELUDE) + end)
    return compile_step(spec, hook=verify, pace=pace)


def refused(*arguments: str, **options: object) -> tuple[Diagnostic, ...]:
    """Return the errors of a step that cannot be compiled."""
    with pytest.raises(SpecError, match=r"E-PACE|GS120") as caught:
        plan_of(*arguments, **options)
    return caught.value.diagnostics


def scheduled(
    lr: str, clock_b: str = "every: 1", more: str = "", *, pace: Pace | None = PACE, pending: bool = False
) -> Plan:
    """Compile the two updates with a schedule for the rate of b."""
    b = "b: {layers: [{linear: 4}, {linear: 4}], optimizer: {name: sgd, lr: LR}}".replace("LR", lr)
    prelude = re.sub(r"b: \{layers.*", lambda _: b, PRELUDE, count=1)
    ops = STEP.replace("CLOCK_A", "every: 1").replace("CLOCK_B", clock_b) + more
    return compile_step(load(document(ops, prelude)), pace=pace, pending=pending)


def decay(plan: Plan, op: str) -> float:
    """Return the decay of an average."""
    instructions = [each for function in plan.to_json()["functions"] for each in function["instructions"]]
    return next(each["decay"] for each in instructions if each["op"] == op and each["kind"] == "blend")


def epoch_of(step: int) -> int:
    """Return the epoch, from 1, that a step of PACE lies in, counted by hand."""
    steps = (number for epoch in range(1, 10) for number in [epoch] * 22)
    return list(steps)[step - 1]


@pytest.mark.parametrize(
    ("clock", "is_due"),
    [
        ("start: 3 epochs", lambda step: epoch_of(step) >= 3),
        ("until: 1 epochs", lambda step: epoch_of(step) <= 1),
        ("start: 2 epochs, until: 3 epochs", lambda step: 2 <= epoch_of(step) <= 3),
        ("start: 2 epochs, until: 2 epochs", lambda step: epoch_of(step) == 2),
        ("until: 0.5 epochs", lambda step: step <= 11),
        ("start: 1.5 epochs", lambda step: step > 11),
        ("start: 0.5 run", lambda step: step > 50),
        ("until: 0.29 run", lambda step: step <= 29),
        ("start: 1000 samples", lambda step: step * 64 >= 1000),
        ("until: 1000 samples", lambda step: step * 64 <= 1000),
    ],
)
def test_starts_and_ends_fall_where_a_count_by_hand_puts_them(clock, is_due):
    assert steps_of(plan_of(clock), "step_b", 90) == [step for step in range(1, 91) if is_due(step)]


def test_a_clock_that_starts_with_an_epoch_counts_on_from_its_first_step():
    assert steps_of(plan_of("every: 10, start: 2 epochs, until: 3 epochs"), "step_b", 90) == [23, 33, 43, 53, 63]


def test_epochs_that_split_the_run_give_one_function_for_each_stretch():
    plan = plan_of("start: 3 epochs", "until: 2 epochs")
    assert active_sets(plan) == {frozenset({"step_a"}), frozenset({"step_b"})}
    longer = plan_of("start: 400 epochs", "until: 300 epochs", pace=Pace(epoch=50_000))
    assert active_sets(longer) == {frozenset({"step_a"}), frozenset(), frozenset({"step_b"})}


@pytest.mark.parametrize(
    ("clock", "last"), [("every: 2, until: 3 updates", [2, 4, 6]), ("start: 5, until: 2 updates", [5, 6])]
)
def test_an_update_ends_after_so_many_updates_of_its_own(clock, last):
    assert steps_of(plan_of(clock), "step_b", 30) == last


def test_an_average_starts_with_an_update_of_its_source():
    more = "  follow: {ema: a, into: slow_a, decay: 0.9, start: 3 updates, until: 4 updates}\n"
    assert steps_of(plan_of(clock_a="every: 5", more=more), "follow", 40) == [15, 20]


@pytest.mark.parametrize(
    ("half_life", "clock_a", "writes"),
    [
        ("44 updates", "every: 2", 44),
        ("44 steps", "every: 2", 22),
        ("2 epochs", "every: 1", 44),
        ("2 epochs", "every: 4", 11),
        ("1408 samples", "every: 1", 22),
        ("0.5 run", "every: 1", 50),
    ],
)
def test_a_half_life_in_time_is_one_in_writes_of_the_source(half_life, clock_a, writes):
    plan = plan_of(clock_a=clock_a, more=f"  follow: {{ema: a, into: slow_a, half_life: {half_life}}}\n")
    assert decay(plan, "follow") ** writes == pytest.approx(0.5)


def test_the_spec_itself_tells_the_batch_and_the_length_of_the_run():
    end = "data: {train: {source: npz, path: x.npz, batch: 32}}\nrun: {steps: 200}\n"
    plan = plan_of("start: 0.5 run, until: 4k samples", pace=None, end=end)
    assert plan.pace == Pace(batch=32, run=200)
    assert steps_of(plan, "step_b", 200) == list(range(101, 126))


def test_a_run_of_epochs_is_as_long_as_they_are():
    assert plan_of(pace=Pace(epoch=22), end="run: {epochs: 3}\n").pace.run == 66
    assert plan_of(pace=Pace(epoch=22, run=7), end="run: {epochs: 3}\n").pace.run == 7


@pytest.mark.parametrize(
    ("clock", "missing", "remedy"),
    [
        ("start: 3 epochs", "how many steps an epoch has", "data: {train: ...}"),
        ("until: 1000000 samples", "how many samples a step takes", "`batch`"),
        ("until: 0.5 run", "how many steps the run makes", "run: {steps: ...}"),
        ("start: 5 updates", "an update cannot wait for its own updates", "1000 steps"),
    ],
)
def test_what_cannot_be_counted_says_what_is_missing_and_what_to_write(clock, missing, remedy):
    (problem,) = refused(clock, pace=None)
    assert problem.code == "E-PACE"
    assert problem.message.startswith(f"`{clock}` of 'step_b' cannot be counted: ")
    assert missing in problem.message
    assert remedy in problem.help


@pytest.mark.parametrize(
    ("clock", "end", "remedy"),
    [
        (
            "start: 3 epochs",
            "run: {epochs: 9}",
            "in Python, pass the length: `compile_step(spec, pace=Pace(epoch=..., run",
        ),
        (
            "until: 0.5 run",
            "run: {epochs: 9}",
            "in Python, pass the length: `compile_step(spec, pace=Pace(epoch=..., run",
        ),
        ("until: 0.5 run", "", "write `run: {steps: ...}`, or count steps"),
        ("accumulate: {steps: 3, on_epoch_end: drop}", "", "run=...))`, or write `on_epoch_end: carry`"),
    ],
)
def test_a_length_that_the_spec_declares_is_passed_where_no_data_is_read(clock, end, remedy):
    data = "data: {train: {source: npz, path: x.npz, batch: 32}}\n"
    (problem,) = refused(clock, pace=None, end=data + end)
    assert remedy in problem.help
    assert "declare" not in problem.help
    plan_of(clock, pace=Pace(epoch=4, run=36), end=data + end)  # so the remedy is one


def test_a_place_in_the_only_group_of_a_model_is_found_with_and_without_a_list():
    for groups in ("{frozen: {until: 1 epochs}}", "[{frozen: {until: 1 epochs}}]"):
        b = f"b: {{layers: [{{linear: 4}}, {{linear: 4}}], optimizer: sgd, groups: {groups}}}"
        text = document(STEP.replace("CLOCK_A", "every: 1").replace("CLOCK_B", "every: 1"), PRELUDE)
        spec = load(re.sub(r"b: \{layers.*", lambda _, b=b: b, text, count=1))
        (found,) = compile_step(spec, pending=True).pending
        assert found.span.end_column - found.span.column == len("1 epochs")


def test_all_that_cannot_be_counted_is_told_at_once_and_other_problems_with_it():
    more = "  follow: {ema: a, into: slow_a, half_life: 2 epochs}\n  idle: {forward: b, inputs: y}\n"
    found = refused("start: 3 epochs, until: 0.5 run", more=more, pace=None)
    assert [problem.code for problem in found] == ["E-PACE", "E-PACE", "E-PACE", "W-DEAD"]
    widths = [problem.span.end_column - problem.span.column for problem in found[:3]]
    assert widths == [len("3 epochs"), len("0.5 run"), len("2 epochs")]


def test_an_end_that_comes_before_the_start_at_this_pace_is_told():
    (problem,) = refused("start: 3 epochs, until: 40 steps")
    assert problem.code == "GS120"
    assert "starts at step 45 and ends with step 40" in problem.message
    (problem,) = refused("until: 0.01 epochs")
    assert "starts at step 1 and ends with step 0" in problem.message


def test_an_op_cannot_start_by_the_epochs_of_training_in_another_mode():
    metric = "  seen: {metric: mean, inputs: lb, start: 3 epochs}\n"
    (problem,) = refused(more=metric)
    assert "also runs in eval mode, which counts its own steps" in problem.message
    only = metric.replace("start", "mode: train, start")
    assert plan_of(more=only).program.mode("train").gates[0].start == 45


@pytest.mark.parametrize(
    ("schedule", "clock_b", "field", "ticks"),
    [
        ("{schedule: linear, from: 1, over: 2 epochs}", "every: 1", "over", 44),
        ("{schedule: linear, from: 1, over: 2 epochs}", "every: 2", "over", 22),
        ("{schedule: linear, from: 1, over: 2 epochs}", "every: 2, start: 7, until: 50", "over", 22),
        ("{schedule: linear, from: 1, over: 2 epochs}", "every: step_a", "over", 44),
        ("{schedule: linear, from: 1, over: 30}", "every: 2", "over", 30),
        ("{schedule: linear, from: 1, over: 30 updates, clock: steps}", "every: 2", "over", 60),
        ("{schedule: linear, from: 1, over: 0.5 run, clock: samples}", "every: 2", "over", 3200),
        ("{schedule: linear, from: 1, over: 11 steps, clock: epochs}", "every: 2", "over", 0.5),
        ("{schedule: step, from: 1, factor: 0.1, every: 6400 samples}", "every: 1", "every", 100),
        ("{schedule: exponential, from: 1, rate: 0.5, per: 0.1 run}", "every: 5", "per", 2),
    ],
)
def test_lengths_of_a_schedule_are_counted_by_its_clock(schedule, clock_b, field, ticks):
    optimizer = next(each for each in scheduled(schedule, clock_b).program.optimizers if each.name == "b")
    assert optimizer.options["lr"].fields[field] == ticks


def test_the_parts_of_a_join_begin_at_whole_ticks_of_the_exact_sum():
    third = "{schedule: constant, value: 1, for: 7.4}"
    last = "{schedule: constant, value: 1}"
    plan = scheduled(f"{{schedule: join, parts: [{third}, {third}, {third}, {last}]}}")
    assert plan.program.optimizers[1].options["lr"].moments == (8, 15, 23)


@pytest.mark.parametrize(
    ("schedule", "missing"),
    [
        ("{schedule: linear, from: 1, over: 2 epochs}", "how many steps an epoch has"),
        ("{schedule: constant, value: 1, clock: epochs}", "how many steps an epoch has"),
        ("{schedule: constant, value: 1, clock: samples}", "how many samples a step takes"),
        ("{schedule: piecewise, at: {0: 1, 0.5 run: 2}}", "how many steps the run makes"),
    ],
)
def test_a_schedule_that_cannot_be_counted_says_what_is_missing(schedule, missing):
    with pytest.raises(SpecError, match="E-PACE") as caught:
        scheduled(schedule, pace=None)
    (problem,) = caught.value.diagnostics
    assert missing in problem.message
    assert problem.span.line == 6


SECOND = """
  again: {forward: b, inputs: y, after: step_b}
  lc: {loss: mse, inputs: [again, y]}
  more_b: {update: b, loss: lc, SECOND}
"""


def test_updates_of_one_optimizer_at_two_paces_have_no_common_one():
    with pytest.raises(SpecError, match=r"'step_b' and 'more_b' do not all fire in every step") as caught:
        scheduled("{schedule: linear, from: 1, over: 2 epochs}", "every: 2", SECOND.replace("SECOND", "every: 3"))
    assert [problem.code for problem in caught.value.diagnostics] == ["E-PACE"]
    assert "clock: steps" in caught.value.diagnostics[0].help


def test_two_updates_in_every_step_make_twice_as_many():
    plan = scheduled("{schedule: linear, from: 1, over: 2 epochs}", more=SECOND.replace("SECOND", "every: 1"))
    assert plan.program.optimizers[1].options["lr"].fields["over"] == 88


def test_moments_that_fall_on_one_tick_are_refused():
    with pytest.raises(SpecError, match="two parts of this schedule begin at tick 1 of its clock"):
        scheduled("{schedule: piecewise, at: {0: 1, 5 steps: 2, 6 steps: 3}, clock: epochs}")


@pytest.mark.parametrize(
    ("clock_a", "average", "period"),
    [
        ("every: 3", "every: 2", (6, 6)),
        ("every: 3, start: 2", "every: 2", (5, 6)),
        ("every: 3", "every: 2, start: 5", (6, 6)),
        ("every: 3", "every: step_a", (3, 3)),
        ("every: 1", "every: step_b", (2, 2)),
    ],
)
def test_a_period_is_what_the_gates_do(clock_a, average, period):
    more = f"  follow: {{ema: a, into: slow_a, decay: 0.9, {average}}}\n"
    plan = plan_of("every: 2", clock_a, more)
    found = find_firing_period(plan.spec, "follow")
    assert (found.first, found.every) == period
    assert steps_of(plan, "follow", 40) == list(range(period[0], 41, period[1]))


def test_a_source_with_two_gated_writers_has_no_period():
    more = SECOND.replace("SECOND", "every: 3")
    assert find_writes(plan_of("every: 2", more=more).spec, "b") is None
    assert find_writes(plan_of("every: 1", more=more).spec, "b") == FiringPeriod(first=1, every=1)
    with pytest.raises(SpecError, match="how many steps lie between two writes of 'b'"):
        plan_of("every: 2", more=more + "  follow: {ema: b, half_life: 2 epochs}\n")


def test_the_plan_tells_schedules_with_their_clock_and_the_steps_that_were_found():
    parts = "{schedule: warmup, to: 1, over: 10}, {schedule: cosine, from: 1, over: 2 epochs}"
    plan = scheduled(f"{{schedule: join, clock: steps, parts: [{parts}]}}", "start: 3 epochs")
    curve = "warmup from 0 to 1 over 10 steps; from 10 steps on cosine from 1 to 0 over 44 steps"
    told = f"{curve} (counts train steps, from 0)"
    assert f"\nschedules\n  b.lr: {told}\n" in plan.text()
    assert "\nmoments\n  step_b starts at step 45 (start: 3 epochs)\n" in plan.text()
    entry = {"optimizer": "b", "option": "lr", "kind": "join", "clock": "steps", "text": told}
    assert plan.to_json()["schedules"] == [entry]
    assert plan.to_json("eval")["schedules"] == []


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("{schedule: constant, value: 0.1}", "constant 0.1 (counts updates applied, from 0)"),
        ("{schedule: step, from: 1, factor: 0.5, every: 30}", "step from 1, times 0.5 every 30 updates"),
        ("{schedule: exponential, from: 1, rate: 0.9}", "exponential from 1, times 0.9 per 1 updates"),
        ("{schedule: piecewise, at: {0: 1, 2 epochs: 0.1}}", "piecewise 1, 0.1 from 44 updates on"),
        ("{schedule: polynomial, from: 1, over: 9, power: 2}", "polynomial from 1 to 0 over 9 updates, power 2"),
        (
            "{schedule: linear, from: 1, over: 9, clock: epochs}",
            "over 9 epochs (counts epochs finished, 22 train steps",
        ),
        (
            "{schedule: linear, from: 1, over: 9, clock: samples}",
            "over 9 samples (counts samples, 64 in a train step, from 0)",
        ),
    ],
)
def test_every_kind_of_schedule_has_words(schedule, words):
    assert words in scheduled(schedule).text()


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("{schedule: warmup, from: 0.04, to: 0.07, over: 30 epochs}", "warmup from 0.04 to 0.07 over 30 epochs"),
        ("{schedule: cosine, from: 1, to: 0, over: 0.5 run}", "cosine from 1 to 0 over 0.5 run"),
        ("{schedule: step, from: 1, factor: 0.5, every: 3 epochs}", "step from 1, times 0.5 every 3 epochs"),
        ("{schedule: exponential, from: 1, rate: 0.9, per: 2 ep}", "exponential from 1, times 0.9 per 2 epochs"),
        (
            "{schedule: piecewise, at: {0: 1, 50: 0.5, 2 epochs: 0.1}}",
            "piecewise 1, 0.5 from 50 updates on, 0.1 from 2",
        ),
        (
            "{schedule: join, clock: steps, parts: [{schedule: warmup, to: 1, over: 10}, "
            "{schedule: constant, value: 1, for: 2 epochs}, {schedule: cosine, from: 1, over: 5 epochs}]}",
            "warmup from 0 to 1 over 10 steps; then constant 1, for 2 epochs; then cosine from 1 to 0 over 5 epochs",
        ),
    ],
)
def test_a_schedule_that_is_not_counted_yet_is_told_as_it_is_written(schedule, words):
    plan = scheduled(schedule, pending=True, pace=None)
    assert (told := plan.to_json()["schedules"][0]["text"]).startswith(words)
    assert told.endswith(" (not counted yet)")
    assert f"\nschedules\n  b.lr: {told}\n" in plan.text()
    assert "constant 0" not in plan.text() + plan.explain()


def test_groups_and_weights_that_are_not_counted_yet_are_told_as_they_are_written():
    groups = "[{match: ^0, frozen: {until: 1 epochs}}, {match: ^1, lr_scale: {schedule: linear, from: 1, over: 2 ep}}]"
    b = f"b: {{layers: [{{linear: 4}}, {{linear: 4}}], optimizer: sgd, groups: {groups}}}"
    ops = STEP.replace("CLOCK_A", "every: 1").replace("CLOCK_B", "every: 1")
    ops = ops.replace("[fb, y]}", "[fb, y], weight: {schedule: cosine, from: 1, over: 3 epochs}}")
    spec = load(document(ops, re.sub(r"b: \{layers.*", lambda _: b, PRELUDE, count=1)))
    text = (plan := compile_step(spec, pending=True)).text()
    assert "  b: 0.weight, 0.bias: frozen until 1 epochs (not counted yet) (match: ^0)\n" in text
    assert "  b: 1.weight, 1.bias: lr times linear from 1 to 0 over 2 epochs (not counted yet) (match: ^1)\n" in text
    assert "  lb.weight: cosine from 1 to 0 over 3 epochs (not counted yet)\n" in text
    found = [(each["frozen_until"], each["lr_scale"]) for each in plan.to_json()["groups"]]
    assert found == [("1 epochs", 1.0), (None, "linear from 1 to 0 over 2 epochs (not counted yet)")]
    # A fifth of an epoch of 4 steps is no whole step: the group is counted, and never frozen.
    counted = load(document(ops, re.sub(r"b: \{layers.*", lambda _: b.replace("1 ep", "0.2 ep"), PRELUDE, count=1)))
    assert "  b: 0.weight, 0.bias: as the others" in compile_step(counted, pace=Pace(epoch=4)).text()


def test_a_start_in_updates_counts_those_that_step_the_source():
    """`step_b` leaves `a` to `step_a`, which begins with step 3: the third update of `a` is in step 5."""
    ops = STEP.replace("CLOCK_A", "start: 3, shared: sum, optimizer: sgd").replace("CLOCK_B", "optimizer: adam")
    ops = ops.replace("update: b", "update: [a, b]").replace("forward: b, inputs: x", "forward: b, inputs: fa")
    average = "  slow: {ema: a, decay: 0.5, start: 3 updates}\n"
    assert steps_of(compile_step(load(document(ops + average, PRELUDE)), pace=PACE), "slow", 7) == [5, 6, 7]
