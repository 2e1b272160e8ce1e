"""Documents: plain data by the rules of YAML 1.2 and JSON, and the place of every key and value."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphspec.read.source import read_document

# A document prints the same in YAML and JSON when texts hold no control characters.
TEXTS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"), exclude_characters="\ufeff\ufffe\uffff"))
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
DATA = st.recursive(SCALARS | TEXTS, lambda item: st.lists(item, max_size=4) | st.dictionaries(TEXTS, item, max_size=4))
DOCUMENTS = st.dictionaries(TEXTS, DATA, min_size=1, max_size=4)


def cut(text, span):
    """Return what a span covers, counted in lines and columns alone."""
    lines = text.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    return "\n".join([lines[0][span.column - 1 :], *lines[1:]])


# The table of the core schema, YAML 1.2.2 section 10.3.2 and its examples.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None), ("Null", None), ("NULL", None), ("~", None), ("", None),
        ("true", True), ("True", True), ("TRUE", True), ("false", False), ("False", False), ("FALSE", False),
        ("0", 0), ("-19", -19), ("+12", 12), ("0o7", 7), ("0o17", 15), ("0x3A", 58), ("0x1F", 31), ("0777", 777),
        ("0.", 0.0), ("-0.0", -0.0), (".5", 0.5), ("+12e03", 12000.0), ("-2E+05", -200000.0), ("1e-3", 0.001),
        (".inf", math.inf), ("-.Inf", -math.inf), ("+.INF", math.inf), ("2.0e-4", 2e-4),
        ("18446744073709551615", 2**64 - 1), ("-9223372036854775808", -(2**63)),
    ],
)  # fmt: skip
def test_a_plain_scalar_has_the_type_of_the_core_schema(text, value):
    found = read_document(f"key: {text}\n").data["key"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "on",
        "yes",
        "off",
        "y",
        "nan",
        "inf",
        "tRUE",
        "1_000",
        "0b11",
        "0o8",
        "1:30",
        "2024-01-01",
        "1e",
        "-x",
        "+.inf.",
        "0x",
    ],
)
def test_what_the_core_schema_does_not_name_is_a_string(text):
    assert read_document(f"key: {text}\n").data == {"key": text}


def test_not_a_number_is_a_float():
    assert math.isnan(read_document("key: .nan\n").data["key"])


@pytest.mark.parametrize("text", ["'1'", '"1"', "|-\n  1", ">-\n  1"])
def test_a_scalar_in_any_quotes_is_a_string(text):
    assert read_document(f"key: {text}\n").data == {"key": "1"}


def test_a_scalar_anchor_repeats_its_typed_value():
    document = read_document("a: &x 1e-3\nb: *x\nc: &x two\n*x : *x\n")
    assert document.data == {"a": 0.001, "b": 0.001, "c": "two", "two": "two"}
    assert document.value_span(("b",)).place == "<text>:2:4"


def test_whole_numbers_are_keys_by_their_digits_as_in_json():
    assert read_document("1: a\n0x10: b\n'2': c\n").data == {"1": "a", "16": "b", "2": "c"}


def test_a_quoted_merge_key_is_a_key():
    assert read_document("'<<': 1\n").data == {"<<": 1}


def test_places_of_a_block_document():
    text = (
        "models:\n  generator:\n    args: {n: 32, sizes: [1, 22]}\n  other:\n    - a b\n    - |\n      t\n\nlast: 'x'"
    )
    document = read_document(text, name="gan.yaml")
    parts = {path: cut(text, document.value_span(path)) for path in document.places}
    assert parts[("models", "generator", "args")] == "{n: 32, sizes: [1, 22]}"
    assert parts[("models", "generator", "args", "sizes", 1)] == "22"
    assert parts[("models", "other")] == "- a b\n    - |\n      t"
    assert parts[("models", "other", 0)] == "a b"
    assert parts[("last",)] == "'x'"
    assert document.key_span(("models", "generator")).place == "gan.yaml:2:3"


def test_a_path_that_is_absent_has_the_place_of_the_nearest_that_is_not():
    document = read_document("a:\n  b: {c: 1}\n")
    assert document.value_span(("a", "b", "x", 3)) == document.value_span(("a", "b"))
    assert document.key_span(("a", "b", "x", 3)) == document.key_span(("a", "b"))
    assert document.key_span(("x",)) == document.value_span(())


def test_a_value_that_is_not_written_has_a_place_after_its_colon():
    document = read_document("a:\nb: 1\n")
    assert document.data == {"a": None, "b": 1}
    assert document.value_span(("a",)).place == "<text>:1:3"


def test_columns_are_counted_in_characters():
    document = read_document('"日本é": {"\U0001d4b3": "e\u0301", b: [\U0001d4b3, 2]}\n')
    assert document.key_span(("日本é", "b")).column == 1 + len('"日本é": {"\U0001d4b3": "e\u0301", ')
    assert document.value_span(("日本é", "b", 1)).column == 1 + len(
        '"日本é": {"\U0001d4b3": "e\u0301", b: [\U0001d4b3, '
    )


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_lines_are_counted_the_same_for_every_line_break(line_break):
    document = read_document(line_break.join(["# first", "a:", "  - 1", "  - {b: 2}", ""]))
    assert document.data == {"a": [1, {"b": 2}]}
    assert document.value_span(("a", 1, "b")).place == "<text>:4:9"


def test_breaks_that_editors_do_not_know_do_not_shift_lines():
    document = read_document('a: "x\u2028y"\nb: 1\n')
    assert document.value_span(("b",)).place == "<text>:2:4"


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_a_byte_order_mark_is_no_column(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b'\xef\xbb\xbf{"a": [1]}\r\n')
    document = read_document(path)
    assert document.data == {"a": [1]}
    assert document.key_span(("a",)).column == 2


@settings(max_examples=150)
@given(data=DOCUMENTS, indent=st.sampled_from([None, 1, 3]))
def test_json_is_read_as_the_standard_library_reads_it(data, indent):
    text = json.dumps(data, ensure_ascii=False, indent=indent)
    document = read_document(text, name="a.json")
    assert repr(document.data) == repr(json.loads(text))


@settings(max_examples=150)
@given(data=DOCUMENTS, indent=st.sampled_from([None, 1, 3]), name=st.sampled_from(["a.json", "a.yaml"]))
def test_every_place_covers_what_is_there(data, indent, name):
    text = json.dumps(data, ensure_ascii=False, indent=indent)
    document = read_document(text, name=name)
    for path, place in document.places.items():
        value = document.data
        for part in path:
            value = value[part]
        assert json.loads(cut(text, place.value)) == value
        assert place.key is None or json.loads(cut(text, place.key)) == path[-1]


@settings(max_examples=100)
@given(data=DOCUMENTS)
def test_yaml_reads_what_json_reads(data):
    text = json.dumps(data, ensure_ascii=False)
    assert repr(read_document(text).data) == repr(read_document(text, name="a.json").data)


def test_numbers_of_yaml_and_json_may_be_written_in_the_same_ways():
    text = '{"a": [0, -0, 1.0, 1e3, 1E-3, 12.5e+2]}'
    assert repr(read_document(text, name="a.json").data) == repr({"a": [0, 0, 1.0, 1e3, 1e-3, 1250.0]})
