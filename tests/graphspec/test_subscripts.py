"""Subscripts are read as Python reads them, have one form, and what is none is told with what to write."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphspec import SpecError, dump, load
from graphspec.declare.subscripts import SUBSCRIPT_PATTERN, Slice, SubscriptError, read_subscript

SPEC = """
graphspec: 1
name: taken
inputs: {x: {shape: [batch, 3]}}
ops:
  taken: {call: subscript, inputs: x, args: {at: AT}}
outputs: taken
"""
integers = st.integers(-9, 9).map(str)
parts = st.just("") | integers
slices = st.builds("{}:{}".format, parts, parts) | st.builds("{} : {} :{}".format, parts, parts, st.sampled_from("123"))


def read(text: str):
    """Return what Python reads between brackets."""
    return eval(f"Taker()[{text},]", {"Taker": Taker})


class Taker:
    """Gives what stands between its brackets."""

    def __getitem__(self, places):
        """Return the places."""
        return places


@given(places=st.lists(integers | slices | st.just("None"), min_size=1, max_size=4))
def test_a_text_is_read_as_python_reads_it(places):
    text = ",  ".join(places)
    assert re.search(SUBSCRIPT_PATTERN, text)
    found = read_subscript(text)
    assert len(found.places) == len(places)
    for ours, theirs in zip(found.places, read(text), strict=True):
        if isinstance(ours, Slice):
            for size in range(12):
                assert range(size)[ours.start : ours.stop : ours.step] == range(size)[theirs]
        else:
            assert ours == theirs
    assert read_subscript(str(found).strip("[]")) == found


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("..., 0", "a `:` for each axis"),
        ("x > 0", "for a mask"),
        ("i", "`call: gather`"),
        ("True", "for a mask"),
        ("[0, 1]", "`call: gather`"),
        ("::-1", "a step from 1 up"),
        ("::0", "a step from 1 up"),
        ("1:2:3:4", "slices `start:stop:step`"),
        ("0,", "between each two commas"),
        ("", "between each two commas"),
        ("9" * 19, "at most 18 digits"),
    ],
)
def test_another_text_is_refused_with_what_to_write(text, remedy):
    with pytest.raises(SubscriptError, match=re.escape(remedy)):
        read_subscript(text)
    assert not re.search(SUBSCRIPT_PATTERN, text)
    with pytest.raises(SpecError) as error:
        load(SPEC.replace("AT", f'"{text}"'))
    (found,) = error.value.diagnostics
    assert (found.code, found.span.line) == ("GS113", 6)
    assert remedy in found.help


@pytest.mark.parametrize("written", ["true", "null", "1.5", "[0, 1]", "{schedule: linear, from: 0, to: 1, over: 5}"])
def test_what_is_no_text_is_refused(written):
    with pytest.raises(SpecError) as error:
        load(SPEC.replace("AT", written))
    assert [each.code for each in error.value.diagnostics] == ["GS113"]


def test_an_integer_alone_needs_no_quotes():
    assert read_subscript(-1) == read_subscript("-1")
    spec = load(SPEC.replace("AT", "-1"))
    assert load(dump(spec)).ops["taken"].args == {"at": -1}
