"""The wheel, installed with nothing but its own dependencies and used from outside the tree, works."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "gan-digits" / "gan-digits.yaml"
PACKAGES = {"graphspec", "compiler", "runtime", "schemas", "stepgraph"}
UCI_TEST_COUNTS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # per digit, published with optdigits.tes

READ_DATA = """
import importlib.resources, json, numpy
resource = importlib.resources.files("runtime.datasets") / "digits.npz"
with resource.open("rb") as file, numpy.load(file, allow_pickle=False) as digits:
    image, label, is_test = digits["image"], digits["label"], digits["is_test"]
print(json.dumps({
    "shape": image.shape, "range": [int(image.min()), int(image.max())],
    "types": [array.dtype.name for array in (image, label, is_test)],
    "counts": numpy.bincount(label).tolist(), "tests": numpy.bincount(label[is_test]).tolist(),
}))
"""

pytestmark = pytest.mark.xdist_group("wheel")  # one worker, so that the wheel is built and installed once


def run(*command: str | Path, cwd: Path, code: int = 0, **variables: str) -> str:
    """Run a command outside the tree and return what it printed; fail with all of it if it ends with another code."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | variables
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, f"{command} exited with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return next(folder.glob("stepgraph-*.whl"))


@pytest.fixture(scope="module")
def commands(wheel: Path) -> Path:
    """Install the wheel in a new environment and return the folder of its commands."""
    environment = wheel.parent / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=wheel.parent)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", "--python", python)
    # compiling all of the dependencies takes longer than installing them; the commands import few of their modules
    run(*pip, "install", "--no-compile", "-c", ROOT / "constraints.txt", wheel, cwd=wheel.parent)
    return environment / "bin"


def test_the_wheel_holds_the_packages_the_schemas_and_the_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {*PACKAGES, "stepgraph-0.1.0.dist-info"}
    assert {"runtime/datasets/digits.npz", "runtime/datasets/ATTRIBUTION.md"} <= set(names)
    schemas = {f"schemas/{path.name}" for path in (ROOT / "schemas").glob("*.json")}
    assert schemas
    assert schemas <= set(names)
    assert {f"{package}/py.typed" for package in ("graphspec", "compiler", "runtime", "stepgraph")} <= set(names)
    pages = {f"runtime/pages/{path.name}" for path in (ROOT / "docs" / "errors").glob("*.md")}
    kept = [path for kind in ("yaml", "py") for path in (ROOT / "examples").glob(f"*/*.{kind}")]
    examples = {f"runtime/{path.relative_to(ROOT)}" for path in kept if path.name != "judgement.py"}
    pages |= {f"runtime/pages/audit/{path.name}" for path in (ROOT / "docs" / "audit").glob("*.md")}
    assert pages | examples | {"runtime/examples/cyclegan/unpaired.npz"} <= set(names)
    assert not [name for name in names if name.endswith(("judgement.py", "examples/judge.py", "transitions.npz"))]


def test_the_command_answers_where_no_framework_is_installed(commands: Path, tmp_path: Path) -> None:
    find = "import importlib.util as u; print([u.find_spec(name) for name in ('torch', 'tensorflow', 'keras')])"
    assert run(commands / "python", "-c", find, cwd=tmp_path) == "[None, None, None]\n"
    assert "check" in run(commands / "stepgraph", "--help", cwd=tmp_path)


def test_the_pages_of_codes_are_installed(commands: Path, tmp_path: Path) -> None:
    for page in (ROOT / "docs" / "errors" / "GS104.md", ROOT / "docs" / "audit" / "stale-read.md"):
        assert run(commands / "stepgraph", "explain", page.stem, cwd=tmp_path) == page.read_text(encoding="utf-8")


def test_a_plan_is_drawn_as_in_the_tree(commands: Path, tmp_path: Path) -> None:
    page = run(commands / "stepgraph", "plan", EXAMPLE, "--format", "html", cwd=tmp_path)
    assert page == run(sys.executable, "-m", "runtime.cli", "plan", EXAMPLE, "--format", "html", cwd=ROOT)


def test_the_one_module_imports_no_framework_until_it_is_asked(commands: Path, tmp_path: Path) -> None:
    code = "import stepgraph as sg, sys; print({'numpy', 'pydantic', 'networkx'} & {*sys.modules}, sg.Graph, sg.emit)"
    printed = run(commands / "python", "-c", code, cwd=tmp_path)
    assert printed.startswith("set() <class 'graphspec.python.graph.Graph'> <function emit")


def test_an_example_copied_out_of_the_tree_passes_the_check(commands: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.yaml"
    copy.write_bytes(EXAMPLE.read_bytes())
    run(commands / "stepgraph", "check", copy, cwd=tmp_path)
    copy.write_text(copy.read_text(encoding="utf-8") + "nonsense: 1\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"exited with 1[\s\S]*nonsense"):
        run(commands / "stepgraph", "check", copy, cwd=tmp_path)


def test_the_installed_schemas_are_those_of_the_tree(commands: Path, tmp_path: Path) -> None:
    read = "import importlib.resources as r, sys; print((r.files('schemas') / sys.argv[1]).read_text('utf-8'))"
    for path in sorted((ROOT / "schemas").glob("*.json")):
        installed = run(commands / "python", "-c", read, path.name, cwd=tmp_path)
        assert json.loads(installed) == json.loads(path.read_text(encoding="utf-8"))


def test_the_bundled_digits_are_the_published_ones_with_a_stratified_test_split(commands: Path, tmp_path: Path) -> None:
    facts = json.loads(run(commands / "python", "-c", READ_DATA, cwd=tmp_path))
    assert (facts["shape"], facts["range"]) == ([1797, 8, 8], [0, 16])
    assert facts["types"] == ["uint8", "uint8", "bool"]
    assert facts["counts"] == UCI_TEST_COUNTS
    assert sum(facts["tests"]) == 360
    assert all(abs(tests - count / 5) <= 1 for tests, count in zip(facts["tests"], facts["counts"], strict=True))


def test_an_example_of_the_wheel_is_written_and_checks(commands: Path, tmp_path: Path) -> None:
    assert "  stepgraph run sac.yaml\n" in run(commands / "stepgraph", "init", "sac", cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pendulum.py", "sac.py", "sac.yaml"]
    assert run(commands / "stepgraph", "check", "sac.yaml", cwd=tmp_path).startswith("sac.yaml: ok, 0 warnings (")
    run(commands / "stepgraph", "fmt", "sac.yaml", cwd=tmp_path)
    listed = run(commands / "stepgraph", "init", "--list", cwd=tmp_path).splitlines()
    assert len(listed) == 2 + sum(1 for path in (ROOT / "examples").iterdir() if any(path.glob("*.yaml")))


@pytest.mark.long
@pytest.mark.needs("torch")
def test_doctor_finds_the_framework_that_there_is(commands: Path, tmp_path: Path) -> None:
    assert "backend torch: " in run(commands / "stepgraph", "doctor", cwd=tmp_path, code=1)
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    site = str(Path(found.origin).parents[1])
    told = run(commands / "stepgraph", "doctor", cwd=tmp_path, PYTHONPATH=site, CUDA_VISIBLE_DEVICES="")
    assert "runs on cpu" in told


def test_a_type_checker_sees_the_types(commands: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        "import stepgraph as sg\n\nspec = sg.load('spec.yaml')\nreveal_type(spec)\n"
        "reveal_type(sg.compile_step(spec).warnings)\nsg.load(3)\n"
    )
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "useLibraryCodeForTypes": false}')
    command = (sys.executable, "-m", "pyright", "--pythonpath", commands / "python", "user.py")
    told = re.sub(r"\s+", " ", run(*command, cwd=tmp_path, code=1))
    assert 'Type of "spec" is "GraphSpec"' in told
    assert 'is "tuple[Diagnostic, ...]"' in told
    assert "1 error, 0 warnings" in told  # the last line
    assert '"Literal[3]"' in told
