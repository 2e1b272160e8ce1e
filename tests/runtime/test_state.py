"""Trees are split into plain data and arrays, and put together again to the last bit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from graphspec import SpecError
from runtime.state import find_arrays, flatten, unflatten

TYPES = ("bool", "int8", "int64", "uint16", "float16", "float32", "float64")
NUMBERS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
ARRAYS = st.sampled_from(TYPES).flatmap(lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, max_dims=2)))
KEYS = st.sampled_from(["array", "plain", "a", "a.b", "b", "0", ""]) | st.text(max_size=3)
TREES = st.recursive(
    NUMBERS | ARRAYS,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(KEYS, each, max_size=3),
    max_leaves=12,
)


def is_same(one: object, other: object) -> bool:
    """Return whether two trees are the same, types and bits included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, dict):
        return [*one] == [*other] and all(is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return one == other


@given(TREES)
def test_a_tree_comes_back_through_json_as_it_was(tree):
    plain, found = flatten(tree, "data")
    assert is_same(unflatten(json.loads(json.dumps(plain, allow_nan=False)), found), tree)
    assert sorted(find_arrays(plain)) == sorted(found)
    assert all(name.startswith("data") for name in found)


def test_arrays_are_named_by_their_path():
    plain, found = flatten({"a": [1, np.zeros(2)], "b": {"array": np.ones(1)}}, "data")
    assert [*found] == ["data.a.1", "data.b.array"]
    assert plain == {"a": [1, {"array": "data.a.1"}], "b": {"plain": {"array": {"array": "data.b.array"}}}}


def test_scalars_of_numpy_and_tuples_become_numbers_and_lists():
    tree = {"a": (np.float32(0.5), np.int64(3)), "b": np.bool_(True), "c": np.float64(2)}
    assert flatten(tree, "x") == ({"a": [0.5, 3], "b": True, "c": 2.0}, {})
    assert type(flatten(np.bool_(True), "x")[0]) is bool


def test_an_array_of_another_byte_order_has_the_numbers_it_had():
    found = flatten(np.array([1.5, 2.5], ">f4"), "x")[1]["x"]
    assert found.dtype == np.dtype("float32")
    assert found.dtype.isnative
    assert found.tolist() == [1.5, 2.5]


def test_arrays_whose_paths_are_spelled_alike_have_names_of_their_own():
    tree = {"a.b": np.zeros(1), "a": {"b": np.ones(1)}}
    plain, found = flatten(tree, "x")
    assert [*found] == ["x.a.b", "x.a.b~2"]
    assert is_same(unflatten(plain, found), tree)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": {1, 2}}, "cannot keep x.a: found a value of type set, expected plain data or an array of numbers"),
        ({"a": {1: 2}}, "cannot keep x.a: found the key 1, expected text as keys"),
        ([0, float("nan")], "cannot keep x.1: found the number nan"),
        (np.float32("inf"), "cannot keep x: found the number inf"),
        (np.array(["a"]), "cannot keep x: found an array of <U1"),
        (np.array([{}], object), "cannot keep x: found an array of object"),
        (np.array([1j]), "cannot keep x: found an array of complex128"),
        (b"abc", "cannot keep x: found a value of type bytes"),
        (lambda: None, "cannot keep x: found a value of type function"),
    ],
)
def test_what_is_neither_plain_nor_numbers_is_refused_with_its_place(tree, message):
    with pytest.raises(SpecError) as raised:
        flatten(tree, "x")
    (found,) = raised.value.diagnostics
    assert found.code == "GS267"
    assert message in found.message


def test_an_array_that_is_not_there_is_a_key_error():
    with pytest.raises(KeyError, match=r"x\.a"):
        unflatten({"a": {"array": "x.a"}}, {})
