"""Whatever a document holds, `load` gives a spec or diagnostics, each with a place and in the words of a document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphspec import SpecError, load
from graphspec.declare.ops import KINDS
from graphspec.read.source import read_document

ROOT = Path(__file__).parents[2]
SPECS = [read_document(path).data for path in sorted((ROOT / "examples").rglob("*.yaml"))]
SCALARS = st.none() | st.booleans() | st.integers(-2, 40) | st.floats(-2, 2)
WORDS = st.sampled_from(["", "x", "generator", "fake", "1a", "a:b", "train", "3 epochs", "${lr}", "adam", "residual"])
FIELDS = ["inputs", "outputs", "class", "layers", "like", "after", "every", "mode", "schedule", "from", "tap", "args"]
KEYS = st.sampled_from([*KINDS, *FIELDS, "positional", "keyword", "options"])
VALUES = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=5,
)


def _change(draw, value):
    """Return a document with one part of it replaced, removed or added."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: _change(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        index = draw(st.integers(0, len(value) - 1))
        return [_change(draw, item) if at == index else item for at, item in enumerate(value)]
    if isinstance(value, dict) and draw(st.booleans()):
        return {**value, draw(KEYS): draw(VALUES)}
    return draw(VALUES)


def _diagnose(text):
    """Return what is wrong with a text; a problem that is not a diagnostic is raised."""
    try:
        load(text)
    except SpecError as error:
        return error.diagnostics
    return ()


@given(st.data())
def test_a_changed_spec_loads_or_is_explained(data):
    changed = data.draw(st.sampled_from(SPECS))
    for _ in range(data.draw(st.integers(1, 3))):
        changed = _change(data.draw, changed)
    for diagnostic in _diagnose(json.dumps(changed, indent=0) + "\n"):
        assert diagnostic.span is not None, diagnostic
        assert "Input should" not in diagnostic.message, diagnostic
        assert not any(f"<{kind}>" in diagnostic.message for kind in KINDS), diagnostic


def test_of_a_thousand_wrong_ops_the_first_hundred_are_told(small):
    lines = "\n".join(f"a{index}: {{forward: net{index}, inputs: [x{index}]}}" for index in range(1000))
    with pytest.raises(SpecError, match="and 1 or more of the kind\n\nat least 101 errors, 0 warnings") as raised:
        load(small(ops=lines))
    assert str(raised.value).count("\nerror[") == 99
