"""`load` reads a file or a text into a checked spec, or raises every problem at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphspec import GraphSpec, SpecError, load, render
from graphspec.declare.optimizers import OptimizerSpec
from graphspec.loading import check_document
from graphspec.read.source import read_document

ROOT = Path(__file__).parents[2]
VARIED = """graphspec: 1
name: varied
vars: {width: 16, rate: 1e-3, steps: 20}
inputs: {x: {shape: [batch, 4]}}
models: {net: {layers: [{linear: "${width}"}], optimizer: {name: adam, lr: "${rate}"}}}
ops:
  out: {forward: net, inputs: x}
  size: {loss: mse, inputs: [out, 0.0]}
  fit: {update: net, loss: size}
run: {steps: "${steps}"}
"""


def test_json_on_one_line_is_a_text(small):
    document = read_document(small()).data
    assert load(json.dumps(document)) == load(json.dumps(document, indent=1))


def test_a_path_and_a_text_give_the_same_spec(tmp_path, small):
    path = tmp_path / "small.yaml"
    path.write_text(small(), encoding="utf-8")
    assert load(path) == load(str(path)) == load(small())


def test_json_is_read_with_its_places(tmp_path, small):
    path = tmp_path / "small.json"
    text = json.dumps(read_document(small()).data, indent=1)
    path.write_text(text, encoding="utf-8")
    assert load(path) == load(small())
    path.write_text(text.replace('"err"\n', '"eror"\n'), encoding="utf-8")
    with pytest.raises(SpecError, match=r"(?s)small\.json:53:12.*did you mean 'err' \(line 44\)") as caught:
        load(path)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["GS104"]


def test_defaults_are_those_of_the_language(small):
    spec = load(small())
    assert (spec.seed, spec.rng, spec.outputs, spec.vars, spec.data) == (0, "native", None, {}, {})
    assert (spec.run.steps, spec.run.log_every, spec.run.log) == (None, 50, ("jsonl", "csv"))
    assert spec.inputs["x"].dtype == "float32"
    assert spec.models["net"].optimizer == OptimizerSpec.model_validate("adam")


def test_variables_and_overrides_arrive_with_their_types():
    spec = load(VARIED, ["vars.width=32", "vars.rate=1e-2", "run.log_every=5"])
    net = spec.models["net"]
    assert net.layers is not None
    assert net.optimizer is not None
    assert net.layers[0].options == {"out": 32}
    assert net.optimizer.options == {"lr": 0.01}
    assert (spec.run.steps, spec.run.log_every) == (20, 5)


def test_a_wrong_override_is_shown_in_its_own_text():
    with pytest.raises(SpecError, match="expected a whole number from 1 up, found the string 'wide'") as caught:
        load(VARIED, ["models.net.layers.0.linear=wide"])
    assert "models.net.layers.0.linear=wide\n" in str(caught.value)


def test_a_spec_knows_where_each_part_is_written(small):
    spec = load(small())
    model, update = spec.span("models", "net", key=True), spec.span("ops", "fit", "loss")
    assert model is not None
    assert update is not None
    assert (model.line, model.column) == (7, 3)
    assert (update.line, update.column, update.end_column) == (12, 28, 31)
    assert spec.texts() == {"<text>": small()}


def test_a_spec_made_in_python_has_no_places(small):
    spec = GraphSpec.model_validate(read_document(small()).data)
    assert spec.span("models", "net") is None
    assert spec.texts() == {}
    assert spec == load(small())


def test_a_spec_is_frozen(small):
    spec = load(small())
    with pytest.raises(ValueError, match="frozen"):
        spec.seed = 3


def test_check_document_returns_problems_without_raising(small):
    spec, diagnostics = check_document(read_document(small(ops="a: {forward: nett, inputs: x}")))
    assert spec is None
    assert "did you mean 'net' (line 7)?" in render(diagnostics, {"<text>": small()})


def test_a_document_that_is_no_mapping_is_refused(find):
    assert find("- 1\n- 2\n").codes == ("GS041",)


def test_an_empty_spec_misses_its_name_and_ops(find):
    found = find("graphspec: 1\n\n")
    assert found.codes == ("GS042", "GS042")
    assert [diagnostic.message.split("'")[1] for diagnostic in found.diagnostics] == ["name", "ops"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("«seeds»: 3", "GS040"),
        ("seed: «1.5»", "GS041"),
        ("rng: «fast»", "GS043"),
        ("precision: «float8»", "GS043"),
        ("parallel: {kind: «divided»}", "GS043"),
        ("parallel: {kind: replicated, reduce: «median»}", "GS043"),
        ("parallel: {kind: replicated, «buckets»: 25}", "GS040"),
        ("parallel: {kind: replicated, bucket_mb: «0»}", "GS044"),
        ("parallel: {kind: replicated, compress: {kind: «topk»}}", "GS043"),
        ("parallel: {kind: sharded, «compare_every»: 10}", "GS056"),
        ("micro_batches: «0»", "GS044"),
        ("run: {steps: 3, «epochs»: 3}", "GS053"),
        ("run: {checkpoint: {every: «0»}}", "GS050"),
        ("run: {checkpoint: «often»}", "GS050"),
        ("run: {«checkpoint»: {keep: 2}}", "GS042"),
        ("run: {log: [jsonl, «tensorbord»]}", "GS043"),
        ("run: {stop: {metric: a, patience: «0»}}", "GS044"),
        ("run: {check_data: «yes»}", "GS041"),
        ("run: {steps: «0»}", "GS044"),
        ("outputs: [err, out]\nrun: {images: {value: out, every: «often»}}", "GS050"),
        ("data: {train: {source: «digit», batch: 1}}", "GS043"),
        ("data: {«train»: {source: csv, batch: 1}}", "GS053"),
        ("data: {train: {source: csv, path: a.csv, batch: 1, columns: {x: «[]»}}}", "GS044"),
        ("data: {train: {source: csv, path: a.csv, batch: 1, columns: {x: «[a, 1]»}}}", "GS044"),
        ("data: {train: {class: 'a:B', batch: 1, columns: {x: «-1»}}}", "GS044"),
        ("data: {train: {class: 'a:B', batch: 1, columns: {x: «true»}}}", "GS044"),
        ("data: {train: {source: digits, batch: «0»}}", "GS044"),
        ("data: {«train»: {source: npz, batch: 1}}", "GS053"),
        ("data: {train: {class: «a.b», batch: 1}}", "GS054"),
        ("data: {train: {source: digits, «class»: a:b, batch: 1}}", "GS053"),
        ("data: {train: {«one»: {source: digits}, two: {source: digits, batch: 1}}}", "GS042"),
        ("data: {train: {one: {source: digits, batch: 1}, mix: «[1, 2]»}}", "GS044"),
        ("data: {train: {one: {source: digits, batch: 1}, mix: «{two: 1}»}}", "GS044"),
        ("data: {train: {one: {source: digits, batch: 1}, mix: «[0]»}}", "GS044"),
        ("data: {«test»: {one: {source: digits, batch: 1}}}", "GS056"),
    ],
)
def test_a_wrong_section_is_reported_where_it_is_wrong(small, find, line, code):
    found = find(small(more=f"{line}\n"))
    assert found.codes == (code,)
    assert found.places == found.marks


def test_a_precision_that_says_the_default_is_allowed(small, find):
    assert find(small(more="precision: {compute: float32, loss_scale: none}\n")).codes == ()


def test_data_sources_are_built_in_or_classes(small):
    text = "data: {train: {source: npz, path: a.npz, batch: 8}, test: {class: my.data:Set, batch: 2, args: {n: 3}}}\n"
    data = load(small(more=text)).data
    assert (data["train"].source, data["train"].class_path) == ("npz", None)
    assert (data["test"].source, data["test"].class_path) == ("class:my.data:Set", "my.data:Set")
    assert (data["train"].drops_last("train"), data["test"].drops_last("test")) == (True, False)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_loads(path):
    assert load(path).texts()


def test_loading_imports_no_array_library_and_nothing_the_spec_names(tmp_path, small):
    path = tmp_path / "small.yaml"
    path.write_text(small(), encoding="utf-8")
    names = ("numpy", "networkx", "torch", "tensorflow", "keras", "zoo", "rich", "typer")
    code = f"import sys, graphspec; graphspec.load({str(path)!r}); print([n for n in {names} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
