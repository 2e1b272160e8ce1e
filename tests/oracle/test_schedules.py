"""The schedules of the oracle, at points computed by hand."""

from __future__ import annotations

import math

import pytest

from graphspec.declare.schedules import ScheduleSpec
from tests.oracle.schedules import read

CASES = [
    ({"schedule": "constant", "value": 0.3}, {0: 0.3, 9: 0.3}),
    ({"schedule": "linear", "from": 1.0, "over": 4}, {0: 1.0, 1: 0.75, 4: 0.0, 9: 0.0}),
    ({"schedule": "warmup", "to": 1.0, "over": 4}, {0: 0.0, 3: 0.75, 4: 1.0}),
    (
        {"schedule": "cosine", "from": 1.0, "to": 0.5, "over": 4},
        {0: 1.0, 2: 0.75, 1: 0.75 + 0.25 / math.sqrt(2), 8: 0.5},
    ),
    ({"schedule": "polynomial", "from": 1.0, "over": 4, "power": 2.0}, {0: 1.0, 2: 0.25, 4: 0.0}),
    ({"schedule": "exponential", "from": 1.0, "rate": 0.25, "per": 2}, {0: 1.0, 1: 0.5, 4: 0.0625}),
    ({"schedule": "step", "from": 1.0, "factor": 0.5, "every": 3}, {2: 1.0, 3: 0.5, 6: 0.25}),
    ({"schedule": "piecewise", "at": {"0": 1.0, "3": 0.1}}, {0: 1.0, 2: 1.0, 3: 0.1, 9: 0.1}),
    (
        {
            "schedule": "join",
            "parts": [
                {"schedule": "warmup", "to": 1.0, "over": 2},
                {"schedule": "constant", "value": 1.0, "for": 3},
                {"schedule": "linear", "from": 1.0, "over": 4},
            ],
        },
        {0: 0.0, 1: 0.5, 2: 1.0, 4: 1.0, 5: 1.0, 6: 0.75, 9: 0.0},
    ),
]


@pytest.mark.parametrize(("declared", "values"), CASES, ids=lambda one: one.get("schedule", ""))
def test_a_schedule_is_the_function_of_the_table(declared, values):
    schedule = ScheduleSpec.model_validate(declared)
    assert {n: read(schedule, n) for n in values} == pytest.approx(values)
