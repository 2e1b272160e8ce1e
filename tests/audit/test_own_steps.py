"""Steps that are sound because other tests compare their numbers have no error and no warning under an audit."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.run import WORKLOADS
from benchmarks.workloads import Workload
from compiler import compile_step
from examples.td3 import pendulum
from graphspec import load
from runtime import build
from runtime.audit import Report, audit
from runtime.audit.trace import Backward, Forward, Update, Write
from runtime.data import open_feed

STEPS = 3
EXAMPLES = Path(__file__).parents[2] / "examples"
ALLOWED = sorted({path.stem for path in EXAMPLES.glob("*/*.py")})


def judge(report: Report) -> list[str]:
    return [str(each) for level in ("error", "warning") for each in report.of(level)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
@pytest.mark.parametrize("kind", ["expert", "idiom"])
def test_a_hand_written_reference_step_is_sound(kind: str, workload: type[Workload]):
    torch.manual_seed(0)
    made = workload()
    step = getattr(made, kind)()
    with audit() as audited:
        for batch in made.batches(STEPS * made.period):
            step(batch)
    assert judge(audited.report) == []
    assert len(list(audited.report.trace.of(Update))) >= STEPS
    assert audited.report.trace.unseen == ()


GATHERING = {"maml"}
"""Examples whose first update takes more steps than are audited."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the examples, with the data that one of them records."""
    home = shutil.copytree(EXAMPLES, tmp_path_factory.mktemp("audited") / "examples")
    np.savez(home / "td3" / "transitions.npz", allow_pickle=False, **pendulum.record(count=2))
    return home


@pytest.mark.sample(8)
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_the_step_of_an_example_is_sound(path: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
    copied = home / path.relative_to(EXAMPLES)
    monkeypatch.syspath_prepend(str(copied.parent))
    plan = compile_step(load(copied))
    step = build(plan, device="cpu", allow=ALLOWED)
    feed = open_feed(plan.spec, "train", seed=0, allow=ALLOWED, directory=copied.parent)
    feed.attach(step)
    batches = (batch for _ in itertools.count() if (batch := feed.next()) is not None)  # None ends an epoch
    taken = list(itertools.islice(batches, STEPS))
    with audit() as audited:
        for batch in taken:
            step(batch)
    trace = audited.report.trace
    assert judge(audited.report) == []
    assert trace.error == ""
    # emitted steps bring updates of their own, which the audit sees as writes of weights
    kinds = {type(each) for each in trace.events}
    assert {Forward, Backward} <= kinds
    assert (Write in kinds) == (path.stem not in GATHERING)
