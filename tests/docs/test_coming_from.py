"""docs/coming-from: a step by hand and its spec reach the same weights, until a line is as wrong as the page shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.docs.test_docs import BLOCKS, FENCE, ROOT, find_file
from tests.docs.twice import TAKE

PAGES = {path.stem: path for path in sorted((ROOT / "docs" / "coming-from").glob("*.md"))}
SAME, OTHER = 1e-12, 1e-6
NOT_RUN = {"fastestimator"}  # it asks for a NumPy and a Pillow of its time
CHANGED = "change: "


def read_page(name):
    """Return the program of a page, its spec, and its changes with what they lead to."""
    blocks = [block for page, block in BLOCKS if page == PAGES[name]]
    (program,) = (block for block in blocks if find_file(block) == "by_hand.py")
    spec = next(block for block in blocks if block.is_spec)
    return program, spec, [block for block in blocks if block.language == "diff"]


def change(program, diff):
    """Return a program with the lines of a diff, which are in one place of it."""
    lines = diff.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] != "+")
    new = "".join(line[1:] for line in lines if line[0] != "-")
    assert program.count(old) == 1, diff
    return program.replace(old, new)


def test_every_page_is_run_or_says_that_it_is_not():
    assert {*PAGES} == {*TAKE, *NOT_RUN}
    for name in NOT_RUN:
        program, _, changes = read_page(name)
        assert {block.mark for block in (program, *changes)} == {"not run"}
        assert "our tests do not run" in PAGES[name].read_text(encoding="utf-8")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("pytorch", marks=pytest.mark.needs("torch")),
        pytest.param("lightning", marks=pytest.mark.needs("torch", "lightning")),
        pytest.param("keras", marks=pytest.mark.needs("tensorflow")),
    ],
)
def test_both_steps_are_the_same_and_every_mistake_does_what_the_page_says(name, tmp_path):
    program, spec, changes = read_page(name)
    assert len(changes) >= 3
    (tmp_path / "spec.yaml").write_text(spec.body, encoding="utf-8")
    variants = {"as written": program.body} | {block.place: change(program.body, block.body) for block in changes}
    found = run(name, variants, tmp_path)
    assert found.pop("as written") < SAME
    prose = " ".join(FENCE.sub("", PAGES[name].read_text(encoding="utf-8")).split())
    for block in changes:
        expected, outcome = block.mark.removeprefix(CHANGED), found.pop(block.place)
        assert expected in prose, block.place
        if expected == "other weights":
            assert outcome > OTHER, block.place
        else:
            assert str(outcome).startswith(expected), block.place
    assert not found


def run(name, variants, folder):
    """Return what becomes of every variant of a program, in one process that imports the framework once."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.twice", name, folder / "spec.yaml"],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        input=json.dumps(variants),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_change_that_fits_nowhere_is_noticed():
    with pytest.raises(AssertionError):
        change("a = 1\n", "-b = 2\n")
