"""Building and emitting from the public interface."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build
from runtime.registry import BACKENDS, find_backend

SPEC = """
graphspec: 1
name: tiny
seed: 7
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 1}], optimizer: sgd}}
ops: {y: {forward: net, inputs: x}, loss: {call: mean, inputs: y}, learn: {update: net, loss: loss}}
outputs: [loss]
"""


def weight(**options: object) -> torch.Tensor:
    """Return the initial weight of a built step."""
    return build(compile_step(load(SPEC)), device="cpu", **options).models["net"].get_parameter("0.weight")


def test_the_seed_of_the_spec_is_the_default():
    assert torch.equal(weight(), weight(seed=7))
    assert not torch.equal(weight(), weight(seed=8))


def test_the_device_is_chosen_or_named():
    step = build(compile_step(load(SPEC)))
    assert torch.device(step.device).type in ("cpu", "cuda", "mps")
    assert build(compile_step(load(SPEC)), device="cpu").device == "cpu"


@pytest.mark.parametrize("device", ["cuda:99", "mps:9", "tpu", "meta"])
def test_a_device_that_is_not_there_is_an_error(device):
    with pytest.raises(SpecError, match="GS207"):
        build(compile_step(load(SPEC)), device=device)


def test_a_backend_that_does_not_exist_is_an_error():
    with pytest.raises(SpecError, match=r"GS218.*no backend 'tensorflaw'; did you mean 'tensorflow'\?"):
        find_backend("tensorflaw")


def test_every_backend_of_the_registry_is_there():
    assert all(find_backend(name) for name in BACKENDS)


def test_without_torch_emitting_works_and_building_says_what_to_install():
    code = (
        "import sys\nsys.modules['torch'] = None\n"
        "from compiler import compile_step\nfrom graphspec import load, SpecError\nfrom runtime import build, emit\n"
        f"plan = compile_step(load({SPEC!r}))\nassert 'def train_step' in emit(plan)\n"
        "try:\n    build(plan)\nexcept SpecError as error:\n    print(error)"
    )
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert "error[GS217]: PyTorch is not installed" in run.stdout
    assert "pip install 'stepgraph[torch]'" in run.stdout


def test_every_code_the_runtime_raises_has_a_page():
    root = Path(__file__).parents[2]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (root / "runtime").rglob("*.py"))
    pages = {path.stem for path in (root / "docs" / "errors").glob("GS2*.md")}
    assert set(re.findall(r'"(GS2\d\d)"', sources)) <= pages
