"""Interpolation: typed where it stands alone, a text elsewhere, and never anything but a constant."""

from __future__ import annotations

import pytest

from graphspec.diagnostics import SpecError
from graphspec.limits import Limits
from graphspec.read.interpolation import interpolate
from graphspec.read.source import read_document


def fill(text, **options):
    return interpolate(read_document(text, name="g.yaml"), **options).data


def find_problems(text, **options):
    """Return code and exact place of every problem."""
    with pytest.raises(SpecError, match=r"^error\[GS03") as raised:
        fill(text, **options)
    spans = [(item.code, item.span) for item in raised.value.diagnostics]
    return [(code, f"{span.line}:{span.column}-{span.end_column}") for code, span in spans]


@pytest.mark.parametrize("value", ["32", "2.0e-4", "true", "null", "text", "'32'", "[1, 2]", "{a: {b: 1}}"])
def test_alone_an_interpolation_is_the_value_with_its_type(value):
    data = fill(f"vars: {{x: {value}}}\nuse: ['${{x}}']\n")
    assert repr(data["use"][0]) == repr(data["vars"]["x"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("32", "32"),
        ("0.5", "0.5"),
        ("true", "true"),
        ("~", "null"),
        ("abc", "abc"),
        (".inf", ".inf"),
        ("-.inf", "-.inf"),
    ],
)
def test_in_a_text_an_interpolation_is_spelled_as_yaml_spells_it(value, text):
    assert fill(f"vars: {{x: {value}}}\nuse: <${{x}}-${{x}}>\n")["use"] == f"<{text}-{text}>"


def test_variables_use_each_other_in_any_order():
    data = fill("vars: {c: 'w${b}', b: '${a}', a: 3, list: ['${a}', {k: '${c}'}]}\nuse: '${list}'\n")
    assert data["vars"] == {"c": "w3", "b": 3, "a": 3, "list": [3, {"k": "w3"}]}
    assert data["use"] == [3, {"k": "w3"}]


def test_every_use_has_a_value_of_its_own():
    data = fill("vars: {x: [1]}\na: '${x}'\nb: '${x}'\n")
    data["a"].append(2)
    assert (data["b"], data["vars"]["x"]) == ([1], [1])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$${x}", "${x}"),
        ("a$${x}b${x}", "a${x}b1"),
        ("$$${x}", "$${x}"),
        ("$x", "$x"),
        ("$", "$"),
        ("{x}", "{x}"),
        ("$${", "${"),
    ],
)
def test_a_doubled_dollar_stands_for_the_characters_themselves(text, value):
    assert fill(f"vars: {{x: 1}}\nuse: '{text}'\n")["use"] == value


def test_keys_are_left_as_they_are():
    assert fill("vars: {x: 1}\n'${x}': '${x}'\n'${y}': 2\n") == {"vars": {"x": 1}, "${x}": 1, "${y}": 2}


def test_places_stay_those_of_the_text():
    document = read_document("vars: {x: [1, 2]}\nuse: {a: '${x}'}\n")
    filled = interpolate(document)
    assert filled.value_span(("use", "a")) == document.value_span(("use", "a"))
    assert filled.value_span(("use", "a", 1)) == document.value_span(("use", "a"))


@pytest.mark.parametrize("text", ["a: 1", "[1, '$']", "vars:\na: 1", "just text ${x}"])
def test_a_document_without_interpolation_in_a_mapping_is_returned_as_it_is(text):
    document = read_document(text)
    assert interpolate(document) is document


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("vars: {latent: 1}\na: [b, 'x ${latnt} y']\n", [("GS030", "2:11-19")]),
        ("a: ${x}\n", [("GS030", "1:4-8")]),
        ("vars: {x: 1}\na: ${vars.x}\nb: ${env:HOME}\nc: '${x + 1}'\nd: '${}'\n",
         [("GS032", "2:4-13"), ("GS032", "3:4-15"), ("GS032", "4:5-13"), ("GS032", "5:5-8")]),
        ("vars: {x: 1}\na: '${x} ${x'\n", [("GS032", "2:10-13")]),
        ("vars: {a: '${b}', b: 'x${a}'}\n", [("GS031", "1:8-9")]),
        ("vars: {a: ['${a}']}\n", [("GS031", "1:8-9")]),
        ("vars: {l: [1], m: {}}\na: 'x${l}'\nb: '${m}${m}'\n", [("GS033", "2:6-10"), ("GS033", "3:5-9")]),
        ("vars: [x]\na: ${x}\n", [("GS034", "1:7-10")]),
        ('vars: {x: 1}\na: "\\x24{y}"\n', [("GS030", "2:4-13")]),
        ("a: |\n  one\n  two ${x}\n", [("GS030", "3:7-11")]),
    ],
)  # fmt: skip
def test_a_wrong_interpolation_is_told_at_its_own_characters(text, problems):
    assert find_problems(text) == problems


def test_an_unknown_variable_gets_a_suggestion():
    with pytest.raises(SpecError, match=r"no variable 'latnt'[\s\S]*did you mean 'latent'\?"):
        fill("vars: {latent: 1}\na: ${latnt}\n")


def test_a_cycle_is_told_from_the_variable_that_is_listed_first():
    with pytest.raises(SpecError, match="variables need each other: b -> d -> c -> b"):
        fill("vars: {a: 1, b: '${d}', c: '${b} ${a}', d: '${c}'}\n")


def test_a_cycle_does_not_hide_unknown_variables():
    assert find_problems("vars: {a: '${a}'}\nb: ${c}\n") == [("GS031", "1:8-9"), ("GS030", "2:4-8")]


@pytest.mark.parametrize(
    "template", ['"${{v{0}}}${{v{0}}}"', '["${{v{0}}}", "${{v{0}}}"]', '["${{v{0}}}"]', '{{a: "${{v{0}}}"}}']
)
def test_variables_that_repeat_variables_stay_within_the_limits(template):
    lines = ["vars:", "  v0: [x]" if "[" in template or "a:" in template else "  v0: x"]
    lines += [f"  v{i}: {template.format(i - 1)}" for i in range(1, 200)]
    assert [code for code, _ in find_problems("\n".join(lines), limits=Limits(bytes=10_000, nodes=10_000))] == ["GS035"]


def test_a_long_chain_of_variables_is_no_problem():
    lines = ["vars:", "  v0: 7", *(f"  v{i}: ${{v{i - 1}}}" for i in range(1, 20_000))]
    assert fill("\n".join(lines))["vars"]["v19999"] == 7
