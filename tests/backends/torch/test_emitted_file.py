"""An emitted file runs where this project cannot be imported, with the same numbers bit for bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compiler import compile_step
from graphspec import load
from runtime import build, emit

pytestmark = pytest.mark.needs("torch")

ROOT = Path(__file__).resolve().parents[3]

SPEC = """
graphspec: 1
name: stand-alone
rng: RNG
inputs: {image: {shape: [batch, 6]}, label: {shape: [batch], dtype: int64}}
models:
  classifier:
    layers: [{linear: 8}, {batch_norm: {}}, relu, {dropout: 0.5}, {linear: 3}]
    optimizer: {name: adam, lr: 0.01}
  average: {like: classifier, buffers: copy}
  critic: {layers: [{linear: 4}, tanh, {linear: 1}], optimizer: {name: sgd, lr: {schedule: cosine, from: 0.1, over: 5}}}
  weight: {parameter: {shape: [], init: 0.5}, optimizer: {name: lion, lr: 0.001}}
ops:
  noise: {random: normal, like: image}
  noisy: {call: add, inputs: [image, noise]}
  scores: {forward: classifier, inputs: noisy}
  error: {loss: cross_entropy, inputs: [scores, label]}
  factor: {forward: weight}
  scaled: {call: mul, inputs: [error, factor]}
  step: {update: [classifier, weight], loss: scaled, clip: {norm: 1.0}}
  follow: {ema: classifier, into: average, decay: 0.9, every: 2}
  judged: {forward: critic, inputs: image}
  score: {loss: wasserstein, inputs: judged}
  judge: {update: critic, loss: score, every: 3, start: 2}
outputs: [error, score, noise]
"""
DIGEST = """
import hashlib
import torch

def digest_of(step, models):
    generator, digest = torch.Generator().manual_seed(0), hashlib.sha256()
    for _ in range(6):
        image, label = torch.randn(8, 6, generator=generator), torch.randint(0, 3, (8,), generator=generator)
        for value in step({"image": image, "label": label}).values():
            digest.update(bytes(value.reshape(-1).view(torch.uint8).tolist()))
    for tensor in (each for model in models.values() for each in model.state_dict().values()):
        digest.update(bytes(tensor.reshape(-1).view(torch.uint8).tolist()))
    return digest.hexdigest()
"""
DRIVER = """
import importlib.util, json, pathlib, sys
sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry).resolve() != pathlib.Path(sys.argv[2])]
try:
    import compiler
    raise SystemExit("this project can be imported")
except ModuleNotFoundError:
    pass
spec = importlib.util.spec_from_file_location("emitted", sys.argv[1])
sys.modules["emitted"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
torch.set_num_threads(1)
module.build(seed=5)
digest = digest_of(module.step, module.MODELS)
print(json.dumps({"digest": digest, "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


def digest_of_step(text: str) -> str:
    """Return the digest of six steps here."""
    names: dict[str, Any] = {}
    exec(DIGEST, names)
    step = build(compile_step(load(text)), device="cpu", seed=5)
    return names["digest_of"](step, step.models)


@pytest.mark.parametrize("rng", ["native", "portable"])
def test_an_emitted_file_gives_the_same_bits_in_a_process_without_this_project(rng, tmp_path):
    text = SPEC.replace("RNG", rng)
    (tmp_path / "step.py").write_text(emit(compile_step(load(text))))
    (tmp_path / "driver.py").write_text(DIGEST + DRIVER)
    command = [sys.executable, "-I", "driver.py", "step.py", str(ROOT)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stderr == ""
    found = json.loads(run.stdout)
    assert found["digest"] == digest_of_step(text)
    assert not {"graphspec", "compiler", "runtime", "yaml", "pydantic"} & set(found["modules"])


def test_an_emitted_file_is_what_a_step_runs():
    plan = compile_step(load(SPEC.replace("RNG", "native")))
    assert build(plan, device="cpu").source == emit(plan)


def test_an_emitted_file_has_no_long_lines_and_no_path_of_this_machine():
    text = emit(compile_step(load(SPEC.replace("RNG", "portable"))))
    assert max(len(line) for line in text.splitlines()) <= 120
    assert str(Path(__file__).parents[3]) not in text
