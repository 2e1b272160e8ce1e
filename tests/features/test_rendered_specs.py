"""A spec survives rendering: the rendered text loads as the same spec, and renders to the same bytes."""

from __future__ import annotations

import json

import pytest

from compiler import compile_step
from graphspec import load
from graphspec.write.render import render
from tests.features.steps import build_step
from tests.features.test_accumulated_gradients import LAYER
from tests.features.test_written_out_update import LONG, SHORT

pytestmark = pytest.mark.row("B7")


@pytest.mark.parametrize("text", [LAYER, SHORT, LONG], ids=["window", "short", "long"])
def test_what_was_rendered_has_the_same_plan(text: str, backend: str) -> None:
    spec, again = load(text), load(render(load(text)))
    assert compile_step(again, backend).to_json() == compile_step(spec, backend).to_json()
    assert build_step(render(spec), backend).source.count("def train_step") == build_step(text, backend).source.count(
        "def train_step"
    )


@pytest.mark.parametrize("text", [LAYER, SHORT, LONG], ids=["window", "short", "long"])
def test_rendering_twice_gives_the_same_bytes(text: str) -> None:
    once = render(load(text))
    assert render(load(once)) == once
    assert load(once) == load(render(load(once)))


def test_json_is_read_as_well(tmp_path) -> None:
    spec = load(SHORT)
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"graphspec": 1, "name": "minimise", **_plain(SHORT)}) + "\n", encoding="utf-8")
    assert load(path) == spec


def _plain(text: str) -> dict:
    import yaml

    return yaml.safe_load(text)
