"""Parts inside parts mean, op by op, what the page of the language says of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from graphspec.declare.graph import GraphSpec
from graphspec.loading import load
from tests.properties import specs as specs_of
from tests.properties.nested import add_nested, hold_nested
from tests.properties.parted import add_wide_parts
from tests.properties.specs import random_spec
from tests.properties.unrolled import unroll
from tests.properties.verdicts import judge

SEEDS = range(40)
LEAF = {
    "out": {"forward": "net", "inputs": "x"},
    "fit": {"loss": "mse", "inputs": ["out", 0.1]},
    "step": {"update": ["net"], "loss": "fit"},
}
TREE: Mapping[str, Any] = {
    "outer": {
        "repeat": 2,
        "batch": "next",
        "ops": {"inner": {"repeat": 2, "batch": "split", "ops": LEAF, "outputs": ["fit"]}},
        "outputs": ["inner.fit"],
    }
}
"""Iterations that each take a batch, and cut it in two."""


@pytest.fixture(scope="module")
def documents() -> list[Mapping[str, Any]]:
    """Return random specs with parts inside parts, all iterations of which have their clocks, idle ones included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(specs_of, "wake", lambda document: document)
        patch.setattr(specs_of, "RECENT", tuple((add, float(add is add_nested)) for add, _ in specs_of.RECENT))
        found = [random_spec(seed) for seed in SEEDS]
    return [document for document in found if "coil_fit" in document["ops"]]


def hold(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a document with its parts inside parts as they are written by hand."""
    inputs = {name: one for name, one in document["inputs"].items() if "of" not in one}
    ops, blocks = hold_nested(document["ops"], inputs)
    return {**document, "inputs": inputs, "ops": ops, **({"blocks": blocks} if blocks else {})}


def read(document: Mapping[str, Any], made: set[str]) -> Mapping[str, Mapping[str, Any]]:
    """Return all fields of the ops around parts; of what is made of them not the mode, which is that of the parts."""
    spec: GraphSpec = load(json.dumps(document) + "\n")
    found = {name: {**dict(op), "after": {*(op.after or ())}} for name, op in spec.ops.items() if "coil" in name}
    return {name: {**op, "mode": None} if name in made else op for name, op in found.items()}


def test_parts_inside_parts_are_the_ops_that_the_page_of_the_language_writes_out(documents):
    held = [hold(document) for document in documents]
    assert len(held) > 15
    assert [document for document in held if not {"coil", "kit"} & document["ops"].keys()] == []
    for document, short in zip(documents, held, strict=True):
        made = {name for name, op in document["ops"].items() if op.get("call") in ("stack", "either", "split_rows")}
        wanted, found = read(document, made), read(short, made)
        assert found.keys() == wanted.keys()
        assert [(name, op, wanted[name]) for name, op in found.items() if op != wanted[name]] == []


def test_iterations_of_iterations_have_the_names_rows_and_order_of_the_page():
    ops, batches = unroll(TREE, ["x"])
    steps = [f"outer.{a}.inner.{b}.step" for a in (1, 2) for b in (1, 2)]
    assert [name for name, op in ops.items() if "update" in op] == steps
    assert batches == {"batch_1.x": ("x", 1)}
    assert ops["outer.1.inner.rows.x"]["inputs"] == "batch_1.x"
    assert ops["outer.2.inner.rows.x"]["inputs"] == "x"
    assert [{*ops[name].get("after", ())} for name in steps] == [
        set(),
        {steps[0]},
        {steps[0], steps[1]},
        {steps[0], steps[1], steps[2]},
    ]


def test_iterations_that_are_not_alike_stay_written_out(documents):
    document = next(each for each in documents if "repeat" in hold(each)["ops"].get("coil", {}))
    name = next(name for name, op in document["ops"].items() if name.startswith("coil.2.") and "loss" in op)
    changed = {**document["ops"], name: {**document["ops"][name], "doc": "another"}}
    found, blocks = hold_nested(changed, ["x", "y", "label"])
    assert found == changed
    assert blocks == {}


@pytest.mark.sample(7)
@pytest.mark.parametrize("seed", range(40))
def test_averages_in_iterations_and_parts_inside_parts_agree_with_the_oracle(seed, monkeypatch):
    forced = {add_nested: 1.0, add_wide_parts: 0.5}
    monkeypatch.setattr(specs_of, "RECENT", tuple((add, forced.get(add, 0.0)) for add, _ in specs_of.RECENT))
    verdict = judge(random_spec(seed), ["fewest"])
    assert not verdict.is_failure, verdict.what
