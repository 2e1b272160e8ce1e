"""A command of the long set ends with code 1 where it finds what must not be."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from graphspec.diagnostics import Diagnostic, SpecError
from tests.conformance import random_specs
from tests.conformance.random_specs import Tally
from tests.properties import contiguous
from tests.properties.necessity import Undone, report
from tests.resilience import __main__ as kills
from tests.resilience.trials import Tally as Kills

SOUND = Undone(tried=2, raised=2)
NEEDLESS = Undone(tried=2, raised=1, needless=["seed 3: step in train_step"])


@pytest.mark.parametrize(("undone", "code"), [(SOUND, 0), (NEEDLESS, 1)])
def test_a_needless_deferral(undone: Undone, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert report({"sound": lambda _: SOUND, "other": lambda _: undone}, 1) == code
    assert ("seed 3: step in train_step" in capsys.readouterr().out) == bool(code)


@pytest.mark.parametrize(
    ("tally", "code", "told"),
    [
        (Tally(agreed=1), 0, "agreed=2"),
        (Tally(rejected=Counter({"E-TWO-VERSIONS": 1})), 0, "E-TWO-VERSIONS"),
        (Tally(failures=["seed 1: from PyTorch: step 1: loss"]), 1, "\nseed 1: from PyTorch"),
    ],
)
def test_a_spec_that_differs_or_is_refused(monkeypatch, capsys, tally: Tally, code: int, told: str) -> None:
    monkeypatch.setattr(random_specs, "try_specs", lambda *_: tally)
    monkeypatch.setattr(sys, "argv", ["random_specs", "2"])
    assert random_specs.main() == code
    assert told in capsys.readouterr().out


SMALL, MANY = 2, 900310
"""Seeds of a small spec, and of one whose ops can fire in more sets than a mode has functions."""


@pytest.mark.parametrize(
    ("seed", "code", "is_wrong"),
    [
        (SMALL, "E-TWO-VERSIONS", False),
        (SMALL, "E-MATCH", True),
        (SMALL, "GS061", True),
        (MANY, "GS061", False),
    ],
)
def test_a_random_spec_may_be_refused_for_what_it_can_have(monkeypatch, seed: int, code: str, is_wrong: bool) -> None:
    def refuse(*_: object) -> None:
        raise SpecError([Diagnostic(code=code, message="refused")], {})

    monkeypatch.setattr(random_specs, "plans_of", refuse)
    tally = random_specs.try_specs([seed])
    assert tally.rejected == {code: 1}
    assert tally.failures == [f"seed {seed}: rejected: {code}"] * is_wrong


@pytest.mark.parametrize(("broken", "code"), [(["step"], 0), ([], 1)])
def test_a_spec_that_goes_wrong_without_a_reason(monkeypatch, broken: list[str], code: int) -> None:
    plan = next(contiguous.find_plans(range(5)))
    wrong = contiguous.Tried(plan=plan, outcomes={"default": "right", "fused": "silently wrong"})
    monkeypatch.setattr(contiguous, "try_plans", lambda _: iter([wrong]))
    monkeypatch.setattr(contiguous, "find_broken", lambda _: iter(broken))
    assert contiguous.main(1) == code


@pytest.mark.parametrize(("differences", "code"), [([], 0), (["weights differ"], 1)])
def test_a_killed_run_that_ends_otherwise(monkeypatch, differences: list[str], code: int) -> None:
    monkeypatch.setattr(kills, "apart", lambda *_: Kills(kills=1, differences=differences))
    assert kills.main(["1"]) == code
