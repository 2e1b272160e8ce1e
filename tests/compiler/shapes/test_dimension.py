"""Arithmetic of free sizes: its texts mean what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.types import dimension

SIZES = {"batch": 6, "n": 4}
known = st.integers(1, 9)


@st.composite
def sizes(draw):
    """Draw a number, a name, or what steps of arithmetic make of one."""
    size = draw(known | st.sampled_from(sorted(SIZES)))
    for _ in range(draw(st.integers(0, 4))):
        function = draw(st.sampled_from([dimension.add, dimension.scale, dimension.divide]))
        size = function(size, draw(known))
    return size


def value(size):
    """Work out a size."""
    return eval(str(size), {"max": max}, SIZES)


@given(size=sizes(), number=known)
def test_single_steps_have_the_value_of_integer_arithmetic(size, number):
    assert value(dimension.add(size, -number)) == value(size) - number
    assert value(dimension.scale(size, number)) == value(size) * number
    assert value(dimension.divide(size, number)) == value(size) // number


@given(several=st.lists(sizes(), max_size=4))
def test_products_and_sums_have_the_value_of_their_parts(several):
    product = 1
    for size in several:
        product *= value(size)
    assert value(dimension.multiply(several)) == product
    assert value(dimension.total(several)) == sum(map(value, several))


@given(left=sizes(), right=sizes())
def test_sizes_that_are_surely_unequal_are_unequal(left, right):
    if dimension.is_surely_unequal(left, right):
        assert value(left) != value(right)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (dimension.total(["batch", "batch"]), "2*batch"),
        (dimension.total(["batch", 3, "n"]), "batch+n+3"),
        (dimension.multiply(["batch", 4, "n", 2]), "8*(batch*n)"),
        (dimension.add(dimension.add("n", -2), 2), "n"),
        (dimension.divide(dimension.scale("n", 4), 2), "2*n"),
        (dimension.scale(dimension.divide("n", 2), 2), "2*(n//2)"),
        (dimension.maximum("batch", "n"), "max(batch, n)"),
        (dimension.maximum("batch", 1), "batch"),
        (dimension.maximum("batch", 7), 7),
    ],
)
def test_sizes_are_written_briefly(size, text):
    assert size == text


@pytest.mark.parametrize(
    ("left", "right", "unequal"),
    [
        (3, 4, True),
        ("batch", 4, False),
        ("batch", "n", False),
        ("2*batch", "batch", True),
        ("batch+1", "batch", True),
        ("2*batch", "batch+3", False),
        ("2*(n//2)", "n", False),
    ],
)
def test_only_what_no_free_size_can_make_equal_is_surely_unequal(left, right, unequal):
    assert dimension.is_surely_unequal(left, right) is unequal
