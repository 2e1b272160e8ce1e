"""A checkpoint holds the trained weights as the model, and averages by name; `export` writes the ones to deploy."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import load_file

from runtime.cli import execute
from tests.features.averages import SPEC

pytestmark = pytest.mark.row("E6")

RUN = """inputs: {x: {shape: [batch]}}
data: {train: {source: npz, path: rows.npz, batch: 2}}
run: {steps: 6, checkpoint: 2 steps}
"""
READ = "  seen: {metric: mean, inputs: value, mode: eval}\noutputs:"


def train(folder, backend: str, fields: str) -> None:
    """Train a weight that is t after step t, in a run of six steps."""
    np.savez(folder / "rows.npz", x=np.zeros(4, "float32"))
    (folder / "grow.yaml").write_text(SPEC.replace("FIELDS", fields).replace("outputs:", READ) + RUN)
    assert execute(["run", "grow.yaml", "--plain", "--backend", backend, "--out", "run"]) == 0


def held(path: str) -> dict[str, float]:
    """Return the first number of every tensor in a file."""
    return {name: float(array.reshape(-1)[0]) for name, array in load_file(path).items()}


def by_hand(steps: int) -> float:
    """Return the average with decay 0.5 of 1, 2, ... from zero."""
    found = 0.0
    for t in range(1, steps + 1):
        found = 0.5 * found + 0.5 * t
    return found


@pytest.mark.parametrize("use", ["swap", "separate"])
def test_a_checkpoint_has_both_each_under_its_name(workdir, backend: str, use: str) -> None:
    train(workdir, backend, f"decay: 0.5, use: {{eval: {use}}}")
    for step in (2, 4, 6):
        found = held(f"run/checkpoints/step-{step}/state.safetensors")
        assert found["models.w.value"] == step
        assert np.isclose(found["models.average.value"], by_hand(step), rtol=1e-6, atol=0)


def test_a_resumed_run_goes_on_from_the_weights_as_trained(workdir, backend: str) -> None:
    train(workdir, backend, "decay: 0.5, use: {eval: swap}")
    assert execute(["run", "grow.yaml", "--plain", "--out", "run", "--resume", "--steps", "8"]) == 0
    found = held("run/checkpoints/step-8/state.safetensors")
    assert found["models.w.value"] == 8
    assert np.isclose(found["models.average.value"], by_hand(8), rtol=1e-6, atol=0)


def test_export_writes_the_average_that_stands_in_and_says_so(workdir, backend: str, capsys) -> None:
    train(workdir, backend, "decay: 0.5, use: {eval: swap}")
    assert execute(["export", "run", "--format", "weights"]) == 0
    assert "w.safetensors        1 tensor of average, which stands in for w\n" in capsys.readouterr().out
    assert np.isclose(held("run/export/w.safetensors")["value"], by_hand(6), rtol=1e-6, atol=0)
    assert held("run/export/average.safetensors") == held("run/export/w.safetensors")


@pytest.mark.parametrize("fields", ["decay: 0.5", "decay: 0.5, start: 100, use: {eval: swap}"])
def test_export_writes_the_model_as_trained_where_no_average_stands_in(workdir, backend: str, fields, capsys) -> None:
    train(workdir, backend, fields)
    assert execute(["export", "run", "--format", "weights"]) == 0
    said = capsys.readouterr().out
    assert "w.safetensors        1 tensor as trained; average does not stand in\n" in said
    assert ("average.safetensors  1 tensor as it began: the average was not taken yet\n" in said) == ("start" in fields)
    assert held("run/export/w.safetensors")["value"] == 6
