"""Overrides: typed, only where the document has a place for them, and with places of their own."""

from __future__ import annotations

import pytest

from graphspec.diagnostics import SpecError
from graphspec.read.interpolation import interpolate
from graphspec.read.overrides import override
from graphspec.read.source import read_document

SPEC = """\
vars: {latent: 32, lr: 2.0e-4}
models:
  generator: {layers: [{linear: 8}], args: {latent: 16}, optimizer: adam}
outputs: [d_loss, g_loss]
"""


@pytest.fixture
def document():
    return read_document(SPEC, name="gan.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("64", 64), ("no", "no"), ("true", True), ("~", None), ("", None), (" 5 ", 5),
        ("zoo.gan:G", "zoo.gan:G"),
        ("'64'", "64"), ('"a\\tb"', "a\tb"), ("[1, x, {a: 2}]", [1, "x", {"a": 2}]), ("{a: [1]}", {"a": [1]}),
        ("[]", []),
        ("!eval", "!eval"), ("a: b", "a: b"), ("a=b", "a=b"), ("# x", "# x"), ("*x", "*x"), ("- x", "- x"),
        ("日本", "日本"),
    ],
)  # fmt: skip
def test_a_value_is_typed_like_a_plain_scalar_or_a_flow_collection(document, text, value):
    found = override(document, [f"models.generator.args.latent={text}"]).data["models"]["generator"]["args"]["latent"]
    assert (found, type(found)) == (value, type(value))


def test_only_the_value_that_is_named_changes_and_the_document_given_does_not(document):
    changed = override(document, ["outputs.1=x", "vars.lr=1", "models.generator.layers.0.linear=9"])
    assert changed.data == {
        "vars": {"latent": 32, "lr": 1},
        "models": {"generator": {"layers": [{"linear": 9}], "args": {"latent": 16}, "optimizer": "adam"}},
        "outputs": ["d_loss", "x"],
    }
    assert document.data == read_document(SPEC).data


def test_the_last_of_two_assignments_wins_and_later_ones_see_earlier_ones(document):
    changed = override(
        document,
        ["models.generator.optimizer={name: sgd}", "models.generator.optimizer.lr=1", "vars.lr=1", "vars.lr=2"],
    )
    assert changed.data["models"]["generator"]["optimizer"] == {"name": "sgd", "lr": 1}
    assert changed.data["vars"]["lr"] == 2


def test_a_new_last_key_is_added_where_there_is_a_mapping(document):
    changed = override(document, ["models.generator.args.width=3", "seed=4"])
    assert changed.data["models"]["generator"]["args"] == {"latent": 16, "width": 3}
    assert list(changed.data) == ["vars", "models", "outputs", "seed"]


def test_a_value_that_was_put_there_has_its_place_in_the_assignment(document):
    assignment = "models.generator.args={a: [1, 22]}"
    changed = override(document, [assignment])
    file = f"-s {assignment}"
    span = changed.value_span(("models", "generator", "args", "a", 1))
    assert (span.place, span.end_column) == (f"{file}:1:{assignment.index('22') + 1}", assignment.index("22") + 3)
    assert changed.key_span(("models", "generator", "args", "a")).place == f"{file}:1:{assignment.index('a:') + 1}"
    assert changed.texts == {"gan.yaml": SPEC, file: assignment}


def test_the_key_of_a_changed_value_stays_in_the_document_and_that_of_a_new_one_does_not(document):
    changed = override(document, ["vars.lr=1", "models.generator.bufers=copy"])
    assert changed.key_span(("vars", "lr")).place == "gan.yaml:1:20"
    assert changed.key_span(("models", "generator", "bufers")).place == "-s models.generator.bufers=copy:1:18"


def test_places_of_what_was_replaced_are_gone_and_others_stay(document):
    changed = override(document, ["models.generator.args=3"])
    assert ("models", "generator", "args", "latent") not in changed.places
    assert changed.value_span(("outputs", 1)) == document.value_span(("outputs", 1))
    assert set(document.places) - set(changed.places) == {("models", "generator", "args", "latent")}
    assert len(changed.places) == len(document.places) - 1


def test_an_override_may_be_an_interpolation(document):
    changed = interpolate(override(document, ["models.generator.args.latent=${latent}"]))
    assert changed.data["models"]["generator"]["args"]["latent"] == 32


def test_a_wrong_interpolation_in_an_override_is_shown_in_it(document):
    with pytest.raises(
        SpecError, match=r"--> -s vars\.lr=\$\{ltent\}:1:9\n  \|\n1 \| vars\.lr=\$\{ltent\}\n  \| {9}\^{8} did"
    ):
        interpolate(override(document, ["vars.lr=${ltent}"]))


@pytest.mark.parametrize(
    ("assignment", "code", "column"),
    [
        ("vars.lrr=1", "GS037", 6), ("model.generator=1", "GS037", 1), ("models.gen.args.latent=1", "GS037", 8),
        ("vars.a.b=1", "GS037", 6),
        ("vars.lr.x=1", "GS038", 9), ("models.generator.optimizer.lr=1", "GS038", 28), ("outputs.2=x", "GS038", 9),
        ("outputs.-1=x", "GS038", 9), ("outputs.x=x", "GS038", 9), (f"outputs.{'9' * 5000}=x", "GS038", 9),
        ("vars.lr", "GS036", 1), ("=1", "GS036", 1), ("", "GS036", 1), ("vars..lr=1", "GS036", 1),
        ("vars. lr=1", "GS036", 1), (".=1", "GS036", 1),
        ("vars.lr=99999999999999999999", "GS019", 9), ("vars.lr= 1e999", "GS019", 10), ("vars.lr=[1e999]", "GS019", 10),
        ("vars.lr=[1,", "GS004", 9), ("vars.lr={a: 1, a: 2}", "GS005", 16), ("vars.lr=[!b c]", "GS006", 10),
        ("vars.lr='a", "GS004", 9),
        ("vars.lr=" + "[" * 70, "GS014", 71), ("vars.lr=a\x1bb", "GS002", 10), ("vars.lr=\udcff", "GS002", 9),
    ],
)  # fmt: skip
def test_a_wrong_assignment_is_told_at_its_own_characters(document, assignment, code, column):
    with pytest.raises(SpecError, match=code) as raised:
        override(document, [assignment])
    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.code, diagnostic.span.column, diagnostic.span.file) == (code, column, f"-s {assignment}")
    assert raised.value.texts[f"-s {assignment}"] == assignment


def test_all_wrong_assignments_are_told_at_once(document):
    with pytest.raises(SpecError, match="3 errors") as raised:
        override(document, ["vars.lrr=1", "vars.lr=2", "outputs.7=x", "nothing"])
    assert {item.code for item in raised.value.diagnostics} == {"GS036", "GS037", "GS038"}


@pytest.mark.parametrize(
    ("assignment", "name"),
    [("vars.latnt=1", "latent"), ("models.generater.args.latent=1", "generator"), ("out.0=1", "outputs")],
)
def test_an_unknown_key_gets_a_suggestion(document, assignment, name):
    with pytest.raises(SpecError, match=rf"did you mean '{name}'\?"):
        override(document, [assignment])


def test_a_spec_without_variables_takes_none():
    with pytest.raises(SpecError, match="there is no 'vars' in the document"):
        override(read_document("a: 1"), ["vars.x=1"])
