"""Replicas of tf.distribute take the step of one process: MirroredStrategy in one process, and two real workers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, build, emit
from runtime.train.together import join
from tests.conformance.scenario import BACKENDS
from tests.processes.cases import CASES, FIT, PLAIN, SYNCED, TRAINED, write_text
from tests.processes.strategies import FEW, RARE, REPLICAS, SHOWN, SINGLE, Found, measure, read, try_case

pytestmark = [
    pytest.mark.xdist_group("shown by replicas"),  # one worker starts the processes
    pytest.mark.skipif("tensorflow" not in BACKENDS, reason="TensorFlow is not installed"),
]
HEAD = "graphspec: 1\nname: case\n"
REPLICATED = HEAD + "parallel: {kind: replicated}\n" + FIT + PLAIN


def mark(name: str) -> list[pytest.MarkDecorator]:
    """Return the mark of what the long set alone trains."""
    return [pytest.mark.long] if name in RARE else []


COMPARED = [
    pytest.param(kind, name, marks=mark(name))
    for kind, names in SHOWN.items()
    for name in names
    if name.removesuffix(SINGLE) in TRAINED
]


@cache
def alone(name: str) -> Found:
    """Return what one process finds."""
    return try_case(name, "alone")


@pytest.mark.parametrize(("kind", "name"), COMPARED)
def test_replicas_have_the_numbers_of_one_process(strategies: Path, kind: str, name: str) -> None:
    for rank in range(REPLICAS if kind == "workers" else 1):
        assert measure(alone(name), read(strategies, name, kind, rank)) < (1e-5 if name.endswith(SINGLE) else 1e-10)


@pytest.mark.parametrize("name", [pytest.param(name, marks=mark(name)) for name in SHOWN["workers"]])
def test_workers_have_the_same_bits(strategies: Path, name: str) -> None:
    first, second = (read(strategies, name, "workers", rank) for rank in range(REPLICAS))
    assert first
    assert all(np.array_equal(value, second[key], equal_nan=True) for key, value in first.items())


@pytest.mark.long
def test_a_batch_with_fewer_rows_than_replicas_is_refused_before_it_is_taken(strategies: Path) -> None:
    found = read(strategies, FEW, "mirrored")
    assert "error[GS227]: 'x' has 1 rows, and 2 replicas need 2 or more" in str(found["said"])
    np.testing.assert_allclose(found["loss"], alone("dropped")["loss 0"], rtol=0, atol=1e-10)


def find_combined(source: str) -> Counter[str]:
    """Return what emitted functions wait for, and how often: the values that all replicas have in common."""
    lines = (line.strip() for line in source.partition("def step(")[0].splitlines())
    return Counter(line.partition(" = ")[0] for line in lines if ".wait(" in line)


@pytest.mark.parametrize(
    "name", ["simultaneous", "everything in parts", "accumulated", "counted", "own", "gathered and own"]
)
def test_the_emitted_code_combines_what_that_of_pytorch_does(name: str) -> None:
    spec = load(write_text(CASES[name], "replicated"))
    theirs, own = (find_combined(emit(compile_step(spec, backend=each))) for each in ("torch", "tensorflow"))
    assert theirs == own != Counter()


def test_an_input_that_is_one_number_is_the_same_on_all_replicas() -> None:
    text = REPLICATED.replace("inputs: {x:", "inputs: {level: {shape: []}, x:").replace("[out, y]", "[moved, y]")
    text = text.replace("  loss:", "  moved: {call: add, inputs: [out, level]}\n  loss:")
    source = emit(compile_step(load(text), backend="tensorflow"))
    assert '"level": tf.TensorSpec(()' in source
    assert 'axes={"x": 0, "y": 0}' in source


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (REPLICATED.replace("replicated", "sharded"), "shards are"),
        (REPLICATED.replace("replicated}", "replicated, compress: fp16}"), "compressed gradients are"),
        (HEAD + "parallel: {kind: replicated}\n" + SYNCED + PLAIN, "`batch_norm` with `sync` is"),
    ],
    ids=["sharded", "compress", "sync"],
)
def test_what_only_pytorch_does_is_refused(text: str, said: str) -> None:
    compile_step(load(text))
    with pytest.raises(SpecError, match=f"E-REPLICAS.*{said} not built for the backend 'tensorflow'") as raised:
        compile_step(load(text), "tensorflow")
    assert "choose the backend 'torch'" in (raised.value.diagnostics[0].help or "")


def begin(models: Mapping[str, object] | None = None) -> Step:
    """Return a step of replicas on the CPU."""
    return build(compile_step(load(REPLICATED), backend="tensorflow"), device="cpu", dtype="float64", models=models)


def test_a_step_is_built_in_the_scope_of_a_strategy_whose_replicas_have_all_weights() -> None:
    import tensorflow as tf

    with tf.distribute.OneDeviceStrategy("cpu:0").scope(), pytest.raises(SpecError, match=r"GS273.*OneDeviceStrategy"):
        begin()
    strategy = tf.distribute.MirroredStrategy(["cpu:0"])
    with strategy.scope():
        step = begin()
    rows = {"x": np.ones((3, 4)), "y": np.ones((3, 2))}
    np.testing.assert_allclose(np.asarray(step(rows)["loss"]), np.asarray(begin()(rows)["loss"]), rtol=0, atol=1e-12)


def test_a_model_from_outside_of_the_scope_is_refused() -> None:
    import tensorflow as tf

    step = begin()
    with tf.distribute.MirroredStrategy(["cpu:0"]).scope(), pytest.raises(SpecError, match=r"GS273.*made outside of"):
        begin(models={"net": step.models["net"]})


def test_workers_without_the_scope_of_their_strategy_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"worker": ["localhost:1", "localhost:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    with pytest.raises(SpecError, match=r"GS257.*TF_CONFIG names 2 workers, and the step is built outside"):
        begin()


def test_processes_that_are_no_workers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SpecError, match=r"GS257.*2 processes were started, and TF_CONFIG does not name them"):
        join(load(REPLICATED), "tensorflow", "cpu", is_debugging=False)
