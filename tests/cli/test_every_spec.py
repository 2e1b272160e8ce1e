"""Every example, golden and template: the commands know what a run knows, and a rendering is no change."""

from __future__ import annotations

import pytest

from runtime.cli import execute
from tests.cli.specs import NAMES, SPECS


@pytest.mark.sample(6)
@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_a_spec_checks_without_notes_and_does_not_differ_from_its_rendering(workdir, capsys, spec):
    assert execute(["check", str(spec)]) == 0
    checked = capsys.readouterr()
    assert "note" not in checked.out
    assert "E-PACE" not in checked.err
    assert execute(["render", str(spec), "-o", "rendered.yaml"]) == 0
    assert execute(["diff", str(spec), "rendered.yaml"]) == 0
    told = capsys.readouterr().out
    assert "\ndeclared: nothing is different\n" in told
    assert told.endswith("\nthe schedule is the same: no instruction, decision or warning is different\n")
