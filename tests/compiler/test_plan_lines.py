"""Lines of a plan: what a write waits for, optimizers with their numbers, and functions that differ little."""

from __future__ import annotations

import re
from pathlib import Path

import networkx
import pytest

from compiler import compile_step
from compiler.plan.waits import find_waits
from graphspec import load
from tests.compiler.conftest import compiled, program
from tests.compiler.printed import read_functions

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/*.yaml"))


def read_waits(graph, node):
    """Return by networkx what a write waits for: predecessors that lead to no other, and pass it no value."""
    before = set(graph.predecessors(node))
    last = {each for each in before if not networkx.descendants(graph, each) & before}
    held = set()
    for each in last:
        hazards = {data["hazard"] for data in graph.get_edge_data(each, node).values()}
        held |= {(each, hazard) for hazard in hazards if not hazards & {"data", "raw"}}
    return held


@pytest.mark.sample(3)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("order", ["fewest", "listed"])
def test_what_a_write_waits_for_is_what_the_graph_of_the_plan_says(path, order):
    plan = compile_step(load(path), order=order)
    for function, graph in plan.graphs_of("train").items():
        found = {
            name: {(each.before, each.hazard.value) for each in edges} for name, edges in find_waits(graph).items()
        }
        network = plan.graph(function=function)
        writes = [name for name, node in graph.nodes.items() if node.is_write]
        assert found == {name: waits for name in writes if (waits := read_waits(network, name))}


def test_a_line_says_what_its_write_waits_for():
    lines = str(program("simultaneous_gan", order="listed")).splitlines()
    applied = [line for line in lines if line.split()[1:2] == ["apply"]]
    assert applied[0].endswith("discriminator.params@0 -> @1  [waits for gradient step_g]")
    assert applied[1].endswith("generator.params@0 -> @1")


def test_the_json_names_what_a_write_waits_for_and_why():
    (function,) = program("simultaneous_gan", order="listed").to_json()["functions"]
    waits = {each["id"]: each["waits"] for each in function["instructions"] if "waits" in each}
    assert [*waits] == ["step_d"]
    (wait,) = waits["step_d"]
    assert (wait["edge"], wait["for"]) == ("backward-war", "step_g.gradient")
    assert wait["text"].startswith("gradient step_g still reads discriminator.params@0 through on_fake")


PRELUDE = """graphspec: 1
name: numbers
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models:
  a: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.5, momentum: 0.9, nesterov: true}}
  b:
    layers: [{linear: 1}]
    optimizer: {name: adam, lr: {schedule: linear, from: 0.25, to: 0, over: 8}, weight_decay: 0.125}
  c: {like: a}
"""
OPS = """
  noise: {random: normal, like: x, args: {std: 0.25}}
  near: {call: add, inputs: [x, noise]}
  fa: {forward: a, inputs: near}
  fb: {forward: b, inputs: x}
  la: {loss: mse, inputs: [fa, y], weight: 0.5}
  lb: {loss: mse, inputs: [fb, y]}
  step_a: {update: a, loss: la}
  step_b: {update: b, loss: lb}
  slow: {ema: a, into: c, half_life: 10 updates}
"""


def test_a_plan_lists_optimizers_with_their_numbers_and_options():
    plan = compiled(OPS, prelude=PRELUDE)
    text = str(plan)
    assert "\noptimizers\n  a: sgd, lr 0.5, momentum 0.9, nesterov true\n" in text
    assert "\n  b: adam, lr as scheduled below, betas (0.9, 0.999), eps 1e-08, weight_decay 0.125\n" in text
    assert "noise ~ normal like x, std=0.25" in text
    assert re.search(r"c <- lerp\(c, a, 0\.0669\d+\) .*\[half_life 10 updates\]", text)  # 1 - 2 ** -(1 / 10)
    exported = plan.to_json()
    options = {each["name"]: each["options"] for each in exported["optimizers"]}
    assert options["a"] == {
        "lr": 0.5,
        "momentum": 0.9,
        "dampening": 0.0,
        "nesterov": True,
        "weight_decay": 0.0,
        "momentum_form": "lr_outside",
        "fused": "auto",
    }
    assert options["b"]["lr"] == "linear from 0.25 to 0 over 8 updates"
    by_op = {each["op"]: each for each in exported["functions"][0]["instructions"] if each["kind"] != "release"}
    assert (by_op["noise"]["like"], by_op["noise"]["options"]) == ("x", {"std": 0.25})
    assert by_op["la"]["weight"] == 0.5
    assert by_op["slow"]["half_life"] == "10 updates"


@pytest.mark.sample(3)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_function_given_by_differences_is_whole_when_they_are_applied(path):
    plan = compile_step(load(path))
    written = read_functions(plan.text())
    for function in plan.to_json()["functions"]:
        listed = [each for each in function["instructions"] if each["kind"] != "release" and not each.get("into")]
        rows = [each for each in written[function["name"]] if each[0] != "repeat"]
        folded = [each for each in written[function["name"]] if each[0] == "repeat"]
        for _, text in folded:  # iterations that are the same as the first: the lines before it
            first, last, part = re.search(r"iterations (\d+) to (\d+) of (\w+): the same as the first", text).groups()
            again = tuple(f"{part}.{number}." for number in range(int(first), int(last) + 1))
            listed = [each for each in listed if not each["op"].startswith(again)]
        assert [kind for kind, _ in rows] == ["return" if each["kind"] == "emit" else each["kind"] for each in listed]
        for (_, text), each in zip(rows, listed, strict=True):
            assert all(name in text for name in each.get("outputs", ()))


def test_functions_that_differ_little_are_written_once():
    text = compile_step(load(next(path for path in EXAMPLES if path.stem == "dqn"))).text()
    (second,) = [part for part in text.split("\n\n") if part.startswith("train_step_2")]
    assert second.splitlines()[1:] == [
        "  as train_step_1, except for",
        "  +  11  assign    target <- net  net.params@1, target.params@0 -> @1",
    ]


CENTERED = """graphspec: 1
name: centered
inputs: {x: {shape: [batch, 2]}}
state: {center: {shape: [2]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
blocks:
  look:
    inputs: [seen]
    outputs: [far, out]
    ops: {out: {forward: net, inputs: seen}, far: {expr: (out - center) / 0.5}}
ops:
  a: {use: look, inputs: x}
  step: {update: net, loss: "mse(a.far, 0.0)"}
  moved: {expr: "lerp(center, mean(a.out, axis=0), 0.1)"}
  move: {assign: center, value: moved}
"""


def test_a_line_has_the_versions_that_the_parts_of_its_expression_read():
    lines = str(compile_step(load(CENTERED))).splitlines()
    (far,) = [line for line in lines if " a.far = " in line]
    assert far.split()[-1] == "center.state@0"
    (store,) = [line for line in lines if " center <- moved" in line]
    assert store.endswith("-> center.state@1  [waits for evaluate a.far]")


def test_a_block_reads_a_state_as_if_every_use_gave_it():
    given = CENTERED.replace("inputs: [seen]", "inputs: [seen, center]").replace("inputs: x}", "inputs: [x, center]}")
    assert compile_step(load(given)).text() == compile_step(load(CENTERED)).text()


def test_a_name_that_is_no_op_of_its_own_is_explained_by_those_that_are():
    plan = compile_step(load(CENTERED))
    assert plan.explain("a.far.1") == plan.explain("a.far")
    assert plan.explain("a") == "\n".join(map(plan.explain, ("a.out", "a.far")))
    for name, words in {
        "a": "'a' becomes several ops: name one of them, a.out, a.far",
        "center": "'center' is a state of centered, and no op; the ops that name it: a.far, moved, move",
    }.items():
        with pytest.raises(KeyError) as caught:
            plan.why_not(name, "earlier")
        assert caught.value.args[0] == words


def test_a_state_is_explained_by_the_lines_that_read_and_write_it():
    text = compile_step(load(CENTERED)).explain("center")
    assert text.startswith("center: state")
    assert (text.count("center.state@0"), text.count("-> center.state@1")) == (2, 1), text


LAZY = """graphspec: 1
name: lazy
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  fit: {loss: mse, inputs: [out, x]}
  penalty: {loss: mse, inputs: [out, 0.0], every: 16, lazy: scale}
  learn: LEARN
"""


@pytest.mark.parametrize(
    ("learn", "whole", "rest"),
    [
        ('{update: net, loss: "fit + penalty"}', "learn.loss = fit + penalty", "learn.loss = fit"),
        ('{update: net, loss: "(fit + penalty) / 4"}', "learn.loss = (fit + penalty) / 4", "learn.loss = fit / 4"),
        (
            "{update: net, loss: whole}\n  whole: {call: add, inputs: [fit, penalty]}",
            "whole = add(fit, penalty)",
            "whole = fit",
        ),
    ],
)
def test_a_sum_of_which_one_term_is_left_is_written_as_that_term(learn, whole, rest):
    plan = compile_step(load(LAZY.replace("LEARN", learn)))
    without, within = (part.splitlines() for part in plan.text().split("\n\n")[1:3])
    assert any(line.endswith(f"  {rest}") for line in without), without
    assert any(line.endswith(f"  {whole}") for line in within), within
    op = "whole" if whole.startswith("whole") else "learn.loss"
    assert f" {rest}\n" in plan.explain(op)
    assert f"{rest}</" in plan.html()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("seen + ${shift}", "seen - 1.5"),
        ("seen - ${shift}", "seen + 1.5"),
        ("${shift} + seen", "-1.5 + seen"),
        ("2 * (seen + ${shift} + x)", "2 * (seen - 1.5 + x)"),
        ("seen * ${shift}", "seen * -1.5"),
    ],
)
def test_a_negative_number_is_subtracted(written, read):
    ops = LAZY.partition("ops:")[0] + 'vars: {shift: -1.5}\nops:\n  seen: {forward: net, inputs: x}\n  far: {expr: "'
    ops += written + '"}\n  learn: {update: net, loss: "mse(far, 0.0)"}\n'
    (line,) = [line for line in compile_step(load(ops)).text().splitlines() if " far = " in line]
    assert line.rpartition(" far = ")[2] == read
