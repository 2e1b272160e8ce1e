"""Completion: the names, keys and words that may stand where the cursor is, also where the text is broken there."""

from __future__ import annotations

import pytest
from lsprotocol import types

from graphspec.declare.ops import KINDS
from graphspec.declare.optimizers import OPTIMIZERS

SPEC = """graphspec: 1
name: sac-like
vars: {width: 8, rate: 1e-3, tau: 0.01}
inputs: {state: {shape: [batch, 3]}, action: {shape: [batch, 1]}}
state: {center: {shape: [4]}}
models:
  actor: {layers: [{linear: "${width}"}, relu, {linear: 1}], optimizer: {name: adam, lr: "${rate}"}}
  critic: {layers: [{linear: 1}], optimizer: adam}
  late: {like: critic}
blocks:
  policy:
    inputs: [seen]
    outputs: [chosen]
    args: {std: 0.1}
    ops:
      noise: {random: normal, shape: [batch, 1], args: {std: "${std}"}}
      told: {forward: actor, inputs: seen}
      chosen: {expr: "told + noise"}
ops:
  now: {use: policy, inputs: [state]}
  pair: {expr: "concat(state, now.chosen)"}
  worth: {forward: critic, inputs: pair}
  step_critic: {update: critic, loss: "mean((worth - 1)**2)"}
  judged: {forward: critic, inputs: pair, after: step_critic}
  step_actor: {update: actor, loss: "-mean(judged)"}
  follow: {ema: critic, into: late, tau: "${tau}"}
outputs: [worth]
data:
  train: {digits_1: {source: npz, path: a.npz, batch: 8}, digits_2: {source: npz, path: b.npz, batch: 8}}
  test: {source: npz, path: c.npz, batch: 8}
run: {steps: 10}
"""
VALUES = {"state", "action", "center", "now.chosen", "pair", "worth", "judged", "step_critic.loss", "step_actor.loss"}
MODELS = {"actor", "critic", "late"}
OPS = {"now", "pair", "worth", "step_critic", "judged", "step_actor", "follow"}
VARIABLES = {"width", "rate", "tau"}
FORMS = {*KINDS, "use", "expr", "repeat", "choose", "sometimes"}

EXACT = {
    # what is there, what is written in its place, and all that may stand at the cursor
    "the model of a forward": ("forward: critic, inputs: pair}", "forward: |, inputs: pair}", MODELS),
    "after the first letters": ("forward: critic, inputs: pair}", "forward: cr|, inputs: pair}", MODELS),
    "an input": ("critic, inputs: pair}", "critic, inputs: |}", VALUES - {"worth"} | {"worth"}),
    "an item of a list": ("inputs: pair, after", "inputs: [state, |], after", VALUES),
    "an op to wait for": ("after: step_critic}", "after: |}", OPS),
    "an update to follow": ("after: step_critic}", "every: |}", {"step_critic", "step_actor"}),
    "the model of an update": ("{update: actor, loss", "{update: |, loss", MODELS),
    "one of several models": ("{update: actor, loss", "{update: [actor, |], loss", MODELS),
    "the source of an average": ("{ema: critic,", "{ema: |,", MODELS),
    "the target of an average": ("into: late,", "into: |,", MODELS),
    "a likeness": ("{like: critic}", "{like: |}", MODELS),
    "a block": ("{use: policy,", "{use: |,", {"policy"}),
    "the inputs of a block by name": ("inputs: [state]}", "inputs: {|}}", {"seen"}),
    "the constants of a block": ("inputs: [state]}", "inputs: [state], args: {|}}", {"std"}),
    "an output": ("outputs: [worth]", "outputs: [|]", VALUES),
    "names in a block": ("actor, inputs: seen}", "actor, inputs: |}", {"seen", "noise", "told", "chosen", "center"}),
    "a variable": ('"${tau}"', '"${|}"', VARIABLES),
    "a variable in a block": ('"${std}"', '"${|}"', VARIABLES | {"std"}),
    "the kinds of ops": ("{forward: actor, inputs: seen}", "{|}", FORMS),
    "the kinds of ops, unclosed": ("{forward: actor, inputs: seen}", "{", FORMS),
    "the rules of optimizers": ("{name: adam,", "{name: |,", {*OPTIMIZERS}),
    "the keys of a rule": ('{name: adam, lr: "${rate}"}', "{name: adam, lr: 1e-3, |}", {
        "betas", "eps", "weight_decay", "sparse", "fused"}),
    "a distribution": ("random: normal", "random: |", {"normal", "uniform", "bernoulli", "permutation", "randint"}),
    "the options of a distribution": ('args: {std: "${std}"}', "args: {|}", {"mean", "std"}),
    "the roles of data": ("steps: 10}", "steps: 10, eval: {data: |}}", {"train", "test"}),
    "the training sets": ("after: step_critic}", "dataset: |}", {"digits_1", "digits_2"}),
    "a choice": ("steps: 10}", "steps: 10, eval: {mode: |}}", {"eval", "test", "infer"}),
    "a truth": ("steps: 10}", "check_data: |}", {"true", "false"}),
    "a remark": ("after: step_critic}", 'doc: "what is |"}', set()),
    "a comment": ("run: {steps: 10}", "# run |", set()),
    "a number": ("steps: 10}", "steps: 1|}", set()),
}  # fmt: skip


@pytest.mark.parametrize("case", EXACT.values(), ids=EXACT)
def test_what_may_stand_there(editor, case):
    before, after, expected = case
    assert editor.check("names.yaml", SPEC) == []
    marked = after if "|" in after else f"{after}|"
    found = editor.complete("names.yaml", SPEC.replace(before, marked, 1))
    assert {*found} == expected
    editor.close("names.yaml")


SOME = {
    "keys of the kind at hand": ("forward: critic, inputs: pair}", "forward: critic, |}",
                                 {"inputs", "after", "train", "stop", "snapshot"}, {"forward", "update", "clip"}),
    "keys of an update": ("{update: actor, loss", "{update: actor, |, loss",
                          {"clip", "gradients", "accumulate", "optimizer"}, {"loss", "update", "stop"}),
    "keys of a model": ("{like: critic}", "{like: critic, |}", {"init", "optimizer", "weights"}, {"like"}),
    "the sections": ("run: {steps: 10}", "ru|", {"run", "seed", "precision"}, {"ops", "models", "data"}),
    "functions and values of an expression": ('"told + noise"', '"ta|"',
                                              {"tanh", "told", "seen", "mean", "mse", "pi"}, {"state", "actor"}),
    "inside of a call": ('"-mean(judged)"', '"-mean(ju|', {"judged", "axis", "keepdims", "stop"}, {"critic"}),
    "the loss of an update": ('loss: "-mean(judged)"', "loss: |", {"judged", "worth", "mean", "mse"}, {"critic"}),
    "a layer": ("relu, {linear: 1}", "|, {linear: 1}", {"relu", "tanh", "flatten"}, {"actor"}),
    "a layer with options": ("relu, {linear: 1}", "{|}, {linear: 1}", {"conv2d", "linear", "residual"}, set()),
    "the function of a call": ('{expr: "told + noise"}', "{call: |}", {"add", "concat", "stop"}, {"mse", "told"}),
    "a line that is being written": ("run: {steps: 10}", "run:\n  |", {"steps", "eval", "images"}, set()),
    "a line between others": ("  judged:", "  more:\n    forward: late\n    |\n  judged:",
                              {"inputs", "after"}, {"forward"}),
    "a value between others": ("  judged:", "  more:\n    forward: |\n  judged:", MODELS, {"state"}),
    "a list of lines": ("  judged:", "  more:\n    call: add\n    inputs:\n      - pair\n      - |\n  judged:",
                        {"worth", "state"}, {"critic"}),
}  # fmt: skip


@pytest.mark.parametrize("case", SOME.values(), ids=SOME)
def test_what_may_stand_there_among_other_things(editor, case):
    before, after, expected, others = case
    assert editor.check("some.yaml", SPEC) == []
    found = editor.complete("some.yaml", SPEC.replace(before, after, 1))
    assert expected <= {*found}
    assert others.isdisjoint(found)
    editor.close("some.yaml")


def test_an_error_elsewhere_does_not_take_the_names_away(editor):
    broken = {
        "an open bracket below": ("data:\n", "data: {\n"),
        "an open bracket above": ("name: sac-like", "name: [sac-like"),
        "an open quote above": ("name: sac-like", 'name: "sac-like'),
        "a key twice": ("  pair:", "  now: {call: neg, inputs: state}\n  pair:"),
        "an unknown key": ("  pair:", "  pear: {colour: red}\n  pair:"),
        "an indentation": ("  pair:", "   pair:"),
    }
    for name, (before, after) in broken.items():
        assert editor.check("broken.yaml", SPEC) == []
        text = SPEC.replace(before, after, 1).replace("{forward: critic, inputs: pair,", "{forward: |, inputs: pair,")
        assert {*editor.complete("broken.yaml", text)} >= MODELS, name
        editor.close("broken.yaml")


def test_names_that_are_new_since_the_text_was_broken_are_known_as_far_as_it_can_be_read(editor):
    text = SPEC.replace("  late: {like: critic}", "  late: {like: critic}\n  other: {like: critic}")
    text = text.replace("{ema: critic, into", "{ema: critic, colour: red, into: |, x").replace("into: late,", "into: ,")
    assert {"other", *MODELS} == {*editor.complete("new.yaml", text)}
    editor.close("new.yaml")


def test_a_suggestion_replaces_the_word_and_says_what_it_is(editor):
    name = "edit.yaml"
    text = SPEC.replace('doc: "', "").replace("name: sac-like", "name: sac-like  # 🙂🙂")
    text = text.replace(
        '  pair: {expr: "concat(state, now.chosen)"}', '  pair: {doc: "🙂", expr: "concat(state, now.ch|")}'
    )
    found = editor.complete(name, text)
    edit = found["now.chosen"].text_edit
    assert editor.read(name, edit.range) == "now.ch"
    assert edit.new_text == "now.chosen"
    function = found["tanh"]
    assert function.kind == types.CompletionItemKind.Function
    assert "hyperbolic tangent" in function.documentation.value
    key = editor.complete(name, SPEC.replace("{like: critic}", "{like: critic, we|}"))["weights"]
    assert key.text_edit.new_text == "weights: "
    assert "safetensors" in key.documentation.value
    editor.close(name)


def test_json_is_completed_too(editor):
    text = '{"graphspec": 1, "name": "j",\n "models": {"net": {"layers": ["relu"]}},\n "ops": {"y": {"forward": "|"}}}'
    assert {*editor.complete("spec.json", text)} == {"net"}
    editor.close("spec.json")


def test_a_key_that_has_its_colon_gets_no_other_and_a_word_that_needs_quotes_gets_them(editor):
    text = SPEC.replace("{like: critic}", "{li|ke: critic}")
    assert editor.complete("colon.yaml", text)["like"].text_edit.new_text == "like"
    text = SPEC.replace("after: step_critic}", "mode: |}")
    assert editor.complete("colon.yaml", text)["!train"].text_edit.new_text == '"!train"'
    text = SPEC.replace("after: step_critic}", 'mode: "|"}')
    assert editor.complete("colon.yaml", text)["!train"].text_edit.new_text == "!train"
    editor.close("colon.yaml")
