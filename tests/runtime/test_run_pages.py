"""The pages of GS240 to GS249 show the messages that there are, word for word."""

from __future__ import annotations

import io
import os
import re
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from compiler.timing.units import Pace
from graphspec import load
from graphspec.diagnostics import SpecError
from runtime.checkpoints import read_checkpoint, write_checkpoint
from runtime.problems import problem
from runtime.train.display import Plain
from runtime.train.logs import read_rows
from runtime.train.loop import BestMetric, Loop, RunSchedule, RunState, find_run_schedule
from runtime.train.resume import compare_specs, find_past, refuse_changes
from runtime.train.run_folder import Lock, read_record, write_record
from tests.runtime.checkpoints.contents import content_at, forge
from tests.runtime.runs.test_record import RECORD

ROOT = Path(__file__).resolve().parents[2]
RUN = Path("runs/gan")
STEPS = RUN / "checkpoints"


def meet_missing():
    read_checkpoint(STEPS / "step-700")


def meet_damaged():
    os.truncate(STEPS / "step-1000" / "state.safetensors", 1024)
    read_checkpoint(STEPS / "step-1000")


def meet_newer():
    write_checkpoint(Path("step-500"), content_at(500))
    forge(Path("step-500"), lambda manifest: manifest.update(checkpoint=3))
    read_checkpoint(Path("step-500"))


def meet_edited():
    write_record(RUN, RECORD)
    path = RUN / "run.json"
    path.write_text(path.read_text().replace('"steps": 3000', '"steps": 9000'))
    read_record(RUN)


def meet_locked():
    with Lock(RUN), Lock(RUN):
        pass


def meet_changed():
    gan = ROOT / "examples" / "gan-digits" / "gan-digits.yaml"
    changed = ["ops.judged.after=[]", "models.generator.optimizer={name: sgd, lr: 1e-3}"]
    raise refuse_changes(RUN, compare_specs(load(gan), load(gan, changed)))


def meet_no_run():
    find_past(load(ROOT / "examples" / "gan-digits" / "gan-digits.yaml", ["name=gan"]), None)


def meet_no_rows():
    (RUN / "metrics.jsonl").write_text('{"step": 1, "time": 0.5}\nnoise\n')
    read_rows(RUN, 10)


def meet_no_figure():
    once = SimpleNamespace(run=lambda interrupt: {"loss": 0.5})
    state = RunState(best=BestMetric(metric="scores", mode="max"))
    run_schedule = RunSchedule(steps=0, log_every=1)
    Loop(
        step=None, feed=None, run_schedule=run_schedule, display=Plain(io.StringIO(), 0), state=state, evaluation=once
    )._evaluate()


def meet_no_length():
    spec = load(STREAM)
    with pytest.raises(SpecError) as caught:
        find_run_schedule(spec, Pace(batch=32))
    raise problem("GS249", caught.value.diagnostics[0].message, help=caught.value.diagnostics[0].help)  # without place


STREAM = """
graphspec: 1
name: stream
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
ops: {out: {forward: net, inputs: x}, loss: {loss: mse, inputs: [out, x]}, step: {update: net, loss: loss}}
data: {train: {class: "mine:Stream", batch: 32}}
run: {epochs: 3, checkpoint: 0.5 epochs}
"""

ACTS = {
    "GS240": meet_missing,
    "GS241": meet_damaged,
    "GS242": meet_newer,
    "GS243": meet_edited,
    "GS244": meet_locked,
    "GS245": meet_changed,
    "GS246": meet_no_run,
    "GS247": meet_no_rows,
    "GS248": meet_no_figure,
    "GS249": meet_no_length,
}


def general(text):
    """Return a message without the process, host and time it tells of."""
    named = text.replace(socket.gethostname(), "node7").replace(f"process {os.getpid()} ", "process 4711 ")
    return re.sub(r"since [\d:T+-]+", "since 2026-03-01T09:30:00+0100", named)


@pytest.mark.parametrize("code", ACTS)
def test_the_page_shows_the_message(workdir, code):
    for step in (500, 1000):
        write_checkpoint(STEPS / f"step-{step}", content_at(step))
    with pytest.raises(SpecError) as caught:
        ACTS[code]()
    page = (ROOT / "docs" / "errors" / f"{code}.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert general(str(caught.value)).removesuffix("\n\n1 error, 0 warnings") == shown.rstrip()
