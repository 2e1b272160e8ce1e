"""What is wrong with the text of a document: every problem with its code and its place, at once where that can be."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphspec.diagnostics import SpecError
from graphspec.read.source import read_document


def find_problems(text, name="g.yaml"):
    """Return code and place of every problem of a text."""
    with pytest.raises(SpecError, match=r"^error\[") as raised:
        read_document(text, name=name)
    return [(item.code, item.span.place.removeprefix(f"{name}:")) for item in raised.value.diagnostics]


def find_message(text, name="g.yaml"):
    with pytest.raises(SpecError, match=r"^error\[") as raised:
        read_document(text, name=name)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("", "GS001", "1:1"), ("# only a comment\n", "GS001", "1:1"), ("---\n", "GS001", "1:1"),
        ("~\n", "GS001", "1:1"),
        ("a: \x1b[31m\n", "GS002", "1:4"), ("a: 1\nb: \x00", "GS002", "2:4"), ("a: \ud800", "GS002", "1:4"),
        ("a:\n\tb: 1\n", "GS003", "2:1"), ("\ta: 1\n", "GS003", "1:1"), ("a:\n  b: 1\n  \tc: 2\n", "GS003", "3:3"),
        ("a: b\n\tc\n", "GS003", "2:1"), ("a:\r\n\tb: 1\r\n", "GS003", "2:1"),
        ("a: b: c\n", "GS004", "1:5"), ("a: @b\n", "GS004", "1:4"), ("a: 1\nb\nc: 2\n", "GS004", "2:1"),
        ("a:\n  b: 1\n c: 2\n", "GS004", "3:2"), ("a: 'b\n", "GS004", "1:4"), ("a: [1, 2\n", "GS004", "1:4"),
        ("{a: {b: 1}\n", "GS004", "1:1"), ("a: [1, 2\nb: 3\n", "GS004", "2:2"), ("{a: 1}}\n", "GS004", "1:7"),
        ("%YAML 1.1\n---\na: 1\n", "GS004", "1:1"), ("a: *\n", "GS004", "1:5"), ('a: "\\ud800"\n', "GS004", "1:7"),
        ("a: 1\nb: 2\na: 3\n", "GS005", "3:1"), ("{a: 1, 'a': 2}", "GS005", "1:8"), ("1: a\n'1': b\n", "GS005", "2:1"),
        ("a: !eval b\n", "GS006", "1:4"), ("a: !!python/name:os.system x\n", "GS006", "1:4"),
        ("a: &x !b 1\n", "GS006", "1:7"),
        ("a: !b [1]\n", "GS006", "1:4"), ("a: {b: !eval}\n", "GS006", "1:8"), ("a: {b: !eval, c: 1}\n", "GS006", "1:8"),
        ("a: [!eval]\n", "GS006", "1:5"), ("a: {b: !!}", "GS006", "1:8"), ("a: !e!x y\n", "GS006", "1:4"),
        ("a: ! b\n", "GS006", "1:4"),
        ("a: &x [1]\n", "GS007", "1:4"), ("&x\na: 1\n", "GS007", "1:1"),
        ("a: {<<: {b: 1}}\n", "GS009", "1:5"),
        ("a: {1.5: b}\n", "GS010", "1:5"), ("? [a, b]\n: 1\n", "GS010", "1:3"), ("{a: 1}: 2\n", "GS010", "1:1"),
        ("~: 1\n", "GS010", "1:1"), ("true: 1\n", "GS010", "1:1"), ("a: {{b}}\n", "GS010", "1:5"),
        ("a: 1\n---\nb: 2\n", "GS011", "2:1"),
        ("a: *x\nb: &x 1\n", "GS015", "1:4"), ("a: [*x]", "GS015", "1:5"),
        ("a: 18446744073709551616\n", "GS019", "1:4"), ("a: -9223372036854775809\n", "GS019", "1:4"),
        ("a: 1e999\n", "GS019", "1:4"), (f"a: {'9' * 5000}\n", "GS019", "1:4"), (f"a: 0x{'f' * 17}\n", "GS019", "1:4"),
    ],
)  # fmt: skip
def test_a_problem_of_a_yaml_text_has_its_code_and_place(text, code, place):
    assert find_problems(text) == [(code, place)]


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("", "GS001", "1:1"), ("null", "GS001", "1:1"), (" \n", "GS001", "1:1"),
        ('{"a": 1, "a": 2}', "GS005", "1:10"), ('{"a": {"b": 1, "c": 2, "b": 3}}', "GS005", "1:24"),
        ("[1e999]", "GS019", "1:2"), (f"[{'9' * 5000}]", "GS019", "1:2"),
        ("[1,]", "GS020", "1:3"), ('{"a": 1,\n}', "GS020", "1:8"), ("[,1]", "GS020", "1:2"), ("[1,,2]", "GS020", "1:4"),
        ("{,}", "GS020", "1:2"), ("// c\n{}", "GS020", "1:1"), ("{/* c */}", "GS020", "1:2"),
        ("[1 # c\n]", "GS020", "1:4"),
        ("[NaN]", "GS020", "1:2"), ("[-Infinity]", "GS020", "1:2"), ("[True]", "GS020", "1:2"),
        ("[None]", "GS020", "1:2"),
        ("[01]", "GS020", "1:2"), ("[+1]", "GS020", "1:2"), ("[.5]", "GS020", "1:2"), ("[1.]", "GS020", "1:2"),
        ("[1_000]", "GS020", "1:2"), ("[0x10]", "GS020", "1:2"), ("{a: 1}", "GS020", "1:2"),
        ("{'a': 1}", "GS020", "1:2"),
        ('{"a" 1}', "GS020", "1:6"), ('{"a": 1 "b": 2}', "GS020", "1:9"), ("[1 2]", "GS020", "1:4"),
        ("[1}", "GS020", "1:3"),
        ('{"a": 1} 2', "GS020", "1:10"), ('{"a', "GS020", "1:2"), ("[1, [2", "GS020", "1:5"), ('{"a":', "GS020", "1:1"),
        ('["a\nb"]', "GS020", "1:4"), ('["\\x"]', "GS020", "1:3"), ('["\\ud800"]', "GS020", "1:2"),
        ("]", "GS020", "1:1"),
        ('["\\ud83d\\u0041"]', "GS020", "1:2"),
    ],
)  # fmt: skip
def test_a_problem_of_a_json_text_has_its_code_and_place(text, code, place):
    assert find_problems(text, "g.json") == [(code, place)]


def test_all_problems_that_let_reading_go_on_are_told_at_once():
    text = "a: 1\na: 2\nb: !e x\nc: &c [1]\nd: *c\n<<: {q: 1}\n1.5: {e: 1, e: 2}\nf: *n\ng: 1e999\n? {x: 1}\n: 2\n@\n"
    codes = [code for code, _ in find_problems(text)]
    assert codes == ["GS005", "GS006", "GS007", "GS008", "GS009", "GS010", "GS005", "GS015", "GS019", "GS010", "GS004"]


def test_both_places_of_a_duplicate_key_are_told():
    assert re.search(r"g\.yaml:3:3[\s\S]*first given at g\.yaml:2:3", find_message("ops:\n  a: 1\n  a: 2\n"))


def test_a_tag_without_quotes_is_told_to_be_quoted():
    assert 'a text that begins with `!` needs quotes: "!eval"' in find_message("mode: !eval\n")


def test_an_alias_like_an_anchor_gets_a_suggestion():
    assert "did you mean '*width'?" in find_message("a: &width 1\nb: *widht\n")


def test_a_bracket_that_is_not_closed_is_shown_where_it_opens():
    assert "it starts at g.yaml:1:4" in find_message("a: [1, 2\nb: 3\n")


@pytest.mark.parametrize("size", [3, 40])
def test_a_bomb_of_aliases_is_refused_without_being_expanded(size):
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, size))]
    codes = Counter(code for code, _ in find_problems("\n".join(lines)))
    assert codes == {"GS007": size, "GS008": size - 1}


def test_reading_stops_when_there_are_very_many_problems():
    with pytest.raises(SpecError, match="reading stopped after 100 problems") as raised:
        read_document("".join(f"a{i}: !tag x\n" for i in range(1000)))
    assert len(raised.value.diagnostics) == 100


def read_or_fail(source, **options):
    """Return the document and the error of a source, one of which is None."""
    try:
        return read_document(source, **options), None
    except SpecError as error:
        return None, error


@settings(max_examples=300)
@given(
    text=st.text(alphabet=st.sampled_from("ab1 \n\t:-,[]{}&*!|>'\"%@#?~.e<\u2028é"), max_size=40),
    name=st.sampled_from(["g.yaml", "g.json"]),
)
def test_any_text_is_a_document_or_gives_diagnostics_with_places_in_it(text, name):
    document, error = read_or_fail(text, name=name)
    lines = text.split("\n")
    places = [item.span for item in error.diagnostics] if error else [place.value for place in document.places.values()]
    assert places
    assert all(1 <= span.line <= span.end_line <= len(lines) for span in places)
    assert all(1 <= span.column <= len(lines[span.line - 1]) + 1 for span in places)
    assert error is None or str(error).startswith("error[GS0")


@settings(max_examples=200)
@given(content=st.binary(max_size=60))
def test_any_bytes_are_a_document_or_give_diagnostics(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("bytes") / "g.yaml"
    path.write_bytes(content)
    document, error = read_or_fail(path)
    assert document is not None or str(error).startswith("error[GS0")
