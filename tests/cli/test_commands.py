"""The commands that run nothing: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from compiler.plan.legend import MARKS, MEANINGS
from compiler.plan.schema import plan_schema
from runtime.cli import execute

ROOT = Path(__file__).parents[2]

SPEC = """graphspec: 1
name: two-steps
inputs: {x: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: 3}], optimizer: sgd}
ops:
  y: {forward: net, inputs: x}
  error: {call: mean, inputs: y}
  learn: {update: net, loss: error}
outputs: [error]
"""


@pytest.fixture
def spec(workdir: Path) -> Path:
    Path("spec.yaml").write_text(SPEC)
    return workdir


def test_check_counts_what_it_found_in_order(spec, capsys):
    assert execute(["check", "spec.yaml"]) == 0
    assert capsys.readouterr().out == "spec.yaml: ok, 0 warnings (1 model, 3 ops, 1 update)\n"


def test_check_takes_several_files_and_fails_if_one_is_wrong(spec, capsys):
    Path("wrong.yaml").write_text(SPEC.replace("update: net", "update: nut"))
    assert execute(["check", "wrong.yaml", "spec.yaml"]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("spec.yaml: ok")
    assert "--> wrong.yaml:9:" in captured.err
    assert "1 error, 0 warnings" in captured.err


def test_check_shows_warnings_and_succeeds(spec, capsys):
    Path("spec.yaml").write_text(SPEC.replace("  learn:", "  unused: {call: mean, inputs: x}\n  learn:"))
    assert execute(["check", "spec.yaml"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("spec.yaml: ok, 1 warning (")
    assert "warning[W-DEAD]" in captured.err


def test_overrides_change_the_spec(spec, capsys):
    assert execute(["check", "spec.yaml", "-s", "ops.learn.update=nut"]) == 1
    assert "-s ops.learn.update=nut" in capsys.readouterr().err


def test_plan_prints_text_json_mermaid_and_dot(spec, capsys):
    printed = {}
    for form in ("text", "json", "mermaid", "dot"):
        assert execute(["plan", "spec.yaml", "--format", form]) == 0
        printed[form] = capsys.readouterr().out
    assert "two-steps" in printed["text"]
    assert json.loads(printed["json"])["plan"] == 3
    assert printed["mermaid"].startswith("flowchart")
    assert printed["dot"].startswith("digraph")


@pytest.mark.parametrize("command", [["plan"], ["plan", "--format", "json"], ["emit"], ["explain"]])
def test_a_result_can_be_written_to_a_file(spec, capsys, command):
    arguments = [command[0], "spec.yaml", *(["learn"] if command == ["explain"] else []), *command[1:]]
    assert execute(arguments) == 0
    printed = capsys.readouterr().out
    assert execute([*arguments, "-o", "out.txt"]) == 0
    assert capsys.readouterr().out == ""
    assert Path("out.txt").read_text() == printed


def test_a_file_that_cannot_be_written_is_told(spec, capsys):
    assert execute(["plan", "spec.yaml", "-o", "no/such/folder.txt"]) == 1
    assert "error[GS234]: cannot write 'no/such/folder.txt': no such file" in capsys.readouterr().err


def test_plan_lists_the_messages_of_several_processes(spec, capsys):
    words = ["plan", "spec.yaml", "-s", "parallel={kind: replicated}", "--nproc", "3"]
    for backend, saved in (("torch", ", which `stepgraph run` and `step(batch, rows=N)` save"), ("tensorflow", "")):
        assert execute([*words, "--backend", backend]) == 0
        printed = capsys.readouterr().out
        assert "messages of 3 processes" in printed
        assert f"at the beginning: the number of rows of each{saved}; 8 B, for which each process sends 16 B" in printed
    assert execute([*words, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, plan_schema())
    assert [each["collective"] for each in document["functions"][0]["messages"]][:1] == ["gather"]  # counts of rows
    assert execute(["plan", "spec.yaml", "--nproc", "3"]) == 1
    assert "error[GS257]: 3 processes are to train" in capsys.readouterr().err


def test_plan_of_a_mode_and_of_one_that_is_not_there(spec, capsys):
    Path("spec.yaml").write_text(SPEC.replace("inputs: y}", "inputs: y, mode: train}"))
    assert execute(["plan", "spec.yaml", "--mode", "infer"]) == 1
    assert "error[GS233]: the step has no mode 'infer'" in capsys.readouterr().err


def test_explain_tells_about_an_op(spec, capsys):
    assert execute(["explain", "spec.yaml", "learn"]) == 0
    assert "learn" in capsys.readouterr().out


def test_explain_without_an_op_summarizes_the_step(spec, capsys):
    assert execute(["explain", "spec.yaml"]) == 0
    assert "trained by learn" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["plan", "spec.yaml"], ["explain", "spec.yaml", "learn"]])
def test_lines_are_broken_at_words_and_nothing_is_lost(command, spec, capsys):
    assert execute([*command]) == 0
    whole = capsys.readouterr().out
    assert execute([*command, "--width", "44"]) == 0
    narrow = capsys.readouterr().out
    assert max(map(len, whole.splitlines())) > 44
    assert max(map(len, narrow.splitlines())) <= 44
    assert narrow.split() == whole.split()


def test_a_narrow_plan_continues_below_the_first_word(spec, capsys):
    assert execute(["plan", "spec.yaml", "--width", "40"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("    1  forward   y = net(x)"))
    assert lines[at + 1] == " " * 17 + "net.params@0  [train]"


def test_explain_says_what_would_go_wrong(spec, capsys):
    assert execute(["explain", "spec.yaml", "learn", "--why-not", "earlier"]) == 0
    assert "forward y would read net.params@1 in place of @0" in capsys.readouterr().out


@pytest.mark.parametrize("code", ["GS104", "gs104", "e-two-versions", "W-NO-EFFECT"])
def test_explain_of_a_code_shows_its_page(code, capsys):
    assert execute(["explain", code]) == 0
    page = ROOT / "docs" / "errors" / f"{code.upper()}.md"
    assert capsys.readouterr().out == page.read_text(encoding="utf-8")


@pytest.mark.parametrize("code", ["stale-read", "untrained"])
def test_explain_of_a_finding_of_an_audit_shows_its_page(code, capsys):
    assert execute(["explain", code]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "audit" / f"{code}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", ["frozen", "waits", "RETAIN", "backward-war"])
def test_explain_of_a_word_of_a_plan_says_what_it_means(word, capsys):
    assert execute(["explain", word]) == 0
    said = capsys.readouterr().out
    assert said == f"{word}: {({**MARKS, **MEANINGS})[word]}; see docs/plan.md\n"


@pytest.mark.parametrize(("code", "near"), [("GS1", "GS001"), ("GS999", "GS292"), ("W-NO-EFECT", "W-NO-EFFECT")])
def test_explain_of_a_code_that_is_none_names_those_near_it(code, near, capsys):
    assert execute(["explain", code]) == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"there is no code '{code}'" in said
    assert near in said


def test_why_not_needs_an_op(spec, capsys):
    assert execute(["explain", "spec.yaml", "--why-not", "earlier"]) == 2
    assert "name the op that would write earlier" in capsys.readouterr().err


def test_a_wrong_choice_is_told_in_plain_words(spec, capsys):
    assert execute(["explain", "spec.yaml", "learn", "--why-not", "sooner"]) == 2
    said = capsys.readouterr().err
    assert "'sooner' is not one of" in said
    assert "Value error" not in said


def test_explain_suggests_near_names(spec, capsys):
    assert execute(["explain", "spec.yaml", "lern"]) == 1
    captured = capsys.readouterr().err
    assert "error[GS232]: no op 'lern' in two-steps; did you mean learn?" in captured


def test_emit_prints_python(spec, capsys):
    assert execute(["emit", "spec.yaml"]) == 0
    text = capsys.readouterr().out
    compile(text, "step.py", "exec")
    assert "import torch" in text


def test_schema_prints_the_published_file(capsys):
    assert execute(["schema"]) == 0
    root = Path(__file__).resolve().parents[2]
    assert capsys.readouterr().out == (root / "schemas" / "graphspec.schema.json").read_text()


@pytest.mark.parametrize(("form", "begin"), [("svg", "<svg "), ("html", "<!doctype html>\n")])
def test_a_plan_is_written_as_a_picture_and_as_a_page(spec, capsys, form, begin):
    assert execute(["plan", "spec.yaml", "--format", form, "-o", f"plan.{form}"]) == 0
    assert Path(f"plan.{form}").read_text(encoding="utf-8").startswith(begin)
    assert execute(["plan", "spec.yaml", "--format", form, "--mode", "eval"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(begin)
    assert "eval_step" in printed
