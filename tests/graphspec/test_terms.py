"""Groups, constraints and regularizers: their forms, long and short, and what is none."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from graphspec.declare.models import ModelSpec


def model(**fields):
    return ModelSpec.model_validate({"like": "other", **fields})


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("non_negative", {"non_negative": True}),
        ("unit_norm", {"unit_norm": True}),
        ("max_norm", {"max_norm": 2.0}),
        ("pkg.mod:fn", {"function": {"torch": "pkg.mod:fn", "tensorflow": "pkg.mod:fn"}}),
    ],
)
def test_a_word_stands_for_a_mapping(short, long):
    assert model(constraint=short) == model(constraint=[long])


def test_one_group_is_a_list_of_one():
    assert model(groups={"match": "w", "frozen": True}) == model(groups=[{"match": "w", "frozen": True}])


def test_one_regularizer_is_a_list_of_one():
    assert model(regularizer="a:b") == model(regularizer=[{"function": "a:b"}])
    assert [each.l2 for each in model(regularizer={"l2": 0.5}).regularizer] == [0.5]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"constraint": "nonnegative"}, "no constraint is named 'nonnegative'"),
        ({"constraint": {"clip": [1, 0]}}, "expected the least value before the greatest, found 1 and 0"),
        ({"constraint": {"clip": [0, 1], "max_norm": 1}}, "found `clip` and `max_norm`"),
        ({"constraint": {"match": "w"}}, "found none of them"),
        ({"constraint": {"clip": [0, 1], "axis": 0}}, "`axis` goes with `unit_norm` or `max_norm`"),
        ({"constraint": {"function": "halve"}}, "expected the path of a function"),
        ({"constraint": []}, "at least one constraint"),
        ({"regularizer": "l2"}, "no regularizer is named 'l2'"),
        ({"regularizer": {"match": "w"}}, "found neither"),
        ({"regularizer": {"l1": 1, "function": "a:b"}}, "found both"),
        ({"regularizer": {"l1": -1}}, "greater than or equal to 0"),
        ({"groups": [{"match": "("}]}, r"expected a regular expression, found '\('"),
        ({"groups": [{"match": "w"}]}, "says nothing of its parameters"),
        ({"groups": [{"match": "w", "lr_scale": 2, "frozen": True}]}, "nothing steps frozen parameters"),
        ({"groups": [{"match": "w", "frozen": {"until": "soon"}}]}, "expected a duration"),
    ],
)
def test_what_is_none_is_refused(written, message):
    with pytest.raises(ValidationError, match=message):
        model(**written)
