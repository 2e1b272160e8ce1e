"""The pages of an audit's codes: every code has one, and the loop on it gives exactly that finding."""

from __future__ import annotations

import ast
import copy
import re
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from runtime.audit import audit, findings
from runtime.audit.findings.catalogue import CODES, level_of
from runtime.audit.findings.finding import LEVELS

PAGES = Path(__file__).parents[2] / "docs" / "audit"


def read(code):
    return (PAGES / f"{code}.md").read_text(encoding="utf-8")


@pytest.fixture
def group(tmp_path):
    """Run in a group of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def run(code, path):
    """Audit the loop of a page as a file, so that findings have its lines."""
    source = re.search(r"```python\n(.*?)```", read(code), re.DOTALL)[1]
    path.write_text(source, encoding="utf-8")
    names = {"torch": torch, "nn": nn, "copy": copy, "checkpoint": checkpoint}
    torch.manual_seed(0)
    with warnings.catch_warnings(), audit() as report:
        warnings.simplefilter("ignore")  # PyTorch warns of some of these itself
        exec(compile(source, str(path), "exec"), names)
    return report.report, source.splitlines()


def test_every_code_has_a_page_and_every_page_a_code():
    assert {path.stem for path in PAGES.glob("*.md")} == CODES.keys()
    assert {entry.level for entry in CODES.values()} == {*LEVELS}


def test_the_levels_of_a_code_are_those_that_detectors_give_it():
    given = {code: set() for code in CODES}
    for path in Path(findings.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Finding":
                codes, levels = (
                    {
                        each.value
                        for key in call.keywords
                        if key.arg == name
                        for each in ast.walk(key.value)
                        if isinstance(each, ast.Constant)
                    }
                    for name in ("code", "level")
                )
                for code in codes & CODES.keys():
                    given[code] |= levels & {*LEVELS}
    stated = {code: {entry.level, *entry.others} for code, entry in CODES.items()}
    assert {code: levels | {CODES[code].level} for code, levels in given.items()} == stated


def test_the_table_of_codes_is_the_catalogue():
    text = (PAGES.parent / "audit.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`([a-z-]+)`\]\(audit/([a-z-]+)\.md\) \| (.*) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(code, code, entry.levels, entry.summary) for code, entry in CODES.items()]


@pytest.mark.sample(3)
@pytest.mark.parametrize("code", [pytest.param(c, marks=pytest.mark.long) if "compiled" in c else c for c in CODES])
def test_the_loop_of_a_page_has_its_finding_and_no_other(code, tmp_path, request):
    text = read(code)
    assert text.startswith(f"# {code}: {CODES[code].summary}\n\n*Level: {CODES[code].levels}.* ")
    assert text.count("\n") <= 30
    if "DistributedDataParallel(" in text:
        request.getfixturevalue("group")
    report, lines = run(code, tmp_path / "train.py")
    found = [each.code for each in report.findings]
    assert code in found
    assert {each.code for each in report.findings if level_of(each) in ("error", "warning")} <= {code}
    assert all(0 < each.place.line <= len(lines) for each in report.findings)
    assert all(other.what.endswith(" at") for each in report.findings for other in each.others)
