"""Schedules have the fields of their kind, all of them and no others, in numbers of ticks or in durations."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from graphspec.declare.durations import Duration
from graphspec.declare.schedules import ScheduleSpec

COSINE = {"schedule": "cosine", "from": 1, "over": 30}
CONSTANT = {"schedule": "constant", "value": 1}


def updates(count):
    return Duration(count=count, unit="updates")


def read(written):
    return ScheduleSpec.model_validate(written)


@pytest.mark.parametrize(
    ("written", "fields"),
    [
        (CONSTANT, {"value": 1.0}),
        ({"schedule": "cosine", "from": 1.0, "over": 100}, {"from": 1.0, "to": 0.0, "over": 100}),
        (
            {"schedule": "polynomial", "from": 1, "to": 0.1, "over": "2k updates", "power": 2},
            {"from": 1.0, "to": 0.1, "over": updates(2000), "power": 2.0},
        ),
        ({"schedule": "polynomial", "from": 1, "over": 5}, {"from": 1.0, "to": 0.0, "over": 5, "power": 1.0}),
        ({"schedule": "exponential", "from": 1, "rate": 0.5}, {"from": 1.0, "rate": 0.5, "per": 1}),
        ({"schedule": "step", "from": 1, "factor": 0.1, "every": 30.5}, {"from": 1.0, "factor": 0.1, "every": 30.5}),
        (
            {"schedule": "warmup", "to": 1, "over": "0.1 run", "clock": "steps"},
            {"from": 0.0, "to": 1.0, "over": Duration(count=0.1, unit="run")},
        ),
    ],
)
def test_fields_are_resolved_in_the_words_of_the_language(written, fields):
    assert read(written).fields == fields


def test_a_schedule_counts_updates_if_it_does_not_say_otherwise():
    assert read(COSINE).clock == "updates"
    assert [read({**COSINE, "clock": clock}).clock for clock in ("steps", "samples", "epochs")] == [
        "steps",
        "samples",
        "epochs",
    ]


def test_the_moments_of_piecewise_are_numbers_durations_and_zero_in_any_unit():
    spec = read({"schedule": "piecewise", "at": {"0 epochs": 0.1, "100": 0.2, "3 epochs": 0.3}})
    assert spec.moments == ((0, 0.1), (100, 0.2), (Duration(count=3, unit="epochs"), 0.3))


def test_a_part_lasts_its_over_or_its_for_where_that_is_written():
    parts = [COSINE, {**COSINE, "for": 40}, {**CONSTANT, "for": "2 epochs"}, CONSTANT]
    spec = read({"schedule": "join", "parts": parts})
    assert spec.parts is not None
    assert [part.length for part in spec.parts] == [30, 40, Duration(count=2, unit="epochs"), None]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"schedule": "linear", "from": 1}, "a linear schedule needs `over`"),
        ({"schedule": "step"}, "needs `from`, `factor`, `every`"),
        ({"schedule": "linear", "from": 1, "over": 3, "power": 2}, "a linear schedule has no `power`"),
        ({"schedule": "linear", "from": 1, "over": 0}, "greater than 0, or a duration"),
        ({"schedule": "linear", "from": 1, "over": "soon"}, "expected a duration"),
        ({"schedule": "linear", "from": "a", "over": 3}, "valid number"),
        ({"schedule": "constant", "value": float("inf")}, "finite"),
        ({"schedule": "polynomial", "from": 1, "over": 3, "power": 0}, "greater than 0"),
        ({"schedule": "exponential", "from": 1, "rate": -0.5}, "greater than 0"),
        ({**COSINE, "clock": "minutes"}, "'updates', 'steps', 'samples' or 'epochs'"),
        ({"schedule": "piecewise", "at": {}}, "at least one value"),
        ({"schedule": "piecewise", "at": {"5": 1.0}}, "begins at 0, found `5` first"),
        ({"schedule": "piecewise", "at": {"0": 1.0, "20": 1.0, "10": 2.0}}, "rise, found `10`"),
        ({"schedule": "piecewise", "at": {"0": 1.0, "2ep": 1.0, "2 epochs": 2.0}}, "rise, found `2 epochs`"),
        ({"schedule": "piecewise", "at": {"0": 1.0, "later": 2.0}}, "expected a duration, found the string 'later'"),
        ({"schedule": "join"}, "a join schedule needs `parts`"),
        ({"schedule": "join", "parts": []}, "at least one part"),
        ({"schedule": "join", "parts": [CONSTANT, COSINE]}, "this constant has neither"),
        ({"schedule": "join", "parts": [COSINE, {**COSINE, "for": 3}]}, "the last part of a join never ends"),
        ({"schedule": "join", "parts": [{"schedule": "join", "parts": [COSINE]}]}, "no join among its parts"),
        ({"schedule": "join", "parts": [{**COSINE, "clock": "steps"}]}, "all parts of a join have one clock"),
        ({**COSINE, "parts": [COSINE]}, "a cosine schedule has no `parts`"),
        ({**COSINE, "for": 3}, "Extra inputs are not permitted"),
    ],
)
def test_what_is_no_schedule_is_refused(written, message):
    with pytest.raises(ValidationError, match=message):
        read(written)


@pytest.mark.parametrize(
    "lr",
    [
        "{schedule: cosine, from: «-1», over: 3}",
        "{schedule: piecewise, at: {0: 0.1, 10: «-0.1»}}",
        "{schedule: join, parts: [{schedule: warmup, to: «-2», over: 3}, {schedule: constant, value: 1}]}",
    ],
)
def test_the_values_of_a_schedule_are_those_that_the_option_takes(small, find, lr):
    found = find(small(models=f"third: {{layers: [relu], optimizer: {{name: adam, lr: {lr}}}}}"))
    assert found.codes == ("GS113",)
    assert found.places == found.marks


@pytest.mark.parametrize(
    ("lr", "code"),
    [
        ("{schedule: piecewise, at: {0: 1, «5 years»: 2}}", "GS050"),
        ("{schedule: piecewise, at: {0: 1, 9: 2, «5»: 2}}", "GS053"),
        ("{schedule: join, parts: [«{schedule: constant, value: 1}», {schedule: constant, value: 2}]}", "GS053"),
        ("{schedule: join, parts: [{schedule: cosine, from: 1, over: «-3»}]}", "GS044"),
    ],
)
def test_problems_point_into_the_schedule(small, find, lr, code):
    found = find(small(models=f"third: {{layers: [relu], optimizer: {{name: adam, lr: {lr}}}}}"))
    assert found.codes == (code,)
    assert found.places == found.marks


@pytest.mark.parametrize(
    "optimizer",
    [
        "{name: sgd, momentum: «{schedule: warmup, over: 3}»}",
        "{name: adam, betas: [«{schedule: cosine, over: 3}», 0.9]}",
        "{class: 'zoo:Mine', lr: «{schedule: cosine, over: 3}»}",
        "{name: sgd, lr: {schedule: join, parts: [{schedule: cosine, over: 9, for: 3}, «{schedule: constant}»]}}",
        "{name: sgd, momentum: {schedule: join, parts: [«{schedule: warmup, over: 3}», {schedule: cosine, over: 3}]}}",
    ],
)
def test_what_nothing_tells_has_to_be_written(small, find, optimizer):
    found = find(small(models=f"third: {{layers: [relu], optimizer: {optimizer}}}"))
    assert found.codes == ("GS053",)
    assert found.places == found.marks


def test_a_wrong_value_is_told_once_however_many_parts_go_on_from_it(small, find):
    parts = "{schedule: warmup, to: «-2», over: 3}, {schedule: constant, for: 3}, {schedule: cosine, over: 3}"
    lr = f"{{schedule: join, parts: [{parts}]}}"
    found = find(small(models=f"third: {{layers: [relu], optimizer: {{name: adam, lr: {lr}}}}}"))
    assert found.codes == ("GS113",)
    assert found.places == found.marks
