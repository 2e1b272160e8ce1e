"""A summary names every forward that reads what its step wrote, an iterated one by its first and last iteration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compiler import Plan, compile_step
from compiler.ir.instructions import Forward
from compiler.plan.summary import SEEN, WAITS, find_summarized, list_sections
from graphspec import load

EXAMPLES = Path(__file__).parents[2] / "examples"
SPECS = sorted(EXAMPLES.glob("*/*.yaml"))
NAMES = ("autoencoder", "cyclegan", "gan-digits", "maml", "ppo", "sac", "sam", "stylegan2-lazy", "td3", "wgan-gp")


def plan_of(name: str) -> Plan:
    """Return the plan of an example."""
    return compile_step(load(EXAMPLES / name / f"{name}.yaml"))


def list_seen(plan: Plan) -> list[tuple[str, str]]:
    """Return what the summary says of forwards that read what the step wrote."""
    return [*list_sections(plan, find_summarized(plan))[SEEN]]


@pytest.mark.parametrize("name", NAMES)
def test_every_forward_that_reads_what_the_step_wrote_is_named(name: str) -> None:
    plan = plan_of(name)
    late = {
        each.op
        for function in find_summarized(plan).functions
        for each in function.instructions
        if isinstance(each, Forward)
        if any(read.version and read.cell.kind == "params" for read in each.reads)
    }
    named = [re.fullmatch(r"(\S+)(?: to (\S+))?", names) for names, _ in list_seen(plan)]
    ends = {end for match in named if match for end in match.groups() if end}
    without_numbers = {re.sub(r"\.\d+\.", ".#.", op) for op in late}
    assert ends <= late
    assert {re.sub(r"\.\d+\.", ".#.", end) for end in ends} == without_numbers


def test_the_other_modes_are_named() -> None:
    plan = plan_of("td3")
    assert [each.mode for each in plan.program.modes] == ["train", "eval", "infer"]
    assert plan.explain().splitlines()[1] == "other modes: eval, infer (`plan --mode eval`)"


def test_iterations_read_what_those_before_them_wrote() -> None:
    assert list_seen(plan_of("ppo")) == [
        ("passes.2.now.scores to passes.20.now.scores", "actor after passes.1.step, and so on"),
        ("passes.2.guess to passes.20.guess", "critic after passes.1.step, and so on"),
    ]


def test_an_update_that_waits_without_being_deferred_is_told_with_its_reason() -> None:
    text = plan_of("simultaneous-gan").explain()
    why = "gradient step_g still reads discriminator.params@0 through on_fake (simultaneous-gan.yaml:21:3)"
    assert f"\n  waits        apply step_d, for gradient step_g: {why}\n" in text
    assert "  no update is deferred and nothing is cloned\n" in text


@pytest.mark.sample(3)
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_summary_has_every_reason_for_which_the_plan_says_that_something_waits(path: Path) -> None:
    plan = compile_step(load(path))
    entries = list_sections(plan, find_summarized(plan))[WAITS]
    waits = [
        (each["op"], wait["text"])
        for function in plan.to_json()["functions"]
        for each in function["instructions"]
        for wait in each.get("waits", ())
    ]
    for op, why in waits:
        assert any(code in ("waits", "DEFER") and f" {op}" in text and why in text for code, text in entries), (op, why)


DRAWN = """graphspec: 1
name: drawn
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}, slow: {like: net}, kept: {like: net}}
ops:
  passes:
    repeat: 3
    ops:
      step: {update: net, loss: "mse(out, 0.0)"}
      out: {forward: net, inputs: way.seen}
      follow: {ema: net, into: slow, decay: 0.9}
      way:
        choose:
          - {p: 0.25, ops: {seen: {expr: "x + 1"}}}
          - p: 0.75
            ops:
              inner: {sometimes: 0.1, ops: {twice: {expr: "x * 2"}}, else: {twice: x}}
              seen: {expr: "inner.twice - 1"}
        outputs: [seen]
  keep: {copy: net, into: kept, every: 4}
"""


def test_a_summary_says_how_often_what_is_random_is_drawn() -> None:
    """By the shares in the spec: those of the inner part are of the steps in which it is drawn for at all."""
    plan = compile_step(load(DRAWN.replace("repeat: 3", "repeat: 1")))
    drawn = [
        "passes.1.way.1: in 25 % of the steps",
        "passes.1.way.2: in 75 % of the steps",
        "passes.1.way.2.inner.1: in 10 % of the steps with passes.1.way.2",
        "passes.1.way.2.inner.2: in 90 % of the steps with passes.1.way.2",
    ]
    for text in (plan.explain(), plan.text()):
        assert text.split("\n\ndrawn\n")[1].split("\n\n")[0].splitlines() == [f"  {each}" for each in drawn]
    inner = plan.explain("passes.1.way.2.inner.1.twice")
    assert "alternative 2 of 2 of passes.1.way (drawn in 75 % of the steps)" in inner
    assert "of passes.1.way.2.inner (drawn in 10 % of the steps with passes.1.way.2)" in inner


def test_a_summary_names_the_source_of_a_copy_and_an_average_of_iterations_once() -> None:
    plan = compile_step(load(re.sub(r"      way:\n(        .*\n)+", "", DRAWN).replace("way.seen", "x")))
    sections = list_sections(plan, find_summarized(plan))
    assert dict(sections["models"])["slow"] == "follows net (passes.1.follow to passes.3.follow)"
    assert dict(sections["written"])["keep"] == "kept from net, in steps 4, 8, 12, ... (<text>:12:3)"
