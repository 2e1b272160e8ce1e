"""The page of an audit: what ran, in order, with the versions that the findings name; every link leads somewhere."""

from __future__ import annotations

import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from runtime.audit import audit
from runtime.audit.page import write_page
from runtime.audit.session import audit_script
from runtime.cli import execute
from tests.audit.labels import CASES

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
EVIL = "</script><img src=x onerror=alert(1)>"
LOOP = f"""\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    loss = net(torch.randn(8, 4)).square().mean()  # {EVIL}
    loss.backward()
    opt.step()
"""


class Reader(HTMLParser):
    """Reads the links, and what they may lead to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert not [key for key in given if key.startswith("on")]
        self.tags.append(tag)
        self.links += [given["href"]] if given.get("href") else []
        self.names += [given["id"]] if given.get("id") else []


def find_rows(page: str) -> list[list[str]]:
    """Return the cells of what ran."""
    table = page[page.index("<tbody>") : page.index("</tbody>")]
    lines = re.findall(r"<tr.*?</tr>", table)
    return [[unescape(re.sub("<.*?>", "", cell)) for cell in re.findall(r"<td>(.*?)</td>", line)] for line in lines]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(LOOP, encoding="utf-8")
    return path


@pytest.fixture
def page(script: Path) -> str:
    report, problem = audit_script(script, (), 2)
    assert problem is None
    return write_page(report, f"train.py {EVIL}")


def test_what_ran_is_listed_in_order_with_versions(page: str) -> None:
    rows = [cells[:4] for cells in find_rows(page)]
    assert rows == [
        ["train.py:8", "net(...)", "net.params@0", "net.buffers@1"],
        ["train.py:9", "backward", "net.params@0", "gradients of net"],
        ["train.py:10", "opt.step()", "", "net.params@1"],
        ["train.py:8", "net(...)", "net.params@1", "net.buffers@2"],
        ["train.py:9", "backward", "net.params@1", "gradients of net"],
        ["train.py:10", "opt.step()", "", "net.params@2"],
    ]


def test_findings_are_at_their_rows(page: str) -> None:
    found = [(cells[0], cells[4]) for cells in find_rows(page) if "leftover-grad" in cells[4]]
    assert {place for place, _ in found} >= {"train.py:9", "train.py:10"}


def test_every_link_leads_to_a_line_or_a_finding_of_the_page(page: str) -> None:
    found = Reader(page)
    assert len(found.links) > 6
    assert {link.removeprefix("#") for link in found.links} <= {*found.names}
    assert len(found.names) == len({*found.names})


def test_text_of_the_program_stays_text(page: str) -> None:
    found = Reader(page)
    assert {"img", "script"}.isdisjoint(found.tags)
    assert unescape(page).count(EVIL) >= 3  # title, heading, line


@pytest.mark.parametrize("case", ["h01_cyclegan_functions", "sound_amp_gan", "sound_averaged_model"])
@pytest.mark.filterwarnings("ignore")
def test_versions_are_those_that_findings_name(case: str) -> None:
    report, _ = audit_script(CASES / f"{case}.py", (), 3)
    page = write_page(report, case)
    table = page[page.index("<tbody>") : page.index("</tbody>")]
    told = {each for finding in report.findings for each in re.findall(r"\w+\.params@\d+", finding.message)}
    assert {each for each in told if each not in table} == set()
    found = Reader(page)
    assert {link.removeprefix("#") for link in found.links} <= {*found.names}


def test_an_audit_in_which_nothing_ran_has_a_page() -> None:
    with audit() as report:
        torch.zeros(2)
    assert "None." in write_page(report.report, "nothing")


def test_the_command_writes_it(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script.with_suffix(".html")
    assert execute(["audit", str(script), "--html", str(path)]) == 1
    assert "leftover-grad" in capsys.readouterr().out
    assert find_rows(path.read_text(encoding="utf-8"))


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.xdist_group("browser")
@pytest.mark.sample(2)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(script: Path, page: str, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = script.with_suffix(".html")
    path.write_text(page, encoding="utf-8")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shown = browser.new_page(color_scheme=theme)
        shown.goto(path.as_uri())
        assert axe.run(shown).response["violations"] == []
        browser.close()
