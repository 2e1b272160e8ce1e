"""Diagnostics as users see them: the excerpt, the caret, the order, the count."""

from __future__ import annotations

import re
import unicodedata

import pytest

from graphspec.diagnostics import Diagnostic, Span, SpecError, render
from graphspec.words import closest

GAN = "ops:\n" * 20 + "  step_d: {update: disc, loss: d_loss}\n"


def span(line, column, end_column, *, end_line=None, file="gan.yaml"):
    return Span(file=file, line=line, column=column, end_line=end_line or line, end_column=end_column)


def draw(line, column, end_column, **fields):
    """Return the source line and the line of carets that are drawn for a text of one line."""
    diagnostic = Diagnostic(code="GS001", message="m", span=span(1, column, end_column), **fields)
    lines = render([diagnostic], {"gan.yaml": line}).split("\n")
    return lines[3].removeprefix("1 | "), lines[4].removeprefix("  | ")


def width(text):
    """Return the columns a terminal gives to a text."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def test_a_diagnostic_looks_like_the_one_in_the_design():
    diagnostic = Diagnostic(
        code="GS014",
        message="op 'step_d' updates model 'disc', which is not declared",
        span=span(21, 20, 24),
        label="did you mean 'discriminator' (line 8)?",
        help="declare it under `models:` or fix the name",
    )
    assert render([diagnostic], {"gan.yaml": GAN}) == (
        "error[GS014]: op 'step_d' updates model 'disc', which is not declared\n"
        "  --> gan.yaml:21:20\n"
        "   |\n"
        "21 |   step_d: {update: disc, loss: d_loss}\n"
        "   |                    ^^^^ did you mean 'discriminator' (line 8)?\n"
        "   = help: declare it under `models:` or fix the name; see docs/errors/GS014.md\n"
        "\n"
        "1 error, 0 warnings"
    )


def test_notes_stand_between_the_excerpt_and_the_help():
    diagnostic = Diagnostic(code="W-DEAD", message="m", severity="warning", notes=("one", "two\nlines"), help="h")
    expected = (
        "warning[W-DEAD]: m\n  = note: one\n  = note: two\n          lines\n  = help: h; see docs/errors/W-DEAD.md"
    )
    assert render([diagnostic], {}) == f"{expected}\n\n0 errors, 1 warning"


def test_diagnostics_are_sorted_by_place_and_code():
    places = [span(2, 1, 2), span(10, 1, 2), span(2, 1, 2), None, span(1, 9, 10, file="b.yaml"), span(1, 9, 10)]
    codes = ["GS003", "GS004", "GS001", "GS009", "GS000", "GS002"]
    given = [Diagnostic(code=code, message="m", span=place) for code, place in zip(codes, places, strict=True)]
    error = SpecError(reversed(given), {})
    assert [item.code for item in error.diagnostics] == ["GS009", "GS000", "GS002", "GS001", "GS003", "GS004"]
    assert re.findall(r"GS\d+(?=\])", str(error)) == ["GS009", "GS000", "GS002", "GS001", "GS003", "GS004"]
    assert str(error).endswith("\n\n6 errors, 0 warnings")


def test_without_the_text_of_its_file_a_diagnostic_is_shown_without_excerpt():
    text = render([Diagnostic(code="GS012", message="m", span=span(3, 1, 1))], {"other.yaml": "x"})
    assert text.split("\n")[:3] == ["error[GS012]: m", " --> gan.yaml:3:1", "  = help: see docs/errors/GS012.md"]


@pytest.mark.parametrize(
    ("line", "column", "end_column"),
    [
        ("a: bcd", 4, 7), ("a:\tbcd", 4, 7), ("日本: 語語x", 5, 8), ("e\u0301: x", 5, 6), ("a: \x1b[31mx", 4, 5),
        ("\u202ea: b", 5, 6), ("a", 2, 2), ("", 1, 1), ("ab", 1, 3),
    ],
)  # fmt: skip
def test_carets_stand_below_the_characters_they_mark(line, column, end_column):
    shown, carets = draw(line, column, end_column)
    prefix, _ = draw(line[: column - 1], 1, 1)
    marked, _ = draw(line[column - 1 : end_column - 1], 1, 1)
    prefix, marked = (text if text != "1 |" else "" for text in (prefix, marked))
    assert shown.startswith(prefix + marked) or not line
    assert carets == " " * width(prefix) + "^" * max(1, width(marked))


@pytest.mark.parametrize("text", ["\x1b[2J", "\u202e", "\x9b31m", "\u2028", "\ud800", "\x7f"])
def test_nothing_of_a_document_controls_the_terminal(text):
    place = span(1, 1, 4, file=f"a{text}.yaml")
    diagnostic = Diagnostic(code="GS001", message=text, span=place, label=text, notes=(text,), help=text)
    rendered = render([diagnostic], {place.file: f"{text}: 1"})
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl") for c in rendered.replace("\n", ""))


@pytest.mark.parametrize("column", [1, 100, 5_000, 9_990])
@pytest.mark.parametrize("letter", ["a", "語"])
def test_a_long_line_is_clipped_around_the_caret(column, letter):
    line = letter * (column - 1) + "HERE" + letter * (10_000 - column)
    shown, carets = draw(line, column, column + 4)
    assert width(shown) <= 162
    assert width(shown[: shown.index("HERE")]) == len(carets) - len(carets.lstrip())
    assert carets.strip() == "^^^^"
    assert shown.endswith("…") == (column < 9_990)
    assert shown.startswith("…") == (column > 1)


def test_carets_for_a_long_value_end_where_the_line_is_clipped():
    shown, carets = draw("a: " + "x" * 1000, 4, 1004)
    assert len(carets) < len(shown) <= 162


def test_a_value_over_several_lines_is_marked_to_the_end_of_its_first():
    place = span(1, 4, 2, end_line=3)
    text = render([Diagnostic(code="GS001", message="m", span=place)], {"gan.yaml": "a: [1,\n2,\n]"})
    assert "1 | a: [1,\n  |    ^^^\n" in text


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_lines_are_those_of_an_editor(line_break):
    text = line_break.join(["one", "two\u2028still", "three"])
    assert "3 | three\n" in render([Diagnostic(code="GS001", message="m", span=span(3, 1, 2))], {"gan.yaml": text})


def test_colours_change_nothing_but_colours():
    diagnostics = [
        Diagnostic(code="GS001", message="m", span=span(1, 1, 2), label="l", notes=("n",), help="h"),
        Diagnostic(code="W-DEAD", message="w", severity="warning"),
    ]
    colored = render(diagnostics, {"gan.yaml": "ab"}, color=True)
    assert "\x1b[1;31merror[GS001]\x1b[0m" in colored
    assert "\x1b[1;33mwarning[W-DEAD]\x1b[0m" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == render(diagnostics, {"gan.yaml": "ab"})


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("disc", ["generator", "discriminator"], ("discriminator",)),
        ("optimzer", ["optimizer", "outputs", "ops"], ("optimizer",)),
        ("BCEWithLogits", ["bce", "bce_with_logits", "mse"], ("bce_with_logits", "bce")),
        ("xyz", ["generator", "discriminator"], ()),
        ("ab", ["abc", "abd", "abe", "abf"], ("abc", "abd", "abe")),
        ("", ["a"], ()),
        ("learning_rate", ["lr", "betas", "eps"], ("lr",)),
        ("clipnorm", ["value", "agc", "norm"], ("norm",)),
    ],
)
def test_suggestions_are_the_names_most_alike(name, candidates, expected):
    assert closest(name, candidates) == expected


def test_suggestions_come_from_names_that_are_given_twice_only_once():
    assert closest("adan", iter(["adam", "adam", "adamw"]), 2) == ("adam", "adamw")
