"""Schedules have the fields of their kind, all of them and no others, counted in updates."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from graphspec.schedules import ScheduleSpec


@pytest.mark.parametrize(
    ("written", "fields"),
    [
        ({"schedule": "constant", "value": 3}, {"value": 3.0}),
        ({"schedule": "cosine", "from": 1.0, "over": 100}, {"from": 1.0, "to": 0.0, "over": 100.0}),
        (
            {"schedule": "polynomial", "from": 1, "to": 0.1, "over": "2k updates", "power": 2},
            {"from": 1.0, "to": 0.1, "over": 2000.0, "power": 2.0},
        ),
        ({"schedule": "polynomial", "from": 1, "over": 5}, {"from": 1.0, "to": 0.0, "over": 5.0, "power": 1.0}),
        ({"schedule": "exponential", "from": 1, "rate": 0.5}, {"from": 1.0, "rate": 0.5, "per": 1.0}),
        ({"schedule": "step", "from": 1, "factor": 0.1, "every": 30}, {"from": 1.0, "factor": 0.1, "every": 30.0}),
        ({"schedule": "warmup", "to": 1, "over": 10, "clock": "updates"}, {"from": 0.0, "to": 1.0, "over": 10.0}),
    ],
)
def test_fields_are_resolved_in_the_words_of_the_language(written, fields):
    assert ScheduleSpec.model_validate(written).fields == fields


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"schedule": "linear", "from": 1}, "a linear schedule needs `over`"),
        ({"schedule": "step"}, "needs `from`, `factor`, `every`"),
        ({"schedule": "linear", "from": 1, "over": 3, "power": 2}, "a linear schedule has no `power`"),
        ({"schedule": "linear", "from": 1, "over": 0}, "greater than 0"),
        ({"schedule": "linear", "from": 1, "over": "3 epochs"}, "over epochs is part of the language but not built"),
        ({"schedule": "linear", "from": 1, "over": "soon"}, "expected a duration"),
        ({"schedule": "linear", "from": "a", "over": 3}, "valid number"),
        ({"schedule": "piecewise", "at": {}}, "`schedule: piecewise` is part of the language but not built yet"),
        ({"schedule": "join", "parts": []}, "`schedule: join` is part of the language but not built yet"),
        ({"schedule": "constant", "value": 1, "clock": "epochs"}, "`clock: epochs` is part of the language"),
        ({"schedule": "constant", "value": float("inf")}, "finite"),
    ],
)
def test_what_is_no_schedule_is_refused(written, message):
    with pytest.raises(ValidationError, match=message):
        ScheduleSpec.model_validate(written)
