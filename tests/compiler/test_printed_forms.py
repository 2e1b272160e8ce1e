"""The forms of a plan: text, explanation, JSON, Mermaid and Graphviz."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

from compiler import compile_step
from compiler.ir.verify import InvariantError, verify
from compiler.plan.schema import plan_schema
from graphspec import load
from tests.compiler.conftest import APART, PROGRAMS, compiled, graph_of, program

NAMES = sorted(path.stem for path in PROGRAMS.glob("*.yaml"))


def test_the_text_gives_versions_flags_and_decisions_line_by_line():
    lines = str(program("simultaneous_gan", order="listed")).splitlines()
    assert lines[0] == "simultaneous-gan: train step for torch, order listed"
    assert lines[2] == "train_step  (writes: step_d, step_g)"
    assert re.fullmatch(r" +1  random    z ~ normal \[batch, 2\]", lines[3])
    retained = next(line for line in lines if "gradient of d_loss" in line)
    assert retained.endswith("[retain_graph]")
    assert any(line.startswith("  DEFER        apply step_d is deferred after gradient step_g") for line in lines)


def test_the_text_says_when_no_update_is_deferred():
    assert "  no update is deferred" in str(program("dcgan")).splitlines()


def test_the_text_tells_how_the_loss_scale_moves_and_what_holds_each_update():
    prelude = """graphspec: 1
name: held
inputs: {x: {shape: [batch, 2]}}
models: {a: {layers: [{linear: 1}], optimizer: sgd}, b: {like: a, optimizer: sgd}, c: {like: a, optimizer: sgd}}
precision: {loss_scale: {initial: 1024, growth_steps: 2000}}
"""
    ops = """
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: x}
  fc: {forward: c, inputs: x}
  step_a: {update: a, loss: "mse(fa, 0.0)"}
  step_b: {update: b, loss: "mse(fb, 0.0)", accumulate: 4}
  step_c: {update: c, loss: "mse(fc, 0.0)", on_overflow: own, accumulate: {steps: 2, on_nonfinite: window}}
  slow_b: {ema: b, decay: 0.9}
  slow_c: {ema: c, decay: 0.9}
"""
    moves = "times 0.5 after an overflow, times 2 after 2,000 steps without one"
    both = "gradients of step_a or step_b are not finite"
    assert str(compiled(ops, prelude=prelude)).split("\n\noverflow\n")[1].splitlines() == [
        f"  the loss scale is 1024 at first, {moves}, and never below 1",
        f"  step_a is held if {both} (one group)",
        f"  step_b leaves a step out of its window if {both}; it is held if no step is left or what it accumulated is "
        "not finite",
        "  step_c is held if gradients of step_c are not finite in any step of its window",
        "  slow_c is held with step_c",
        "  slow_b is held with step_b",
    ]
    fixed = prelude.replace("{initial: 1024, growth_steps: 2000}", "512")
    assert "overflow\n  the loss scale is 512 in every step\n" in str(compiled(ops, prelude=fixed))
    assert "overflow\n" not in str(program("dcgan"))


def test_the_text_tells_warnings_and_assumptions():
    prelude = "graphspec: 1\nname: s\ninputs: {x: {}, y: {}}\nmodels:\n  a: {class: 'zoo:A', optimizer: sgd}\n"
    ops = """
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step: {update: a, loss: la}
  no: {call: neg, inputs: x}
"""
    text = str(compiled(ops, prelude=prelude))
    assert "warnings\n  W-DEAD nothing uses 'no': it never runs\n" in text
    traits = "buffers, rng, batch_coupled, no recomputed forwards"
    assert f"notes\n  assumed of 'a', whose class declares no such traits: {traits}\n" in text


def test_an_explanation_gives_place_versions_and_every_reason():
    text = program("simultaneous_gan", order="listed").explain("step_d")
    assert text.startswith("step_d: update (simultaneous_gan.yaml:16:3)\n")
    assert "DEFER: apply step_d is deferred after gradient step_g" in text
    assert "RETAIN: gradient step_d keeps its graph: gradient step_g runs through on_fake too" in text
    assert "after gradient step_g (backward-war): gradient step_g still reads discriminator.params@0" in text


def test_an_explanation_of_an_update_that_need_not_wait_says_so():
    text = program("dcgan").explain("step_d")
    assert "apply step_d is not deferred: nothing that comes after its gradient still reads what it overwrites" in text
    assert "before forward judged (declared): judged is declared `after: step_d`" in text


PAIR = """
  a_x: {forward: a, inputs: x}
  b_x: {forward: b, inputs: x}
  a_loss: {loss: mse, inputs: [a_x, y]}
  b_loss: {loss: mse, inputs: [b_x, y]}
  step_a: {update: a, loss: a_loss}
  step_b: {update: b, loss: b_loss}
"""


@pytest.mark.parametrize(("choice", "order"), [("defer", "fewest"), ("order", "latest")])
def test_an_update_that_waits_by_choice_alone_gives_that_as_its_reason(choice, order):
    why = {"defer": "it says `defer: end`", "order": "the order `latest` puts every write as late as it may"}[choice]
    late = ", defer: end}" if choice == "defer" else "}"
    plan = compiled(
        PAIR.replace("loss: a_loss}", f"loss: a_loss{late}").replace("loss: b_loss}", f"loss: b_loss{late}"),
        order=order,
    )
    assert f"DEFER: apply step_a is deferred: {why}\n" in plan.explain("step_a")
    # nothing but a write stands between the last gradient and its write: it is not deferred, nor early
    assert f"    apply step_b does not run early: {why}\n" in plan.explain("step_b")
    (decision,) = (each for each in plan.to_json()["decisions"] if each["code"] == "DEFER")
    assert [(why["edge"], why["op"]) for why in decision["because"]] == [(choice, "step_a")]


def test_an_update_that_waits_longer_than_it_must_gives_both_reasons():
    ops = """
  a_x: {forward: a, inputs: x}
  b_a: {forward: b, inputs: a_x}
  a_loss: {loss: mse, inputs: [b_a, y]}
  step_b: {update: b, loss: a_loss, defer: end}
  step_a: {update: a, loss: a_loss}
  c_x: {forward: c, inputs: x}
  c_loss: {loss: mse, inputs: [c_x, y]}
  step_c: {update: c, loss: c_loss}
"""
    plan = compiled(ops, order="listed")
    found = next(
        each for each in plan.to_json()["decisions"] if each["code"] == "DEFER" and each["subject"] == "step_b"
    )
    assert [why["edge"] for why in found["because"]] == ["backward-war", "defer"]
    assert found["text"] == (
        "apply step_b is deferred after gradient step_a: gradient step_a still reads b.params@0 through b_a "
        "(<text>:15:3); it says `defer: end`"
    )


def test_an_explanation_of_a_forward_says_which_writes_it_sees():
    plan = program("dcgan")
    assert "reads discriminator.params@1: it comes after step_d" in plan.explain("judged")
    unseen = "reads discriminator.params@0, as at the start of the step: no `after` puts it after step_d"
    assert unseen in plan.explain("on_fake")


def test_an_explanation_tells_the_functions_in_which_an_op_does_not_run():
    text = program("td3").explain("step_actor")
    assert "in train_step_1, eval_step\n  does not run" in text
    assert "in train_step_2 (lines 25, 26; steps 2, 4, 6, ...)\n" in text


def test_an_explanation_of_a_model_lists_what_reads_and_writes_it():
    text = program("dcgan").explain("discriminator")
    title, train, evaluation = text.split("\n\n")
    assert title == "discriminator: model (dcgan.yaml:7:3)"
    assert [line.split()[:2] for line in train.splitlines()[1:]] == [
        ["forward", "on_real,"],  # and on_fake, in one call
        ["apply", "discriminator"],
        ["forward", "judged"],
    ]
    assert "  apply discriminator <- discriminator.optimizer(step_d)  [discriminator.params@0 -> @1]" in train
    assert {line.split()[0] for line in evaluation.splitlines()[1:]} == {"forward"}


def test_the_explanation_of_an_unknown_op_suggests_one():
    with pytest.raises(KeyError, match=r"no op 'stepd' in dcgan; did you mean step_d"):
        program("dcgan").explain("stepd")


def test_parts_of_expressions_are_not_suggested():
    with pytest.raises(KeyError) as caught:
        compile_step(load(Path(__file__).parents[2] / "examples" / "td3" / "td3.yaml")).explain("stepp_actor")
    assert "did you mean step_actor, step_actor.loss, " in caught.value.args[0]
    assert "step_actor.loss.1" not in caught.value.args[0]


def test_a_mode_that_the_spec_does_not_have_is_refused():
    for form in ("text", "to_json", "mermaid", "dot"):
        with pytest.raises(KeyError, match="no mode 'infer' in dcgan: it has train, eval"):
            getattr(program("dcgan"), form)("infer")


@cache
def published() -> jsonschema.Draft202012Validator:
    """Return the validator of the schema of plans, which takes longer to make than to use; its schema is valid."""
    schema = plan_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.sample(3)
@pytest.mark.parametrize("order", ["fewest", "listed", "latest", "memory"])
@pytest.mark.parametrize("name", NAMES)
def test_the_json_is_what_the_published_schema_says(name, order):
    plan = program(name, order=order)
    for mode in plan.program.modes:
        exported = plan.to_json(mode.mode)
        published().validate(exported)
        assert json.loads(json.dumps(exported)) == exported


def test_the_published_schema_of_plans_is_fresh():
    path = Path(__file__).resolve().parents[2] / "schemas" / "plan.schema.json"
    assert json.loads(path.read_text(encoding="utf-8")) == plan_schema()


def test_the_json_has_the_fields_of_the_language():
    plan = program("simultaneous_gan", order="listed").to_json()
    head = {key: plan[key] for key in ("plan", "name", "backend", "mode", "order")}
    assert head == {"plan": 3, "name": "simultaneous-gan", "backend": "torch", "mode": "train", "order": "listed"}
    assert plan["functions"][0]["active"] == ["step_d", "step_g"]
    by_op = {(one["kind"], one["op"]): one for one in plan["functions"][0]["instructions"]}
    fake = by_op["forward", "fake"]
    expected = {"reads": ["generator.params@0"], "inputs": ["z"], "outputs": ["fake"], "graph": True}
    assert {key: fake[key] for key in expected} == expected
    gradient = by_op["gradient", "step_d"]
    expected = {"loss": "d_loss", "targets": ["discriminator"], "retain_graph": True, "create_graph": False}
    assert {key: gradient[key] for key in expected} == expected
    assert "discriminator.params@1" in by_op["apply", "step_d"]["writes"]


def test_the_json_gives_decisions_with_their_reasons():
    plan = program("simultaneous_gan", order="listed").to_json()
    deferral = next(one for one in plan["decisions"] if one["code"] == "DEFER")
    assert deferral["subject"] == "step_d"
    assert deferral["because"][0] == {
        "edge": "backward-war",
        "op": "step_g",
        "cell": "discriminator.params@0",
        "through": ["on_fake"],
        "place": "simultaneous_gan.yaml:12:3",
    }


def test_the_json_gives_warnings_with_op_and_place():
    plan = compiled("""
  fake: {forward: a, inputs: x}
  judged: {forward: b, inputs: fake}
  la: {loss: mse, inputs: [judged, 1.0]}
  step_a: {update: a, loss: la}
  fb: {forward: b, inputs: x}
  lb: {loss: mse, inputs: [fb, y]}
  step_b: {update: b, loss: lb}
""")
    warning = plan.to_json()["warnings"][0]
    assert (warning["code"], warning["op"], warning["place"]) == ("W-ADVERSARY", "judged", "<text>:15:3")


def test_fewer_deferrals_are_told_of_a_backend_that_keeps_values():
    plans = {
        backend: program("autoencoder", backend=backend, order="listed", settings=APART)
        for backend in ("torch", "tensorflow")
    }
    codes = {backend: [one["code"] for one in plan.to_json()["decisions"]] for backend, plan in plans.items()}
    assert ("DEFER" in codes["torch"], "DEFER" in codes["tensorflow"]) == (True, False)


@pytest.mark.parametrize("name", NAMES)
def test_mermaid_is_well_formed(name):
    lines = program(name).mermaid().splitlines()
    assert lines[0] == "flowchart TD"
    boxes = [re.fullmatch(r'    (\w+)(\["[^"]*"\]|\(\["[^"]*"\]\))', line) for line in lines]
    declared = [box.group(1) for box in boxes if box]
    arrows = [re.fullmatch(r"    (\w+) (?:-->|-\.->)(?:\|[\w, -]+\|)? (\w+)", line) for line in lines]
    ends = {end for arrow in arrows if arrow for end in arrow.groups()}
    frames = sum(re.fullmatch(r'  subgraph \w+\["[^"]*"\]', line) is not None for line in lines)
    below = sum(re.fullmatch(r'  \w+\["[^"]*"\]', line) is not None for line in lines)
    assert len(declared) == len(set(declared))
    assert ends <= set(declared)
    assert frames == lines.count("  end")
    assert len(lines) == 1 + len(declared) + sum(arrow is not None for arrow in arrows) + 2 * frames + below


@pytest.mark.parametrize("name", NAMES)
def test_dot_is_well_formed(name):
    lines = program(name).dot().splitlines()
    text = r'"(?:[^"\\]|\\.)*"'
    boxes = [re.fullmatch(rf"    ({text}) \[label={text}(?:, style=bold)?\];", line) for line in lines]
    declared = [box.group(1) for box in boxes if box]
    arrows = [re.fullmatch(rf"    ({text}) -> ({text}) \[label={text}(?:, style=dashed)?\];", line) for line in lines]
    ends = {end for arrow in arrows if arrow for end in arrow.groups()}
    assert (lines[0].startswith("digraph "), lines[-1]) == (True, "}")
    assert len(declared) == len(set(declared))
    assert ends <= set(declared)
    assert sum(line.endswith("{") for line in lines) == sum(line.strip() == "}" for line in lines)


def test_pictures_keep_an_op_apart_from_the_gradient_of_an_update():
    plan = compiled("""
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step: {update: a, loss: la}
  step__gradient: {call: neg, inputs: la}
outputs: [step__gradient]""")
    boxes = re.findall(r'^    (\w+)\(?\["', plan.mermaid(), re.MULTILINE)
    assert len(boxes) == len(set(boxes)) == len(graph_of(plan).nodes)


def test_hazards_are_dashed_in_pictures():
    plan = program("simultaneous_gan", order="listed")
    assert "-.->|gradient needs the version before" in plan.mermaid()
    assert "style=dashed" in plan.dot()


SELDOM = """
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: fa}
  grain: {random: normal, like: x, args: {std: 0.25}}
  la: {loss: mse, inputs: [fb, grain]}
  step_a: {update: a, loss: la}
  step_b: {update: b, loss: la, every: 50, optimizer: {name: adam, lr: 0.002}}
  slow: {ema: a, half_life: 100 steps}
"""


def test_json_says_in_which_steps_functions_run_and_ops_write():
    found = compiled(SELDOM).to_json()
    assert [each["steps"] for each in found["functions"]] == [
        "steps 1-49, 51-99, 101-149, ...",
        "steps 50, 100, 150, ...",
    ]
    assert found["clocks"] == {
        "step_a": "in every step",
        "slow": "in every step",
        "step_b": "in steps 50, 100, 150, ...",
    }


@pytest.mark.parametrize("form", ["mermaid", "dot"])
def test_pictures_say_what_the_text_says(form):
    drawn = getattr(compiled(SELDOM), form)()
    told = [
        "steps 50, 100, 150, ...",
        "std=0.25",
        "adam, lr 0.002",
        "half_life 100 updates",
        "reads the version before",
    ]
    assert [words for words in told if words not in drawn] == []


def test_the_verifier_finds_a_sequence_that_breaks_an_edge():
    graph = graph_of(program("dcgan"))
    swapped = tuple(reversed(graph.sequence))
    with pytest.raises(InvariantError, match=r"after a test: .*stands before"):
        verify("a test", replace(graph, sequence=swapped))


LEFT_OUT = """
graphspec: 1
name: part
inputs: {x: {shape: [batch, 3]}, y: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  noisy: {call: add, inputs: [out, 1.0], mode: train}
  fit: {loss: mse, inputs: [noisy, y]}
  size: {loss: mse, inputs: [out, 0.0], every: 4}
  step: {update: net, loss: "fit + size"}
  shown: {call: neg, inputs: out, mode: [train, infer]}
  hit: {metric: mean, inputs: out}
"""
RETURNED = "outputs: [fit, size, shown, hit]\n"


def test_a_plan_of_evaluations_says_what_they_leave_out_and_why():
    plan = compile_step(load(LEFT_OUT + RETURNED))
    _, _, found = plan.text("eval").partition("left out\n")
    assert found.splitlines()[:3] == [
        "  fit: needs 'noisy', which runs in train mode",
        "  size: returned in steps 4, 8, 12, ... alone (`every: 4`)",
        "  shown: runs in train and infer mode",
    ]
    assert "left out" not in plan.text("train")
    assert "\n  does not run: it needs 'noisy', which runs in train mode" in plan.explain("fit")


def test_without_outputs_evaluations_leave_out_losses():
    plan = compile_step(load(LEFT_OUT.replace(", every: 4", "")))
    _, _, found = plan.text("eval").partition("left out\n")
    assert found.splitlines()[:2] == [
        "  fit: needs 'noisy', which runs in train mode",
        "  size: is a loss, which only train mode returns where there are no `outputs`",
    ]


def test_of_a_step_without_writes_nothing_is_said_of_updates():
    plan = compile_step(load(LEFT_OUT + RETURNED))
    assert "no update is deferred" in plan.text("train")
    assert "deferred" not in plan.text("eval")


def test_what_an_update_differentiates_is_left_out_by_its_own_name():
    text = """
graphspec: 1
name: two-terms
inputs: {x: {shape: [batch, 3]}, y: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  step: {update: net, loss: "mse(out, y) + 0.1 * mse(out, 0.0)"}
  seen: {metric: mean, inputs: out, mode: eval}
"""
    printed = compile_step(load(text)).text("eval")
    assert "\n  step.loss: runs in train mode\n" in printed + "\n"
    assert "step.loss.1" not in printed
