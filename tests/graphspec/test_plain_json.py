"""JSON that is decoded in C means what the readers that go token by token find, with the same places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphspec.limits import Limits
from graphspec.read.builder import SourceText
from graphspec.read.json_reader import read_json, read_plain
from graphspec.read.source import read_document
from graphspec.read.yaml_reader import read_yaml

LIMITS = Limits()
SPECS = sorted(Path("examples").glob("*/*.yaml"))
TEXTS = {
    "empty collections": '{"a": {}, "b": [], "c": [{}, []]}',
    "numbers": '{"a": [0, -0, 1.50, 1e3, 2E-4, -7, 18446744073709551615], "b": 1.0}',
    "words": '{"a": null, "b": [true, false], "": "", "true": "null", "<<": "~", "1": "1"}',
    "spread out": ' \n{ "a" : 1 ,\r\n\n"b":[ 1 , {"c":2 } ]  }\n ',
    "close together": '{"a":{"b":[[1],[2,3]],"c":"d, e: {f} [g] # h"},"é":"ü"}',
}
UNCLEAR = {
    "a key twice": '{"a": 1, "a": 2}',
    "a comma too many": '{"a": 1,}',
    "a list": "[1]",
    "more text": '{"a": 1} {}',
    "a number without end": '{"a": NaN}',
    "a number too large": '{"a": 18446744073709551616}',
    "a float too large": '{"a": 1e999}',
    "half a pair": '{"a": "\\ud83d"}',
    "too deep": '{"a": ' + "[" * LIMITS.depth + "]" * LIMITS.depth + "}",
    "far too deep": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "nothing": "{}",
}
UNLIKE_YAML = {
    "a tab": '{\t"a": 1}',
    "an escape": '{"a": "\\u00e9"}',
    "a line separator": '{"a": "b\u2028c"}',
    "a colon on the next line": '{"a"\n: 1}',
    "a long key": '{"' + "a" * 1_100 + '": 1}',
}


def dump(path: Path, indent: int | None) -> str:
    return json.dumps(read_document(path).data, indent=indent, ensure_ascii=False)


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_spec_is_read_alike(path, indent):
    text = dump(path, indent)
    found = read_plain(text, LIMITS)
    careful = read_json(SourceText(file="a.json", content=text), LIMITS)
    assert found is not None
    assert (found.data, list(found.regions.items())) == (careful.data, list(careful.regions.items()))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_is_read_alike(text):
    source = SourceText(file="a", content=text)
    for found, read in ((read_plain(text, LIMITS), read_json), (read_plain(text, LIMITS, as_yaml=True), read_yaml)):
        if found is None:  # keys apart from their colons
            assert read is read_yaml
            assert '"a" :' in text
            continue
        careful = read(source, LIMITS)
        assert repr(found.data) == repr(careful.data)
        assert len(found.regions) == len(careful.regions)
        for path, region in reversed(careful.regions.items()):  # the innermost first: nothing around it is known yet
            assert found.regions[path] == region
        assert ("a", "nothing") not in found.regions
        assert ("nothing", 0) not in found.regions


@pytest.mark.parametrize("text", UNCLEAR.values(), ids=UNCLEAR)
def test_what_needs_a_closer_look_is_left(text):
    assert read_plain(text, LIMITS) is None


@pytest.mark.parametrize("text", UNLIKE_YAML.values(), ids=UNLIKE_YAML)
def test_what_yaml_may_read_otherwise_is_left(text):
    assert read_plain(text, LIMITS, as_yaml=True) is None


def test_a_document_with_too_many_nodes_is_left():
    text = json.dumps({"a": list(range(100))})
    assert read_plain(text, Limits(nodes=50)) is None
    assert read_plain(text, Limits(nodes=500)) is not None
