"""fmt: the canonical layout, and to what a comment belongs."""

from __future__ import annotations

import json

import pytest

from graphspec.diagnostics import SpecError
from graphspec.loading import load
from graphspec.read.source import read_document
from graphspec.write.format import format_document
from graphspec.write.render import render


def fmt(text: str) -> str:
    formatted = format_document(text, "spec.yaml")
    assert format_document(formatted, "spec.yaml") == formatted
    return formatted


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("name: a\ngraphspec: 1\n", "graphspec: 1\nname: a\n"),
        ("vars:\n    lr: 1E-3\n    width: 1_0\n", "vars: {lr: 1E-3, width: 1_0}\n"),
        ("inputs: {x: {dtype: int64, shape: [4]}}\n", "inputs: {x: {shape: [4], dtype: int64}}\n"),
        ("inputs:\n  x:\n    dtype: int64\n    shape: [4]\n", "inputs:\n  x: {shape: [4], dtype: int64}\n"),
        ("ops:\n  y:\n    inputs: x\n    forward: net\n", "ops:\n  y: {forward: net, inputs: x}\n"),
        ("ops: {s: {after: t, loss: l, update: n}}", "ops: {s: {update: n, loss: l, after: t}}\n"),
        ("ops: {m: {mode: eval, expr: 'a + b'}}", 'ops: {m: {expr: "a + b", mode: eval}}\n'),
        ("ops: {m: {args: {b: 1, a: 2}, call: f}}", "ops: {m: {call: f, args: {b: 1, a: 2}}}\n"),
        ("data: {t: {batch: 8, path: a.npz, source: npz}}", "data: {t: {source: npz, path: a.npz, batch: 8}}\n"),
        (
            "data: {train: {a: {batch: 8, source: digits}, mix: {a: 1}}}",
            "data: {train: {a: {source: digits, batch: 8}, mix: {a: 1}}}\n",
        ),
        ("run: {log_every: 5, steps: 10}", "run: {steps: 10, log_every: 5}\n"),
        ("name: 'a b'\n", "name: a b\n"),
        ("name: '1'\n", 'name: "1"\n'),
        ("name: 'no'\n", 'name: "no"\n'),
        ("name: \"it's\"\n", "name: \"it's\"\n"),
        ("run: {checkpoint: '1 epochs', stop: 500 steps}", "run: {stop: 500 steps, checkpoint: 1 epochs}\n"),
        ("vars: {a: .5, b: 0x1F, c: ~, d: True, e: }", "vars: {a: .5, b: 0x1F, c: ~, d: True, e: null}\n"),
        ("---\nname: a\n...\n", "name: a\n"),
        ("name: a\r\nseed: 3\r\n", "name: a\nseed: 3\n"),
        ("vars: {seed: &s 3}\nseed: *s\nname: a\n", "vars: {seed: &s 3}\nseed: *s\nname: a\n"),
        ("ops:\n  a:\n    doc: |\n          one\n            two\n    call: f\n",
         "ops:\n  a:\n    call: f\n    doc: |\n      one\n        two\n"),
        ("ops: {a: {call: f}}\nnew: {b: 1}\nrun: {other: 1, steps: 2}\n",
         "ops: {a: {call: f}}\nrun: {steps: 2, other: 1}\nnew: {b: 1}\n"),
        ("{}", "{}"),
    ],
)  # fmt: skip
def test_the_layout(written, expected):
    assert fmt(written) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        # A comment goes where its part goes.
        ("# top\n\n# the name\nname: a # n\n# version\ngraphspec: 1 # v\n",
         "# top\n\n# the name\n# version\ngraphspec: 1  # v\nname: a  # n\n"),
        ("name: a\n# seeds\nseed: 3\n# sizes\nvars: {a: 1}\n", "name: a\n# sizes\nvars: {a: 1}\n# seeds\nseed: 3\n"),
        # Behind a bracket that closes it is about the whole.
        ("ops:\n  a: {call: f,\n      inputs: [x, y]}   # all\n", "ops:\n  a: {call: f, inputs: [x, y]}  # all\n"),
        # Within, it is about a field.
        ("ops:\n  a: {call: f,  # it\n      inputs: [x, y]}\n", "ops:\n  a:\n    call: f  # it\n    inputs: [x, y]\n"),
        ("ops:\n  a: {call: f,\n    # read\n    inputs: [x, # one\n      y]} # all\n",
         "ops:\n  a:  # all\n    call: f\n    # read\n    inputs:\n      - x  # one\n      - y\n"),
        # At the end of a list between brackets it is below the last item.
        ("outputs: [\n  a,\n  b,\n  # later: c\n]\n", "outputs:\n  - a\n  - b\n  # later: c\n"),
        # Before the first field of an item it is before the item.
        ("models:\n  m:\n    layers:\n      - {\n        # wide\n        linear: 3}\n",
         "models:\n  m:\n    layers:\n      # wide\n      - {linear: 3}\n"),
        # Indented like what is above, it ends that; else it begins what follows.
        ("ops:\n  a: {call: f}\n  # of ops\n# of outputs\noutputs: a\n",
         "ops:\n  a: {call: f}\n  # of ops\n# of outputs\noutputs: a\n"),
        ("ops:\n  # first\n  a: {call: f}\n", "ops:\n  # first\n  a: {call: f}\n"),
        ("ops:  # all\n  a: {call: f}\n# end\n", "ops:  # all\n  a: {call: f}\n# end\n"),
        # A hash in a text is none.
        ("ops: {a: {doc: 'a # b', call: f}}  # c\n", 'ops: {a: {call: f, doc: "a # b"}}  # c\n'),
        ("ops:\n  a:\n    call: f\n    doc: >-  # why\n      a # b\n      c\n",
         "ops:\n  a:\n    call: f\n    doc: >-  # why\n      a # b\n      c\n"),
        # One empty line sets parts apart, where each has its own line.
        ("name: a\n\n\nops:\n\n  a: {call: f}\n\n\n\n  b: {call: g}\n\n\n",
         "name: a\n\nops:\n  a: {call: f}\n\n  b: {call: g}\n"),
        ("ops:\n  a:\n    call: f\n\n    inputs: x\n", "ops:\n  a: {call: f, inputs: x}\n"),
        ("models:\n  m:\n    layers:\n      - flatten # in\n      # wide\n      - {linear: 3}\n",
         "models:\n  m:\n    layers:\n      - flatten  # in\n      # wide\n      - {linear: 3}\n"),
        ("models:\n  m:\n    groups:\n      - match: a # one\n        lr_scale: 2\n",
         "models:\n  m:\n    groups:\n      - match: a  # one\n        lr_scale: 2\n"),
    ],
)  # fmt: skip
def test_a_comment_stays_with_what_it_is_about(written, expected):
    assert fmt(written) == expected


LONG = ", ".join(f"{{linear: {1000 + n}}}" for n in range(12))
FIELDS = ", ".join(f"name_{n}: [{n}, {{deep: {n}}}]" for n in range(8))


@pytest.mark.parametrize(
    "text",
    [
        f"vars: {{{FIELDS}}}\n",
        f"inputs: {{{FIELDS}}}\n",
        f"models:\n  net: {{layers: [{LONG[:60]}}}], {FIELDS}}}\n",
        f"models:\n  net:\n    layers: [{LONG}]\n    optimizer: sgd\n",
        f"models:\n  net:\n    groups:\n      - {{match: a, {FIELDS}}}\n      - {{match: b}}\n",
        f"ops:\n  a: {{call: f, args: {{a: 1}}, {FIELDS}}}\n",
        f"data: {{train: {{a: 1}}, {FIELDS}}}  # all\n",
    ],
)
def test_what_is_between_brackets_stays_there_in_as_few_lines_as_it_takes(text):
    formatted = fmt(text)
    assert read_document(formatted).data == read_document(text).data
    assert "".join(formatted.split()) == "".join(text.split())  # nothing but spaces and breaks
    lines = formatted.splitlines()
    full = next(number for number, line in enumerate(lines) if len(line) > 90)
    added = lines[full + 1].lstrip().partition("}, ")[0] + "},"  # the next part, which has no room any more
    assert len(lines[full]) <= 120 < len(f"{lines[full]} {added}")


def test_what_is_long_within_brackets_or_has_comments_there_is_opened():
    deep = ", ".join(f"name_{n}: {n}" for n in range(14))
    assert fmt(f"vars: {{a: {{{deep}}}, b: 1}}\n").splitlines()[:2] == [
        "vars:",
        f"  a: {{{deep[: deep.index(', name_9')]}, name_9: 9,",
    ]
    assert fmt("vars: {a: 1,  # one\n  b: 2}\n") == "vars:\n  a: 1  # one\n  b: 2\n"


def test_lines_are_as_long_as_those_of_render():
    count = 20
    spec = {
        "graphspec": 1,
        "name": "long",
        "inputs": {f"input_{n}": {"shape": ["batch", 4]} for n in range(count)},
        "models": {"net": {"layers": [{"linear": 100 + n} for n in range(count)], "optimizer": "sgd"}},
        "ops": {
            "all": {"call": "concat", "inputs": [f"input_{n}" for n in range(count)]},
            "y": {"forward": "net", "inputs": "all"},
            "l": {"call": "mean", "inputs": "y"},
            "u": {"update": "net", "loss": "l", "doc": "word " * 60},
        },
    }
    rendered = render(load(json.dumps(spec)))
    assert fmt(rendered) == rendered
    assert max(map(len, fmt(json.dumps(spec)).splitlines())) <= 120


def test_json_stays_json_with_keys_in_order():
    spec = {"name": "é", "graphspec": 1, "ops": {"a": {"inputs": "x", "call": "mean"}}}
    formatted = format_document(json.dumps(spec), "spec.json")
    assert formatted.startswith('{\n  "graphspec": 1,\n  "name": "é",\n')
    assert json.loads(formatted) == spec
    assert list(json.loads(formatted)["ops"]["a"]) == ["call", "inputs"]
    assert format_document(formatted, "spec.json") == formatted


@pytest.mark.parametrize("text", ["a: [1, 2", "a: 1\na: 2\n", "a: !x 3\n", "<<: {a: 1}\n"])
def test_what_is_no_document_is_told(text):
    with pytest.raises(SpecError):
        format_document(text, "spec.yaml")


def test_a_document_of_another_kind_stays_as_it_is():
    assert format_document("- 1\n- 2   # two\n", "list.yaml") == "- 1\n- 2   # two\n"
