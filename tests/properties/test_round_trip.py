"""Specs and plans survive being written down: rendered, as JSON, and as a plan in the published format."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import jsonschema
import pytest

from compiler import compile_step
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from graphspec.write.render import render
from schemas import __file__ as schemas
from tests.properties.plans import PACE, plan_of
from tests.properties.specs import random_spec

SEEDS = range(16)


PLACE = re.compile(r"<text>:\d+:\d+")


def plan_text(text: str) -> list[object]:
    """Return the plans of a text in all modes and the whole program behind them, without the places in it."""
    try:
        plan = compile_step(load(text), pace=PACE)
    except SpecError as error:
        return sorted(one.code for one in error.diagnostics)
    plans = [without_places(plan.to_json(program.mode)) for program in plan.program.modes]
    return [*plans, PLACE.sub("", repr(plan.program)), plan.notes]


def without_places(value: object) -> object:
    match value:
        case dict():
            return {key: without_places(one) for key, one in value.items() if key not in ("place", "text")}
        case list():
            return [without_places(one) for one in value]
        case _:
            return value


@pytest.mark.parametrize("chunk", range(2))
def test_a_rendered_spec_renders_the_same_and_compiles_to_the_same_plan(chunk):
    for seed in SEEDS[chunk::2]:
        text = json.dumps(random_spec(Random(seed))) + "\n"
        spec = load(text)
        rendered = render(spec)
        assert render(load(rendered)) == rendered, seed
        assert plan_text(rendered) == plan_text(text), seed


def test_a_plan_in_json_is_of_the_published_schema_and_loses_nothing():
    schema = json.loads((Path(schemas).parent / "plan.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    for seed in SEEDS[1::2]:
        try:
            plan = plan_of(random_spec(Random(seed)))
        except SpecError:
            continue
        for program in plan.program.modes:
            exported = plan.to_json(program.mode)
            assert json.loads(json.dumps(exported)) == exported, seed
            validator.validate(exported)


def test_a_program_of_another_mode_than_train_writes_no_weights():
    seen = 0
    for seed in SEEDS:
        try:
            plan = plan_of(random_spec(Random(seed)))
        except SpecError:
            continue
        for program in (one for one in plan.program.modes if one.mode != "train"):
            listed = [one for function in program.functions for one in function.instructions]
            written = {version.cell for one in listed for version in one.writes}
            assert all(cell.kind == "buffers" for cell in written), seed
            seen += 1
    assert seen > 10
