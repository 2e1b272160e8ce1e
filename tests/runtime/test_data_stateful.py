"""The state of a user's own source: what may be in it, and what is said of anything else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.data.place import Place
from runtime.data.source import load_state, read_state

PLACE = Place(
    spec=load("""
graphspec: 1
name: kept
inputs: {x: {shape: [batch]}}
ops: {mean: {call: mean, inputs: x}}
outputs: mean
data: {train: {class: "a:B", batch: 1}}
"""),
    role="train",
)


class Source:
    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def kept(state):
    return read_state(Source(state), PLACE)


def refusal(state) -> str:
    with pytest.raises(SpecError, match="GS253") as caught:
        kept(state)
    return str(caught.value)


def test_plain_data_is_kept_as_it_is():
    state = {"a": [1, 2.5, None, True], "b": {"c": "text", "large": 2**200}, "d": {}, "e": []}
    assert kept(state) == state


def test_scalars_of_numpy_become_numbers_and_tuples_lists():
    found = kept({"a": (np.int8(3), np.float32(0.5)), "b": np.bool_(True)})
    assert found == {"a": [3, 0.5], "b": True}
    assert [type(value) for value in (*found["a"], found["b"])] == [int, float, bool]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "uint64", "float16", "float64", ">f4"])
def test_arrays_are_copied_with_their_type(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    found = kept({"buffer": [array]})["buffer"][0]
    assert (found.dtype, found.tolist(), np.shares_memory(found, array)) == (array.dtype, array.tolist(), False)


def test_a_tensor_of_the_host_is_an_array():
    found = kept([torch.arange(3), torch.tensor(2.5)])
    assert [type(value) for value in found] == [np.ndarray] * 2
    assert [value.tolist() for value in found] == [[0, 1, 2], 2.5]


def test_a_source_is_given_arrays_of_its_own_that_it_may_write():
    source, array = Source(None), np.zeros(3)
    array.flags.writeable = False
    load_state(source, {"buffer": array}, PLACE)
    source.state["buffer"] += 1
    assert array.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": [0, {"b": {1, 2}}]}, "state_dict()['a'][1]['b'] of the source: found a value of type builtins.set"),
        (np.random.default_rng(), "state_dict() of the source: found a value of type numpy.random"),
        ({"a": {3: 1}}, "state_dict()['a'] of the source: found the key 3, expected a text"),
        ({"a": float("inf")}, "state_dict()['a'] of the source: found the number inf, expected a finite number"),
        ([np.float32("nan")], "state_dict()[0] of the source: found the number nan"),
        ({"a": np.array(["x"])}, "state_dict()['a'] of the source: found an array of <U1"),
        ({"a": np.array([object()])}, "found an array of object"),
        ({"a": 1j}, "found a value of type builtins.complex"),
        ({"a": b"bytes"}, "found a value of type builtins.bytes"),
        ({"w": torch.zeros(2, requires_grad=True)}, "found a value of type torch.Tensor that numpy cannot read"),
        ({"w": torch.zeros(2, dtype=torch.bfloat16)}, "found a value of type torch.Tensor that numpy cannot read"),
        ({"w": torch.zeros(2, device="meta")}, "found a value of type torch.Tensor that numpy cannot read"),
    ],
)
def test_anything_else_is_refused_with_its_place_in_the_state(state, message):
    text = refusal(state)
    assert message in text
    assert 'data: {train: {class: "a:B"' in text


def test_an_error_in_state_dict_is_the_users():
    class Broken(Source):
        def state_dict(self):
            raise LookupError("no state yet")

    with pytest.raises(SpecError, match=r"(?s)GS226.*the source raised LookupError: no state yet.*in state_dict"):
        read_state(Broken(None), PLACE)
