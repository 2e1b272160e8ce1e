"""The table of published scripts is complete, and a script is stopped after the updates that were asked for."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.labels import CASES

public = importlib.import_module("tests.audit.public.__main__")


def test_every_script_names_an_archive_with_its_digest_and_pinned_needs():
    archives, scripts = public.read()
    named = {f"{each.name}-{each.version}" for each in archives}
    assert len(scripts) >= 25
    assert {each.archive for each in scripts} == named
    assert all(len(each.sha256) == 64 for each in archives)
    assert [need for script in scripts for need in script.needs if "==" not in need] == []
    assert len({each.name for each in scripts}) == len(scripts)


@pytest.mark.long
def test_a_script_is_stopped_after_some_updates(tmp_path: Path):
    script = tmp_path / "forever.py"
    text = (CASES / "sound_dqn.py").read_text(encoding="utf-8")
    script.write_text(
        text.replace("for step in range(4)", "import itertools\nfor step in itertools.count()"), encoding="utf-8"
    )
    command = [sys.executable, str(public.HARNESS / "stop_after.py"), "5", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "5 updates\n"), done.stderr


@pytest.mark.long
def test_what_a_script_leaves_is_compared_number_for_number(tmp_path: Path):
    text = (CASES / "sound_dqn.py").read_text(encoding="utf-8")
    sound, other = tmp_path / "sound.py", tmp_path / "other.py"
    sound.write_text(text, encoding="utf-8")
    other.write_text(text.replace("    optimizer.step()", "    torch.rand(1)\n    optimizer.step()"), encoding="utf-8")

    def leave(script: Path, how: str) -> public.Left:
        rows = tmp_path / "rows.json"
        command = [sys.executable, str(public.HARNESS / "leave.py"), str(rows), how, "3", str(script)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        found = tuple(json.loads(rows.read_text(encoding="utf-8")))
        return public.Left(rows=found, printed=done.stdout + done.stderr, code=done.returncode)

    plain = leave(sound, "plain")
    assert (len(plain.rows), plain.code) == (3, 0), plain.printed
    assert public.differences(plain, leave(sound, "audit")) == []
    assert "torch at update 1" in public.differences(plain, leave(other, "plain"))


def test_printed_differences_are_named_by_what_stands_before_them():
    assert public.printed_differences("a\nloss 1.5 in 3 s\n", "a\nloss 1.5 in 4 s\n") == [
        "numbers printed after `loss # in`"
    ]
    assert public.printed_differences("a\nb\n", "b\na\n") == ["the order of printed lines"]
    assert public.printed_differences("a\nb\n", "a\nc\n") == ["what is printed"]
