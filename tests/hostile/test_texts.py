"""Hostile text at every place of a spec: nothing runs or gets out of its quotes, no control reaches a terminal."""

from __future__ import annotations

import io
import json
import re
import tokenize
import unicodedata

import pytest

from compiler import compile_step
from graphspec.diagnostics import SpecError, render
from graphspec.loading import load
from graphspec.write.render import render as render_spec
from runtime import emit
from runtime.backends.tensorflow.codegen.dialect import TENSORFLOW
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.cli.inspect import PlanFormat, format_plan
from runtime.cli.options import Mode
from runtime.codegen.module import emit_module
from runtime.codegen.resources import Extras
from tests.hostile.places import SCHEMA, find_places, write

MARK = "PWNED"
TEXT = (
    f'a"; import os; {MARK}()\n\'\'\'\n{MARK}()\n"""\n{MARK}()\\'
    f"\x1b[31m\x1b]0;{MARK}\x07\x9b2J\u202e\u2066\u200b\u2028\r\x08 [red]{MARK}[/red]"
    f'"]; {MARK} --> b["<script>{MARK}</script>`{MARK}`|{MARK}| end }} {MARK} {{ %% "{MARK}"'
)
"""Ends of literals of Python, sequences of a terminal, markup of rich, HTML, Mermaid, Graphviz and Markdown."""
LONG = f'{MARK} "' * 20_000
PLACES = list(find_places())
DIALECTS = {"torch": TORCH, "tensorflow": TENSORFLOW}
CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")


def find_controls(text):
    """Return the characters of a text, line breaks aside, that a terminal would not show."""
    return {hex(ord(each)) for each in text if each != "\n" and unicodedata.category(each) in CONTROLS}


def check_code(text):
    """Check that what came from the spec stands in literals and comments of emitted code alone."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.STRING, tokenize.COMMENT):
            assert MARK not in token.string, token
    assert not find_controls(text)


def check_outputs(plan, backend):
    """Check everything that is made of a plan."""
    for program in plan.program.modes:
        mode = Mode(program.mode)
        for form in (PlanFormat.text, PlanFormat.json, PlanFormat.mermaid, PlanFormat.dot):
            printed = format_plan(plan, mode, form)
            assert not find_controls(printed), form
            bare = re.sub(r'"(?:[^"\\\n]|\\.)*"', "", printed)
            if form is PlanFormat.json:
                json.loads(printed)
            assert form is PlanFormat.text or MARK not in bare, (form, bare)
    for op in plan.spec.ops:
        assert not find_controls(plan.explain(op)), op
    assert not find_controls(render_spec(plan.spec))
    check_code(emit(plan))
    program, dialect = plan.program, DIALECTS[backend]
    for extras in (Extras(debug=True, norms=True), Extras(profile=True)):
        check_code(emit_module(program, dialect, extras=extras).text)


def check_text(place, text, backend):
    """Check a spec with a text at a place; return whether it is one that can be planned and emitted."""
    source = write(place, text)
    try:
        plan = compile_step(load(source, name="a.json"), backend=backend)
        emitted = emit(plan) is not None
    except SpecError as error:
        for color in (False, True):
            told = render(error.diagnostics, error.texts, color=color)
            assert not find_controls(re.sub(r"\x1b\[[0-9;]*m", "", told) if color else told)
        assert len(told) < 100_000
        return False
    assert not find_controls(render(plan.warnings, plan.spec.texts()))
    check_outputs(plan, backend)
    return emitted


@pytest.mark.parametrize("backend", DIALECTS)
def test_hostile_text_stays_text_at_every_place(backend):
    sound = [place.title for place in PLACES if check_text(place, TEXT, backend)]
    assert {"name", "models.a_key.args.a_key", "ops.a_key.doc"} <= {*sound}, sound


@pytest.mark.sample(4)
@pytest.mark.parametrize("part", range(4))
def test_long_text_is_cut_at_every_place(part):
    for place in PLACES[part::4]:
        check_text(place, LONG, "torch")


def test_every_declaration_of_the_schema_has_its_places():
    reached = {name for place in PLACES for _, name in place.beside}
    assert reached == SCHEMA["$defs"].keys() - {"Variable", "WriteBackSpec"}  # the latter has a number only
    assert len(PLACES) > 150


def test_most_places_are_reached_by_specs_that_can_be_read():
    read = 0
    for place in PLACES:
        try:
            load(write(place, "plain"))
            read += 1
        except SpecError as error:
            read += any(item.code not in ("GS040", "GS041", "GS042") for item in error.diagnostics)
    assert read > 0.7 * len(PLACES)
