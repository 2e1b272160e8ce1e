"""Names in the editor: hover texts, definition, references, rename and the outline."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from compiler import compile_step
from graphspec.loading import load
from runtime.lsp.navigate import RenameError, rename, write
from runtime.lsp.snapshot import Snapshot

ROOT = Path(__file__).resolve().parents[2]
SAC = (ROOT / "examples" / "sac" / "sac.yaml").read_text()
NAME = "sac.yaml"


@pytest.fixture(autouse=True, scope="module")
def _opened(editor):
    editor.write(NAME, SAC)


def lines_of(locations):
    return [(each.range.start.line + 1, each.range.start.character + 1) for each in locations]


def places_of(word, text=SAC):
    """Return every place where a word stands by itself outside of comments, as a line and a column."""
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        code = line.partition("  # ")[0] if not line.lstrip().startswith("#") else ""
        found += [(number, each.start() + 1) for each in re.finditer(rf"(?<![\w.-]){word}(?![\w-])", code)]
    return found


HOVER = {
    "a value": ("q_1: {", 1, ["`q_1`: [batch, 1] float32", "read by `step_critics`", "forward q_1 = critic_1(pair)"]),
    "an expression": ("goal: {", 1, ["`goal`: [batch, 1] float32", "minimum(next_1, next_2)"]),
    "a value of a block, outside": ("next.action)", 6, ["`next.action`: [batch, 1] float32", "`next_pair`"]),
    "a value of a block, inside, for every use": (
        "told: {", 1, ["`next.told`: [batch, 2] float32", "`now.told`: [batch, 2] float32", "actor(next_state)"]),
    "an input": ("reward: {", 1, ["`reward`: an input", "[batch, 1] float32", "read by `goal`"]),
    "a version": ("judged_1: {", 1, ["reads critic_1.params@1: it comes after step_critics"]),
    "a model": ("  critic_1: {", 4, [
        "layers, 4,545 parameters", "written by `step_critics` (update)", "`@0`: read by `q_1`",
        "`@1`: read by `judged_1`"]),
    "a model that follows": ("  late_critic_1: {", 4, ["written by `follow_1` (ema)", "`@0`: read by `next_1`"]),
    "an update": ("step_actor: {", 1, [
        "`step_actor.loss`: [] float32",
        "forward now.told still reads actor.params@0",
        "apply step_actor is not deferred", "writes in every step"]),
    "a variable": ("${tau}", 3, ["`tau`: a variable, `0.005`", "value: `0.005`"]),
    "a block": ("policy, inputs: [next", 1, ["`middle`, `action`, `log_p`", "used by `next`, `now`"]),
    "a key": ("forward: critic_1", 2, ["The model that is called, or a derived one."]),
    "a key of a section": ("run: {steps", 1, ["How `stepgraph run` trains."]),
    "a function in an expression": ("split(told", 2, ["cut into several values along an axis"]),
    "a function in a loss": ("mse(q_1", 1, ["squared difference"]),
    "a word": ("random: normal", 10, ["the normal distribution"]),
}  # fmt: skip


@pytest.mark.parametrize("case", HOVER.values(), ids=HOVER)
def test_hover(editor, case):
    words, after, expected = case
    text = editor.hover(NAME, words, after)
    assert [each for each in expected if each not in text] == []


def test_hover_says_why_an_update_waits(editor):
    path = ROOT / "examples" / "simultaneous-gan" / "simultaneous-gan.yaml"
    plan = compile_step(load(path))
    told = plan.explain("step_d").replace(str(path), path.name)
    assert "still reads" in told
    editor.write(path.name, path.read_text())
    assert told.strip().partition("\n")[2] in editor.hover(path.name, "step_d:", 1)


def test_hover_on_a_variable_or_a_constant_shows_how_it_is_written_and_what_it_comes_to(editor):
    text = FOLDED.replace("inputs: {x", 'vars: {half: 0.5, whole: "${= 2 * half}"}\ninputs: {x')
    text = text.replace("  y: {forward: net, inputs: x}", "  y: {use: part, inputs: x}").replace(
        "y * y", "y.out * ${whole}"
    )
    text = text.replace("mean(y,", "mean(y.out,") + (
        'blocks:\n  part: {inputs: seen, outputs: out, args: {rate: 3}, ops: {out: {expr: "net_out * ${rate}"}, '
        "net_out: {forward: net, inputs: seen}}}\n"
    )
    assert editor.check("variables.yaml", text) == []
    assert "`whole`: a variable, `${= 2 * half}`\n\nvalue: `1.0`" in editor.hover("variables.yaml", "${whole}", 4)
    assert "`half`: a variable, `0.5`" in editor.hover("variables.yaml", "2 * half", 6)
    assert "`rate`: a constant of the block `part`, `3`" in editor.hover("variables.yaml", "${rate}", 4)
    found = editor.define("variables.yaml", "${rate}", 4)
    assert found.range.start == editor.place("variables.yaml", "rate: 3")


def test_hover_says_when_an_update_fires(editor):
    editor.write("td3.yaml", (ROOT / "examples" / "td3" / "td3.yaml").read_text())
    assert "writes in steps 2, 4, 6, ..." in editor.hover("td3.yaml", "  step_actor: {", 4)


def test_nothing_is_said_of_a_comment_and_of_what_is_unknown(editor):
    assert editor.hover(NAME, "# SAC with", 3) == ""
    assert editor.hover(NAME, "0.005", 2) == ""


def test_hover_after_an_error_is_that_of_the_last_plan(editor):
    editor.check("later.yaml", SAC)
    editor.write("later.yaml", SAC.replace("{forward: critic_1, inputs: pair}", "{forward: critic_1, colour: red}"))
    assert "`q_2`: [batch, 1] float32" in editor.hover("later.yaml", "q_2: {", 1)


DEFINITIONS = {
    "a model": ("forward: critic_1", 10, "  critic_1: {", 2),
    "a value": ("concat(state, action)", 9, "inputs: {state", 9),
    "a value of a block": ("next.action)", 6, "      action: {expr", 6),
    "a use": ("next.action)", 1, "  next: {use", 2),
    "an output of an op of several": ("tanh(middle", 6, "[middle, raw]", 1),
    "a block": ("use: policy", 6, "  policy:", 2),
    "an input of a block": ("inputs: state}", 9, "inputs: [state, like]", 9),
    "a variable": ("${discount}", 4, "discount: 0.98", 0),
    "an op": (", after: step_critics", 10, "  step_critics: {", 2),
    "an output of the spec": ("step_alpha.loss, alpha", 17, "  alpha: {", 2),
    "itself": ("  goal: {", 3, "  goal: {", 2),
}


@pytest.mark.parametrize("case", DEFINITIONS.values(), ids=DEFINITIONS)
def test_definition(editor, case):
    words, after, declared, shift = case
    found = editor.define(NAME, words, after)
    assert found.uri == editor.uri(NAME)
    assert found.range.start == editor.place(NAME, declared, shift)


@pytest.mark.parametrize("word", ["critic_1", "goal", "log_alpha", "judged_2", "late_critic_2", "log_temperature"])
def test_references_are_all_places_of_the_word(editor, word):
    found = lines_of(editor.refer(NAME, f"  {word}: {{", 3))
    assert found == places_of(word)
    declared = lines_of([editor.define(NAME, f"  {word}: {{", 3)])
    others = lines_of(editor.refer(NAME, f"  {word}: {{", 3, declaration=False))
    assert sorted([*others, *declared]) == found


def test_references_of_a_variable_are_its_interpolations(editor):
    uses = [(line, column + 2) for line, column in places_of(r"\$\{lr\}")]
    assert len(uses) == 3
    assert lines_of(editor.refer(NAME, "lr: 3e-4", 1, declaration=False)) == uses


def test_a_word_has_as_many_meanings_as_there_are_scopes(editor):
    inside = lines_of(editor.refer(NAME, "inputs: state}", 10))
    outside = lines_of(editor.refer(NAME, "concat(state, action)", 9))
    assert {line for line, _ in inside} == {22, 25}
    assert set(inside).isdisjoint(outside)
    assert sorted([*inside, *outside]) == places_of("state")


def test_what_is_included_is_found_in_its_file(editor):
    shared = SAC[SAC.index("blocks:") : SAC.index("ops:\n  log_alpha")]
    (editor.folder / "shared.yaml").write_text(f"# shared\n{shared}")
    text = SAC.replace(shared, "include: [shared.yaml]\n")
    assert editor.check("including.yaml", text) == []
    found = editor.define("including.yaml", "next.action)", 6)
    assert found.uri == editor.uri("shared.yaml")
    line = (editor.folder / "shared.yaml").read_text().split("\n")[found.range.start.line]
    assert line[found.range.start.character :].startswith("action: {expr")
    assert editor.define("including.yaml", "[shared.yaml]", 3).uri == editor.uri("shared.yaml")
    assert {each.uri for each in editor.refer("including.yaml", "update: actor", 9)} == {
        editor.uri("including.yaml"), editor.uri("shared.yaml")}  # fmt: skip
    for words, after in (("next.action)", 6), ("use: policy", 6), ("update: actor", 9)):
        with pytest.raises(JsonRpcException, match=r"shared\.yaml"):
            editor.rename("including.yaml", words, "another", after)


def test_rename_changes_expressions_blocks_and_variables_but_no_comment(editor):
    text = editor.rename(NAME, "critic_1:", "first_critic")
    assert places_of("critic_1", text) == []
    assert len(places_of("first_critic", text)) == len(places_of("critic_1"))
    text = editor.rename(NAME, "next.log_p)", "likelihood", 6)
    assert text.count("likelihood") == len(re.findall(r"\blog_p\b", SAC))
    assert "stop(now.likelihood + ${entropy})" in text
    text = editor.rename(NAME, "discount: 0.98", "gamma")
    assert "gamma: 0.98" in text
    assert "reward + ${gamma} * (1 - done)" in text
    assert "# SAC with a learned temperature" in text


def test_a_name_that_cannot_be_given_is_refused(editor):
    refused = {
        "pair": "there is a 'pair' already", "class": "'class' is not a name", "a-b": "is not a name",
        "told": "already in the block 'policy'", "pi": "is not a name",
    }  # fmt: skip
    for name, why in refused.items():
        with pytest.raises(JsonRpcException, match=re.escape(why)):
            editor.rename(NAME, "goal: {", name, 1)
    with pytest.raises(JsonRpcException, match="no name here"):
        editor.prepare_rename(NAME, "forward: critic_1", 2)
    found = editor.prepare_rename(NAME, "forward: critic_1", 10)
    assert (found.placeholder, editor.read(NAME, found.range)) == ("critic_1", "critic_1")
    editor.write("wrong.yaml", SAC.replace(", after: step_critics}", ", after: step_critic}", 1))
    with pytest.raises(JsonRpcException, match="has errors"):
        editor.rename("wrong.yaml", "goal: {", "aim", 1)


def test_a_name_that_a_variable_spells_is_refused(editor):
    text = SAC.replace("vars: {", "vars: {chosen_model: critic_1, ").replace(
        "q_1: {forward: critic_1", 'q_1: {forward: "${chosen_model}"'
    )
    assert editor.check("spelled.yaml", text) == []
    with pytest.raises(JsonRpcException, match="through a variable"):
        editor.rename("spelled.yaml", "  critic_1: {", "other", 3)


FOLDED = """graphspec: 1
name: folded
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
ops:
  y: {forward: net, inputs: x}
  goal:
    expr: >
      y * y
      + mean(y,
      axis=1, keepdims=True)
  learn: {update: net, loss: "mean(goal)"}
"""


def test_rename_reaches_expressions_over_several_lines(editor):
    assert editor.check("folded.yaml", FOLDED) == []
    text = editor.rename("folded.yaml", "  y: {", "why", 2)
    assert "      why * why\n      + mean(why,\n" in text


def test_rename_in_json_keeps_the_quotes(editor):
    text = json.dumps(load(FOLDED).model_dump(mode="json", include={"graphspec", "name"}))
    text = text[:-1] + ', "models": {"net": {"layers": [{"linear": 2}], "optimizer": "sgd"}},\n'
    text += '"inputs": {"x": {"shape": ["batch", 2]}},\n'
    text += '"ops": {"y": {"forward": "net", "inputs": "x"}, "u": {"update": "net", "loss": "mean(y)"}}}\n'
    assert editor.check("spec.json", text) == []
    renamed = editor.rename("spec.json", '"y"', "why", 1)
    assert renamed == text.replace('"y"', '"why"').replace("mean(y)", "mean(why)")


def test_an_escape_inside_of_an_expression_is_refused(editor):
    text = FOLDED.replace('"mean(goal)"', '"mean(go\\x61l)"')
    assert editor.check("escape.yaml", text) == []
    with pytest.raises(JsonRpcException, match="through a variable or an escape"):
        editor.rename("escape.yaml", "  goal:", "aim", 3)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "stride"),
    [("gan-digits/gan-digits.yaml", 1), ("sac/sac.yaml", 1), ("stylegan2-lazy/stylegan2-lazy.yaml", 3)],
)
def test_a_plan_with_another_name_is_the_same_plan(name, stride):
    path = ROOT / "examples" / name
    snapshot = Snapshot(path=path, text=path.read_text(), opened={})
    told = snapshot.checked.plan.text()
    refused, tried = [], dict([*snapshot.names.declared.items()][::stride])
    for symbol, declared in tried.items():
        span = declared.span
        at = snapshot.source.offset(span.line, span.column)
        try:
            places = rename(snapshot, at, "quite_new")
        except RenameError:
            refused.append(symbol)
            continue
        changed = Snapshot(path=path, text=write(snapshot, places, "quite_new"), opened={})
        after = re.sub(r"\bquite_new\b", symbol.name, changed.checked.plan.text())
        assert strip(after) == strip(told), symbol
    # Roles are words of the language, and the bundled data gives inputs by their names.
    given = {symbol.name for symbol in refused if symbol.space != "data"}
    inputs = {*snapshot.checked.plan.spec.inputs}.intersection(symbol.name for symbol in tried)
    assert given == (inputs if "source: digits" in snapshot.text else set())


def strip(plan):
    """Return a plan without what follows from the length of names: columns of places, and alignment."""
    return re.sub(r":\d+\)", ")", re.sub(r"[ ]+", " ", plan))


def test_the_outline_has_sections_with_names_and_blocks_with_ops(editor):
    found = {each.name: each for each in editor.outline(NAME)}
    assert [*found] == ["vars", "inputs", "models", "blocks", "ops", "data"]
    assert [each.name for each in found["models"].children] == [
        "actor", "critic_1", "critic_2", "late_critic_1", "late_critic_2", "log_temperature"]  # fmt: skip
    (block,) = found["blocks"].children
    assert [each.name for each in block.children] == ["told", "halves", "log_spread", "noise", "action", "log_p"]
    for section in found.values():
        for each in section.children:
            assert editor.read(NAME, each.selection_range) == each.name
            assert contains(section.range, each.range)
            assert contains(each.range, each.selection_range)


def contains(outer: types.Range, inner: types.Range) -> bool:
    places = [(each.line, each.character) for each in (outer.start, inner.start, inner.end, outer.end)]
    return places == sorted(places)
