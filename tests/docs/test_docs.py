"""README.md and docs/*.md: every spec is checked, every command and program runs, and every link leads somewhere.

A yaml block that begins with `graphspec:` is a whole spec, kept as `<name>.yaml` for the blocks of its page; others are
parts of one (`<!-- fragment -->`). `<!-- gives: W-STALE -->` above a spec names the problems it has, and the page tells
of them. Consoles hold what `stepgraph` prints, `...` standing for anything. A python block that begins with `# a.py` is
kept as that file, one that is `<!-- emitted -->` is in `step.py`, others run one after another. Bare blocks of commands
run, whatever they print. What is `<!-- not run -->` needs what the tests do not have, and its page says so.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from doctest import ELLIPSIS, OutputChecker
from importlib.util import find_spec
from pathlib import Path

import pytest

from compiler import compile_step
from graphspec import GraphSpec, SpecError, load
from graphspec.declare.inputs import InputSpec
from graphspec.declare.models import ModelSpec, ParameterSpec, Traits
from graphspec.declare.ops import KINDS, ClipSpec
from graphspec.declare.optimizers import OPTIMIZERS
from graphspec.declare.run import BestSpec, CheckpointSpec, EvalSpec, ImagesSpec, RunSpec, StopSpec
from graphspec.declare.schedules import ScheduleSpec
from graphspec.read.interpolation import interpolate
from graphspec.read.scalars import resolve
from graphspec.read.source import read_document
from runtime.cli import execute
from tests.docs.forks import forking
from tests.suite.imports import FRAMEWORKS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs").glob("coming-from/*.md"))]
TEXTS = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "adr").glob("*.md"))]
TEXTS += (
    sorted((ROOT / "docs" / "audit").glob("*.md"))
    + sorted((ROOT / "docs" / "errors").glob("*.md"))
    + sorted((ROOT / "docs" / "how-to").glob("*.md"))
)

FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
RUNNING = re.compile(r"\bstepgraph (?:run|eval|export|doctor|audit|bench)\b|\bbuild\(")
IMPORT = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)(?P<path>[^)#\s]*)(?P<anchor>#[^)]*)?\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: its language, its text, the comment above it, and where it is."""

    language: str
    body: str
    mark: str
    place: str

    @property
    def is_spec(self) -> bool:
        """Return whether it is a whole spec."""
        return self.language == "yaml" and self.body.lstrip("\n").startswith("graphspec:")

    @property
    def codes(self) -> set[str]:
        """Return the codes of the problems it is said to have."""
        return set(self.mark.removeprefix("gives:").split()) if self.mark.startswith("gives:") else set()


def read_blocks(page):
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("body")) + 1
        place = f"{page.relative_to(ROOT)}:{line}"
        yield Block(language=found["language"], body=found["body"], mark=found["mark"] or "", place=place)


BLOCKS = [(page, block) for page in PAGES for block in read_blocks(page)]


def named(pairs):
    return [pytest.param(*pair, id=pair[-1].place) for pair in pairs]


def find_problems(text):
    """Return the codes of everything that is wrong with a spec, or worth a warning."""
    try:
        return {warning.code for warning in compile_step(load(text)).warnings}
    except SpecError as error:
        return {each.code for each in error.diagnostics}


@pytest.mark.parametrize(("page", "block"), named((page, block) for page, block in BLOCKS if block.is_spec))
def test_every_spec_has_the_problems_the_page_tells_and_no_other(page, block):
    assert find_problems(block.body) == block.codes
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    assert all(code in prose for code in block.codes)


@pytest.mark.parametrize("block", named((b,) for _, b in BLOCKS if b.language == "yaml" and not b.is_spec))
def test_every_part_of_a_spec_is_read_as_its_field(block):
    data = interpolate(read_document(block.body)).data
    assert isinstance(data, dict)
    least = {"graphspec": 1, "name": "part", "ops": {"z": {"random": "normal", "shape": [1]}}}
    assert GraphSpec.model_validate({**least, **data})


def test_parts_are_marked_in_the_pages_about_the_language():
    pages = {"language.md", "semantics.md", "tutorial.md"}
    parts = [block for page, block in BLOCKS if page.name in pages and block.language == "yaml" and not block.is_spec]
    assert parts
    assert [block.place for block in parts if block.mark != "fragment"] == []


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


def start_process(arguments, folder):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def run_command(line, folder, start):
    """Run a line of a console in a folder and return its exit code with all it prints."""
    program, *arguments = shlex.split(line, comments=True)
    if program == "python":
        return start(arguments, folder)
    assert program == "stepgraph", line
    if "--allow" in arguments:  # it imports a models.py, which the next page's is not
        return start(["-c", "from runtime.cli import main; main()", *arguments], folder)
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = execute(arguments)
    return code, printed.getvalue()


def check_console(block, folder, start):
    for piece in re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]:
        line, _, shown = piece.partition("\n")
        code, printed = run_command(line, folder, start)
        same = OutputChecker().check_output(shown.rstrip() + "\n", printed.rstrip() + "\n", ELLIPSIS)
        assert same, f"{block.place}: $ {line}\n{printed}"
        assert code == int(line.startswith("stepgraph") and "error[" in shown), f"{block.place}: $ {line}"


def check_commands(block, folder, start):
    for line in block.body.splitlines():
        if line.startswith("stepgraph "):
            short = re.sub(r"^stepgraph run [^#]*", r"\g<0> --steps 2 ", line)
            code, printed = run_command(short, folder, start)
            assert code == 0, f"{block.place}: {line}\n{printed}"


def run_programs(page, folder, start):
    """Run the python blocks of a page as one program, with the files that it shows beside it."""
    programs = [block for name, block in BLOCKS if name == page and block.language == "python"]
    blocks = [block for block in programs if not find_file(block) and block.mark != "emitted"]
    if blocks:
        code, printed = start(["-c", "\n".join(block.body for block in blocks)], folder)
        assert code == 0, f"{blocks[0].place}: {printed}"


def find_file(block):
    """Return the name of the file that a block is kept as, or None."""
    if block.is_spec:
        return f"{read_document(block.body).data['name']}.yaml"
    found = re.match(r"# (\w+\.py)\b", block.body) if block.language == "python" else None
    return found[1] if found else None


def find_frameworks(page):
    """Return the frameworks that a page needs to show what a step does; none if it shows only what is planned."""
    shown = [block for name, block in BLOCKS if name == page and block.language != "yaml" and block.mark != "not run"]
    imported = {name for block in shown if block.language == "python" for name in IMPORT.findall(block.body)}
    needed = {FRAMEWORKS[name] for name in imported & FRAMEWORKS.keys()}
    runs = any(RUNNING.search(block.body) for block in shown)
    return needed | ({"torch"} if runs and "tensorflow" not in needed else set())


@pytest.fixture(scope="module")
def forks(tmp_path_factory):
    """Return what runs programs in forks of a process that has imported the frameworks."""
    output = tmp_path_factory.mktemp("forks") / "output.txt"
    with forking(env=ENVIRONMENT) as started:
        yield lambda arguments, folder: started.run(arguments, folder, output)


FORKED = frozenset({"torch", "tensorflow"})
"""The frameworks that the forked process has imported."""


def mark(page):
    """Return a page as a parameter: what it needs, and that one worker has the process that others are forked from."""
    needed = find_frameworks(page)
    marks = [pytest.mark.needs(*needed), *([pytest.mark.xdist_group("pages")] if needed & FORKED else [])]
    return pytest.param(page, id=page.name, marks=marks)


@pytest.mark.parametrize("page", [mark(page) for page in PAGES])
def test_what_a_page_shows_is_what_happens(page, tmp_path, request):
    is_forked = find_frameworks(page) & FORKED and all(map(find_spec, FORKED)) and page.name != "README.md"
    start = request.getfixturevalue("forks") if is_forked else start_process  # of README, as its reader does
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for name, block in BLOCKS:
        if name == page:
            follow(block, tmp_path, start)
    run_programs(page, tmp_path, start)


def follow(block, folder, start):
    """Do in a folder what a reader of a block would do."""
    file = find_file(block)
    if file is not None:
        (folder / file).write_text(block.body, encoding="utf-8")
    elif block.mark == "emitted":
        assert block.body in (folder / "step.py").read_text(encoding="utf-8"), block.place
    elif block.language == "console":
        check_console(block, folder, start)
    elif not block.language:
        check_commands(block, folder, start)


def find_anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for found in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
        target = (page.parent / found["path"]).resolve() if found["path"] else page
        assert target.exists(), found[0]
        assert not found["anchor"] or found["anchor"][1:] in find_anchors(target), found[0]


def test_the_index_names_every_page():
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / found["path"]).resolve() for found in LINK.finditer(index.read_text(encoding="utf-8"))}
    assert {page for page in PAGES if page.is_relative_to(index.parent) and page != index} <= linked


LANGUAGE = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
PARTS = [GraphSpec, InputSpec, ModelSpec, ParameterSpec, Traits, ClipSpec, ScheduleSpec, RunSpec, ImagesSpec]
PARTS += [EvalSpec, BestSpec, StopSpec, CheckpointSpec]
FIELDS = [(part, name) for part in (*PARTS, *KINDS.values()) for name in part.model_fields]


@pytest.mark.parametrize(("part", "name"), FIELDS, ids=[f"{part.__name__}-{name}" for part, name in FIELDS])
def test_every_field_is_in_the_reference(part, name):
    written = part.model_fields[name].alias or name
    assert re.search(rf"`[^`\n]*\b{written}\b[^`\n]*`", LANGUAGE)


def test_the_table_of_optimizers_is_that_of_the_language():
    rows = dict(re.findall(r"^\| `(\w+)` \| (`lr = .*) \|$", LANGUAGE, re.MULTILINE))
    assert set(rows) == set(OPTIMIZERS)
    for name, options in OPTIMIZERS.items():
        found = dict(re.findall(r"`(\w+) = ([^\[`]+)`", rows[name]))
        shown = {key: None if value == "none" else resolve(value) for key, value in found.items()}
        lists = {
            key: tuple(map(float, value.split(","))) for key, value in re.findall(r"`(\w+) = \[(.+?)\]`", rows[name])
        }
        assert {**shown, **lists} == {option.name: option.default for option in options}


WHERE = {
    "op": "ops.learn.",
}
ROWS = re.findall(r"^\| (.+?) \| (`.+`) \|$", LANGUAGE[LANGUAGE.index("## Not built yet") :], re.MULTILINE)
MISSING = [(where, part) for where, parts in ROWS if where in WHERE for part in re.findall(r"`([^`]+)`", parts)]


def test_the_list_of_what_is_not_built_is_found():
    assert {where for where, _ in MISSING} == {*WHERE}


@pytest.mark.parametrize(("where", "part"), MISSING, ids=[f"{where}-{part}" for where, part in MISSING])
def test_what_is_not_built_says_so(where, part):
    spec = next(block.body for page, block in BLOCKS if page.name == "language.md" and block.is_spec)
    key, _, value = part.partition(": ")
    assignment = f"{WHERE[where]}{key}={value}"
    with pytest.raises(SpecError, match="not built yet") as caught:
        load(spec, [assignment])
    assert {each.code for each in caught.value.diagnostics} == {"GS045"}
