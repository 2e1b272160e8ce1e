"""Durations are read in every accepted form, and anything else is refused with the forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from graphspec.declare.durations import Duration, parse_duration


@pytest.mark.parametrize(
    ("text", "count", "unit"),
    [
        ("100 steps", 100, "steps"),
        ("1 step", 1, "steps"),
        ("10ba", 10, "steps"),
        ("3 epochs", 3, "epochs"),
        ("0.5 epochs", 0.5, "epochs"),
        ("3ep", 3, "epochs"),
        ("500 updates", 500, "updates"),
        ("1M samples", 1_000_000, "samples"),
        ("1.5M samples", 1_500_000, "samples"),
        ("20k steps", 20_000, "steps"),
        ("1e4 steps", 10_000, "steps"),
        ("64sp", 64, "samples"),
        ("0.1 run", 0.1, "run"),
        ("0.1dur", 0.1, "run"),
        (250, 250, "steps"),
    ],
)
def test_every_accepted_form_is_read(text, count, unit):
    assert parse_duration(text) == Duration(count=count, unit=unit)


def test_a_whole_number_counts_what_the_field_says():
    assert parse_duration(7, bare="updates") == Duration(count=7, unit="updates")


@pytest.mark.parametrize("value", ["soon", "", "steps", "10", "1 000 steps", "-3 steps", "3 steps.", True, 1.5, None])
def test_what_is_no_duration_is_refused_with_the_accepted_forms(value):
    with pytest.raises(PydanticCustomError, match="expected a duration") as caught:
        parse_duration(value)
    assert caught.value.type == "GS050"
    assert "`100 steps`" in caught.value.context["help"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("5 minutes", "'minutes' is not a unit of durations"),
        ("0 steps", "greater than 0"),
        (0, "greater than 0"),
        (-4, "greater than 0"),
        ("1.5 steps", "whole numbers"),
        ("1.0000001M samples", "whole numbers"),
        ("2 run", "at most 1"),
    ],
)
def test_counts_that_no_clock_reaches_are_refused(value, message):
    with pytest.raises(PydanticCustomError, match=message):
        parse_duration(value)


def test_a_similar_unit_is_suggested():
    with pytest.raises(PydanticCustomError, match="'upd'") as caught:
        parse_duration("500 upd")
    assert caught.value.context["label"] == "did you mean 'updates'?"


@given(st.integers(1, 10**12), st.sampled_from(["steps", "updates", "samples", "epochs"]))
def test_a_printed_duration_reads_back(count, unit):
    duration = Duration(count=count, unit=unit)
    assert parse_duration(str(duration)) == duration


@given(st.floats(1e-9, 1.0), st.sampled_from(["epochs", "run"]))
def test_a_printed_fraction_reads_back_to_the_last_digit(count, unit):
    duration = Duration(count=count, unit=unit)
    assert parse_duration(str(duration)) == duration


@pytest.mark.parametrize(("written", "printed"), [("1M samples", "1000000 samples"), ("0.5 epochs", "0.5 epochs")])
def test_a_duration_is_printed_as_a_reader_would_write_it(written, printed):
    assert str(parse_duration(written)) == printed
