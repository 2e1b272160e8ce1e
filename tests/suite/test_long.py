"""The long set runs every part, says what came of it, and fails where one fails."""

from __future__ import annotations

import shlex
from itertools import takewhile
from pathlib import Path

import pytest

from tests.suite.long import ROOT, main, make_parts, run_all


def test_a_part_that_fails_is_told_and_the_others_run(capfd: pytest.CaptureFixture[str]) -> None:
    code = run_all(
        {"one": ("-c", "print('did one')"), "two": ("-c", "raise SystemExit(3)"), "three": ("-c", "print('did three')")}
    )
    told = capfd.readouterr().out
    assert code == 1
    assert (
        told.index("[1/3] one: python -c ")
        < told.index("did one")
        < told.index("[2/3] two: ")
        < told.index("did three")
    )
    assert [line.split()[0::3] for line in told.partition("the long set:\n")[2].splitlines()] == [
        ["one", "passed"],
        ["two", "FAILED", "code"],
        ["three", "passed"],
    ]


def test_where_all_pass_the_code_is_zero() -> None:
    assert run_all({"one": ("-c", "pass")}) == 0


def test_every_part_is_a_command_of_the_project(tmp_path: Path) -> None:
    for name, words in make_parts(tmp_path).items():
        if name == "every-case":  # which is pytest's
            continue
        place = words[1].replace(".", "/") if words[0] == "-m" else words[0]
        candidates = (ROOT / place, ROOT / f"{place}.py", ROOT / place / "__main__.py")
        assert any(one.is_file() for one in candidates), words


def test_the_page_tells_every_part_and_its_command(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "correctness.md").read_text(encoding="utf-8")
    for name, words in make_parts(tmp_path).items():
        told = list(takewhile(lambda word: word not in ("--from", "--out", "--backend"), words))
        assert f"`{name}`" in page
        assert f"`python {shlex.join(told)}`" in page


def test_an_unknown_part_is_a_mistake_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["kill"])
    assert "no part 'kill': there are soak, " in capsys.readouterr().err
