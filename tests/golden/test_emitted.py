"""The code that is emitted for every published spec is the one that was last read."""

from __future__ import annotations

import json

import pytest

from tests.golden.emitted import DIALECTS, SUMS, WHOLE, emit_all, find_specs, name_text, shorten

KEPT = json.loads(SUMS.read_text(encoding="utf-8"))


def test_every_published_spec_is_kept() -> None:
    assert sorted(KEPT) == find_specs()
    assert sum("torch plain" in sums and "tensorflow plain" in sums for sums in KEPT.values()) >= 60


@pytest.mark.parametrize("path", sorted(KEPT))
def test_the_code_of_a_spec_is_the_one_that_was_read(path: str) -> None:
    found = emit_all(path)
    if path in WHOLE:
        for backend in DIALECTS:
            assert found[f"{backend} plain"] == name_text(path, backend).read_text(encoding="utf-8")
    assert {kind: shorten(text) for kind, text in found.items()} == KEPT[path]
