"""What is passed in the wrong form from Python is answered with one sentence and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build, emit
from runtime.engine.backend import PackedModel, PackedProgram

SPEC = """
graphspec: 1
name: misused
models: {v: {parameter: {shape: [2]}, optimizer: sgd}}
ops:
  a: {forward: v}
  loss: {loss: mse, inputs: [a, 1.0]}
  step: {update: v, loss: loss}
"""


def make_spec():
    return load(SPEC)


def make_plan():
    return compile_step(make_spec())


MISUSES = {
    "build a spec": (lambda: build(make_spec()), "`build` takes a plan, found a GraphSpec", "compile_step(load(path))"),
    "build a path": (lambda: build("gan.yaml"), "`build` takes a plan, found a str", "compile_step(load(path))"),
    "emit a spec": (lambda: emit(make_spec()), "`emit` takes a plan, found a GraphSpec", "compile_step(load(path))"),
    "compile a path": (lambda: compile_step("gan.yaml"), "takes a spec, found a str", "compile_step(load(path))"),
    "compile a plan": (lambda: compile_step(make_plan()), "takes a spec, found a Plan", "compile_step(load(path))"),
    "load a mapping": (lambda: load({"graphspec": 1}), "`load` takes a path, .*, found a dict", "json.dumps"),
    "allow a text": (lambda: build(make_plan(), allow="zoo"), "takes a list of packages, found a str", "allow=["),
    "a dtype of torch": (
        lambda: build(make_plan(), dtype=torch.float64),
        "takes 'float32' or 'float64', found a dtype",
        'dtype="float64"',
    ),
    "a lower dtype": (
        lambda: build(make_plan(), dtype="bfloat16"),
        "takes 'float32' or 'float64', found 'bfloat16'",
        "`precision:` in the spec",
    ),
    "models in a list": (lambda: build(make_plan(), models=[1]), "takes a mapping .*, found a list", "models={"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_it_says_what_was_found_and_what_to_write(name):
    misuse, message, remedy = MISUSES[name]
    with pytest.raises(SpecError, match=f"GS275.*{message}") as raised:
        misuse()
    assert remedy in raised.value.diagnostics[0].help


@pytest.mark.needs("torch")
def test_a_class_among_the_models_is_to_be_called():
    import torch

    with pytest.raises(SpecError, match=r"GS208.*is given as the class Linear") as raised:
        build(make_plan(), models={"v": torch.nn.Linear})
    assert raised.value.diagnostics[0].help == "give an object of it: `Linear(...)`"


def test_what_is_exported_has_a_short_text():
    packed = PackedModel(content=bytes(10**6), tensors={}), PackedProgram(suffix=".pt2", files={"": bytes(10**6)})
    assert max(len(repr(each)) for each in packed) < 200


@pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("torch", "tensorflow")]
)
def test_what_an_export_returns_has_the_text_of_its_files(backend: str, tmp_path: Path):
    text = SPEC.replace("models:", "inputs: {x: {shape: [batch, 2]}}\nmodels:")
    text = text.replace("  step:", "  b: {call: add, inputs: [a, x]}\n  step:") + "outputs: [b]\n"
    step = build(compile_step(load(text), backend), device="cpu")
    exported = step.export(tmp_path / "out", mode="eval")
    files = sorted(path.name for path in (tmp_path / "out").iterdir() if path.name != "export.json")
    assert repr(exported).startswith(f"<exported into '{tmp_path / 'out'}': ")
    assert sorted(repr(exported).removesuffix(">").partition("': ")[2].split(", ")) == files
