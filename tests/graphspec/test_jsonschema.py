"""The JSON Schema accepts what `load` accepts, refuses typical mistakes, and is up to date."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from graphspec.declare.data import SOURCES
from graphspec.declare.layers import LAYERS
from graphspec.declare.library import FUNCTIONS
from graphspec.declare.ops import KINDS
from graphspec.declare.optimizers import OPTIMIZERS
from graphspec.read.source import read_document
from graphspec.write.jsonschema import build_schema, write_schema

ROOT = Path(__file__).parents[2]
NET = """
graphspec: 1
name: net
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
ops: {out: {forward: net, inputs: x}}
"""


@cache
def _validator():
    return jsonschema.Draft202012Validator(build_schema())


def _is_valid(text):
    return _validator().is_valid(read_document(text).data)


def _list_properties(node, path=()):
    """Yield every property of a schema with its path, those of conditions left out."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key == "if":
            continue
        if key == "properties":
            yield from (((*path, name), each) for name, each in value.items())
        yield from _list_properties(value, (*path, key))


def test_every_key_and_every_definition_has_a_description():
    schema = build_schema()
    definitions = schema["$defs"]

    def is_described(node):
        return "description" in node or is_described(definitions[node["$ref"].rpartition("/")[2]])

    bare = [path for path, node in _list_properties(schema) if "$ref" not in node and "description" not in node]
    assert bare == []
    assert [path for path, node in _list_properties(schema) if not is_described(node)] == []
    assert [name for name, node in definitions.items() if "description" not in node] == []
    assert sum(1 for _ in _list_properties(schema)) > 600


def test_every_source_and_layer_is_among_the_words_of_its_key():
    definitions = build_schema()["$defs"]
    sources = {each.get("const") for each in definitions["DataSource"]["properties"]["source"]["anyOf"]}
    assert set(SOURCES) <= sources
    words = {each.get("const") for each in definitions["Layer"]["anyOf"]}
    mapping = definitions["Layer"]["anyOf"][-1]["properties"]
    assert mapping.keys() == {*LAYERS, "residual"} >= words - {None}
    assert {"relu", "flatten", "batch_norm"} <= words


def test_it_is_a_schema_of_its_draft():
    jsonschema.Draft202012Validator.check_schema(build_schema())


def test_the_published_file_is_what_the_declarations_give(tmp_path):
    published = ROOT / "schemas" / "graphspec.schema.json"
    assert write_schema(tmp_path).read_bytes() == published.read_bytes()


@pytest.mark.sample(6)  # in every run tests/examples/test_specs.py reads the schema that each example names
@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_valid(path):
    assert [error.message for error in _validator().iter_errors(read_document(path).data)] == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("folder", ["catalogue", "conformance"])
def test_every_spec_that_the_tests_train_is_valid(folder):
    found = sorted((ROOT / "tests" / folder / "specs").glob("*.yaml"))
    assert len(found) > 20
    refused = [path.stem for path in found if not _is_valid(path.read_text(encoding="utf-8"))]
    assert refused == []


@pytest.mark.parametrize(
    "written",
    [
        "bf16",
        "torch.float16",
        "${half}",
        "{compute: mixed_float16, loss_scale: 1024}",
        "{compute: half, loss_scale: dynamic}",
        "{loss_scale: {init_scale: 8, growth_interval: 5}}",
    ],
)
def test_precision_has_the_names_that_frameworks_have(written):
    assert _is_valid(f"{NET}precision: {written}\n")


@pytest.mark.parametrize("written", ["float8", "{loss_scale: -1}", "{loss_scale: {foo: 1}}", "{loss_scale: sometimes}"])
def test_precision_has_no_other_names(written):
    assert not _is_valid(f"{NET}precision: {written}\n")


@pytest.mark.parametrize(
    "line",
    [
        "a: {forward: other, inputs: {p: x}, outputs: [mu, {h: {tap: l}}], train: false, mode: '!eval'}",
        "a: {call: mul, inputs: [x, 0.5], after: fit, every: fit, start: 10 steps}",
        "a: {loss: mse, inputs: [x, x], every: 2, lazy: none}",
        "a: {random: uniform, shape: [batch, 3], args: {low: -1}}",
        "a: {loss: {torch: my:fn}, inputs: [x, y], reduction: sum, weight: 2}",
        "a: {gradient: err, wrt: [net, x], outputs: [p, q]}",
        "a: {transform: clip_norm, inputs: g, args: {norm: 1}}",
        "a: {update: net, loss: err, optimizer: {name: adam, lr: {schedule: linear, from: 1, over: 9}}}",
        "a: {update: net, gradients: [g, h], clip: {norm: 1}, defer: end}",
        "a: {ema: net, half_life: 500 updates, buffers: copy}",
        "a: {copy: net, into: other, every: 100}",
        "a: {metric: accuracy, inputs: [out, y]}",
        'a: {loss: huber, inputs: [out, 0.0], args: {delta: "${delta}"}, weight: "${w}"}',
        'a: {forward: net, inputs: x, stop: "${stop}", start: "${start}"}',
    ],
)
def test_ops_that_load_are_valid(small, line):
    assert _is_valid(small(ops=line))


@pytest.mark.parametrize(
    "line",
    [
        "m: {layers: [relu, {linear: 3}, {residual: [{conv2d: {out: 3, kernel: [3, 1]}}]}, {max_pool: 2}, flatten]}",
        'm: {layers: [{linear: "${width}"}, {dropout: "${p}"}], optimizer: {name: sgd, lr: "${lr}", nesterov: true}}',
        "m: {class: {torch: a:B, tensorflow: c:D}, args: {n: 1}, traits: {rng: false}, optimizer: lion}",
        "m: {parameter: {shape: [], init: 0.1}, optimizer: {class: my:Opt, lr: 1, whatever: [1]}}",
        "m: {like: net, init: fresh, buffers: ignore}",
        "m: {like: net, groups: [{match: w, lr_scale: 2}, {match: b, frozen: true}], constraint: unit_norm}",
        "m: {like: net, groups: {match: w, lr_scale: 2}}",
        "m: {like: net, constraint: [{max_norm: 2, axis: [0, 1]}, my:fn], regularizer: {l2: 0.1, match: weight}}",
    ],
)
def test_models_that_load_are_valid(small, line):
    assert _is_valid(small(models=line))


@pytest.mark.parametrize(
    "line",
    [
        "a: {forward: net, input: x}",
        "a: {inputs: x}",
        "a: {call: add, loss: mse, inputs: [x, x]}",
        "a: {update: net}",
        "a: {update: net, loss: err, gradients: g}",
        "a: {ema: net}",
        "a: {ema: net, decay: 1.5}",
        "a: {loss: no_such_loss, inputs: [x, x]}",
        "a: {loss: mse, inputs: [x]}",
        "a: {call: clip, inputs: x, args: {mn: 1}}",
        "a: {call: one_hot, inputs: y}",
        "a: {call: mean, inputs: [x, x]}",
        "a: {call: softmax, inputs: x, args: {axes: 1}}",
        "a: {random: normal}",
        "a: {call: relu, inputs: x, mode: trian}",
        "a: {update: net, loss: err, accumulate: 0}",
        "1a: {call: relu, inputs: x}",
    ],
)
def test_wrong_ops_are_invalid(small, line):
    assert not _is_valid(small(ops=line))


@pytest.mark.parametrize(
    "line",
    [
        "m: {}",
        "m: {class: a:B, like: net}",
        "m: {class: a.B}",
        "m: {layers: [reluu]}",
        "m: {layers: [linear]}",
        "m: {layers: [{linear: {ouput: 3}}]}",
        "m: {layers: [{linear: 0}]}",
        "m: {layers: [relu], optimizer: adm}",
        "m: {layers: [relu], optimizer: {name: adam, beta: 1}}",
        "m: {layers: [relu], groups: []}",
        "m: {layers: [relu], constraint: unit}",
        "m: {layers: [relu], constraint: {clip: [0, 1], max_norm: 2}}",
        "m: {layers: [relu], regularizer: l2}",
    ],
)
def test_wrong_models_are_invalid(small, line):
    assert not _is_valid(small(models=line))


@pytest.mark.parametrize("more", ["seeds: 3", "states: {}", "run: {step: 3}", "data: {train: {source: digits}}"])
def test_wrong_sections_are_invalid(small, more):
    assert not _is_valid(small(more=f"{more}\n"))


def test_every_name_of_the_tables_is_offered():
    text = json.dumps(build_schema())
    functions = [name for family in FUNCTIONS.values() for name in family]
    for name in (*KINDS, *LAYERS, *OPTIMIZERS, *functions):
        assert f'"{name}"' in text, name


def test_every_field_of_a_declaration_is_described():
    for name, definition in build_schema()["$defs"].items():
        assert definition.get("description"), name
        for field, schema in definition.get("properties", {}).items():
            assert schema.get("description"), (name, field)
