"""Specs that are broken at random: every answer is one, however the text is, and comes soon."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from lsprotocol import types

from runtime.lsp import navigate
from runtime.lsp.complete import complete
from runtime.lsp.hover import hover
from runtime.lsp.names import NOTHING
from runtime.lsp.places import Units
from runtime.lsp.report import Reporter
from runtime.lsp.snapshot import Snapshot

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted([*(ROOT / "examples").glob("*/*.yaml"), *(ROOT / "tests" / "golden" / "invalid").glob("*.yaml")])
CHARACTERS = "{}[]:,\"'#&*!|>-$ \n\t.()=🙂a1"
EVERYWHERE = types.Range(start=types.Position(0, 0), end=types.Position(100_000, 0))


def damage(text: str, draw: random.Random) -> str:
    """Return a text with a cut, a character more, some fewer, or a line elsewhere."""
    at = draw.randrange(len(text) + 1)
    match draw.randrange(4):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + draw.choice(CHARACTERS) + text[at:]
        case 2:
            return text[:at] + text[at + draw.randrange(1, 9) :]
        case _:
            lines = text.split("\n")
            number = draw.randrange(len(lines))
            lines[number] = draw.choice((lines[number].lstrip(), f"  {lines[number]}", "", draw.choice(lines)))
            return "\n".join(lines)


@pytest.mark.parametrize("seed", range(8))
def test_every_question_about_a_broken_text_has_an_answer(seed):
    draw = random.Random(seed)
    slowest = 0.0
    for _ in range(60):
        path = draw.choice(SPECS)
        text = path.read_text(encoding="utf-8")
        for _ in range(draw.randrange(4)):
            text = damage(text, draw)
        at = draw.randrange(len(text) + 1)
        snapshot = Snapshot(path=path, text=text, opened={})
        started = time.monotonic()
        start, _found = complete(snapshot, NOTHING, at)
        slowest = max(slowest, time.monotonic() - started)
        assert start <= at
        hover(snapshot, snapshot.checked.plan, at)
        navigate.find_definition(snapshot, at)
        navigate.find_references(snapshot, at, declaration=True)
        for section in navigate.outline(snapshot):
            for entry in section.entries:
                navigate.list_inside(snapshot, entry.symbol)
        reporter = Reporter(snapshot=snapshot, units=Units(), uris={path.name: path.as_uri()})
        assert set(reporter.list_diagnostics()) == {path.as_uri()}
        assert all(fix.edit is not None for fix in reporter.list_fixes(EVERYWHERE))
        place = snapshot.source.span(at, at)
        back = Units().offset(snapshot.source, Units().position(snapshot.source, place.line, place.column))
        assert back == at
    assert slowest < 5
