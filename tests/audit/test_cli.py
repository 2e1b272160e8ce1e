"""`stepgraph audit` runs a file as Python would, reports in every form, and exits with what it found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from runtime.cli import execute
from tests.resilience import processes

ROOT = Path(__file__).parents[2]
LOOP = """\
import sys
import helper

import torch
from torch import nn

net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
print(__name__, sys.argv, helper.NUMBER)
for _ in range(100):
    net(torch.randn(8, 4)).square().mean().backward()
    opt.step()
print("never")
"""
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "results": {
                        "items": {
                            "required": ["ruleId", "message", "locations"],
                            "properties": {"level": {"enum": ["none", "note", "warning", "error"]}},
                        }
                    }
                },
            }
        },
    },
}
"""What SARIF 2.1.0 asks of what is used of it (sections 3.13, 3.14 and 3.27 of the standard)."""


@pytest.fixture
def script(workdir):
    (workdir / "inner").mkdir()
    path = workdir / "inner" / "train.py"
    path.write_text(LOOP, encoding="utf-8")
    (workdir / "inner" / "helper.py").write_text("NUMBER = 7\n", encoding="utf-8")
    return path


def test_a_file_runs_as_python_runs_it_and_stops_after_the_steps(script):
    command = [sys.executable, "-m", "runtime", "audit", "inner/train.py", "--steps", "2", "--", "--lr", "3"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=script.parents[1], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[0] == "__main__ ['inner/train.py', '--lr', '3'] 7"
    assert "never" not in done.stdout
    assert "error[leftover-grad] train.py:12: " in done.stdout
    assert "    12 | opt.step()" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("in 2 steps of opt")
    assert (done.returncode, done.stderr) == (1, "")


def test_reports_for_programs_say_the_same(script, capsys):
    assert execute(["audit", str(script), "--json", "report.json", "--sarif", "report.sarif"]) == 1
    report, sarif = (json.loads(Path(f"report.{end}").read_text("utf-8")) for end in ("json", "sarif"))
    (found,) = report["findings"]
    assert (found["code"], found["level"], found["line"], found["times"]) == ("leftover-grad", "error", 12, 2)
    jsonschema.validate(sarif, SARIF)
    (result,) = sarif["runs"][0]["results"]
    assert result["ruleId"] == "leftover-grad"
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("inner/train.py", 12)
    assert sarif["runs"][0]["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "leftover-grad"


def test_a_baseline_accepts_what_is_known_also_where_it_has_moved(script, capsys):
    assert execute(["audit", str(script), "--baseline", "known.txt"]) == 2
    assert execute(["audit", str(script), "--baseline", "known.txt", "--update-baseline"]) == 0
    script.write_text(f"\n\n{LOOP}", encoding="utf-8")
    capsys.readouterr()
    assert execute(["audit", str(script), "--baseline", "known.txt"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("; 1 accepted by the baseline")


def test_a_baseline_tells_findings_of_one_line_apart(script, capsys):
    assert execute(["audit", str(script), "--baseline", "known.txt", "--update-baseline"]) == 0
    known = Path("known.txt").read_text(encoding="utf-8")
    begun = "loss.backward()" if "loss.backward()" in known else ".backward()"
    Path("known.txt").write_text(known.replace(begun, "other.backward()"), encoding="utf-8")
    assert execute(["audit", str(script), "--baseline", "known.txt"]) == 1
    capsys.readouterr()


@pytest.mark.parametrize("command", ["audit", "port"])
def test_ctrl_c_ends_the_script_and_an_audit_reports_the_steps_up_to_then(command, workdir):
    stop = "\n    if _ == 1: print('waits', flush=True); time.sleep(60)"
    loop = LOOP.replace("import helper\n", "import time\n").replace(", helper.NUMBER", "")
    Path("train.py").write_text(loop.replace("    opt.step()", f"    opt.step(){stop}"), encoding="utf-8")
    output = workdir / "out.txt"
    run = processes.start([command, "train.py"], workdir, output, processes.split_errors)
    while not output.exists() or "waits" not in output.read_text(encoding="utf-8"):
        run.join(0.05)
        assert run.is_alive()
    os.kill(run.pid, signal.SIGINT)
    run.join(60)
    shown, said = (Path(name).read_text(encoding="utf-8") for name in ("out.txt", "errors.txt"))
    assert run.exitcode == 130
    assert said.splitlines()[-1] == "interrupted"
    assert ("the program ended with Ctrl-C" in shown) == (command == "audit")
    assert ("leftover-grad" in shown) == (command == "audit")


def test_a_misspelt_code_in_a_baseline_is_refused_before_the_script_runs(script, capsys):
    Path("known.txt").write_text("leftover-grads train.py: opt.step()\n", encoding="utf-8")
    assert execute(["audit", str(script), "--baseline", "known.txt"]) == 2
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "line 1 of 'known.txt' begins with 'leftover-grads'" in shown
    assert "did you mean 'leftover-grad'?" in shown


def test_a_script_that_fails_is_reported_with_its_own_traceback(workdir, capsys):
    Path("train.py").write_text("raise KeyError('mine')\n", encoding="utf-8")
    assert execute(["audit", "train.py"]) == 1
    shown = capsys.readouterr()
    assert "KeyError: 'mine'" in shown.err
    shown_files = [line.split()[1] for line in shown.err.splitlines() if line.startswith("  File")]
    assert shown_files == [f'"{workdir / "train.py"}",']  # as Python shows it
    assert "the program ended with KeyError: 'mine'" in shown.out
    Path("train.py").write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    assert execute(["audit", "train.py"]) == 0


@pytest.mark.parametrize(("code", "told"), [("3", ""), ("'no data'", "no data\n")])
def test_a_script_that_exits_with_a_code_is_said_to_have_failed(code, told, workdir, capsys):
    Path("train.py").write_text(f"import sys\nsys.exit({code})\n", encoding="utf-8")
    assert execute(["audit", "train.py"]) == 1
    shown = capsys.readouterr()
    assert f"the program ended with sys.exit({code})\n" in shown.out
    assert shown.err == f"{told}exit code 1: the program ended with sys.exit({code})\n"


def test_an_optimizer_that_does_not_step_is_named_where_the_script_is_ended(workdir, capsys):
    text = """\
import torch

net, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
opt, later = (torch.optim.SGD(each.parameters(), 0.1) for each in (net, other))
for step in range(100):
    opt.zero_grad()
    net(torch.ones(1, 2)).sum().backward()
    opt.step()
"""
    Path("train.py").write_text(text, encoding="utf-8")
    assert execute(["audit", "train.py", "--steps", "2"]) == 0
    told = "not seen: later took fewer than 2 steps within 20 of opt, where the audit ended the program: "
    assert told in capsys.readouterr().out


def test_a_program_that_changes_the_folder_finds_its_file_and_reports_stay(workdir, capsys):
    text = (
        "import os, tempfile\nos.chdir(tempfile.gettempdir())\nassert os.path.samefile(__file__, os.environ['ITS'])\n"
    )
    Path("train.py").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ITS", str(workdir / "train.py"))
        patch.chdir(workdir)  # and back at the end
        assert execute(["audit", "train.py", "--json", "report.json"]) == 0
    assert (workdir / "report.json").is_file()
    assert "not seen: no optimizer of PyTorch took a step" in capsys.readouterr().out


def test_warnings_fail_where_they_should(workdir, capsys):
    source = (ROOT / "docs" / "audit" / "ema-order.md").read_text("utf-8").split("```python\n")[1].split("```")[0]
    Path("train.py").write_text(f"import copy\nimport torch\nfrom torch import nn\n\n{source}", encoding="utf-8")
    assert execute(["audit", "train.py"]) == 0
    assert execute(["audit", "train.py", "--strict"]) == 1


def test_the_fixture_fails_a_test_for_what_it_finds(pytester):
    pytester.makepyfile("""
        import torch

        def train(zero):
            net = torch.nn.Linear(4, 1)
            opt = torch.optim.SGD(net.parameters(), 0.1)
            for _ in range(2):
                if zero:
                    opt.zero_grad()
                net(torch.randn(8, 4)).square().mean().backward()
                opt.step()

        def test_sound(audit_step):
            with audit_step() as report:
                train(True)
            assert report.is_sound

        def test_wrong(audit_step):
            with audit_step():
                train(False)

        def test_meant(audit_step):
            with audit_step(allow=("leftover-grad",)):
                train(False)

        def test_misspelt(audit_step):
            with audit_step(allow=("leftover_grads",)):
                raise AssertionError("the statement has begun")

        def test_text(audit_step):
            with audit_step(allow="leftover-grad"):
                raise AssertionError("the statement has begun")
    """)
    result = pytester.runpytest()
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(["*GS275*takes codes of findings, found 'leftover_grads'*"])
    result.stdout.fnmatch_lines(["*did you mean 'leftover-grad'*"])
    result.stdout.fnmatch_lines(["*write allow=('leftover-grad',)*"])
    result.stdout.no_fnmatch_line("*the statement has begun*")
    result.stdout.fnmatch_lines(["*error?leftover-grad? test_the_fixture*: opt applies gradients of net*"])
