"""Bugs without a script of their own: each is found at its line, and one edit makes a sound twin without a finding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runtime.audit import Report, audit
from runtime.audit.findings.catalogue import level_of

HEAD = """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
"""
PAST_THE_SCALER = """
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for x in torch.randn(3, 16, 4):
    opt.zero_grad()
    scaler.scale(net(x).square().mean()).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    scaler.update()
"""
KEPT_GRADIENT = """
class Heavy(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            if "buf" in self.state[p]:
                self.state[p]["buf"].mul_(0.9).add_(p.grad)
            else:
                self.state[p]["buf"] = p.grad
            p.sub_(self.state[p]["buf"], alpha=0.1)

opt = Heavy(net.parameters())
for x in torch.randn(3, 16, 4):
    opt.zero_grad(set_to_none=False)
    net(x).square().mean().backward()
    opt.step()
"""
DROPPING_TEACHER = """
class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(F.dropout(x, 0.5))

teacher = Teacher().eval().requires_grad_(False)
for x in torch.randn(3, 16, 4):
    with torch.no_grad():
        goal = teacher(x)
    opt.zero_grad()
    F.mse_loss(net(x), goal).backward()
    opt.step()
"""
BASELINE = """
value = nn.Linear(8, 1)
opt = torch.optim.SGD([*net.parameters(), *value.parameters()], 0.1)
for x in torch.randn(3, 16, 4):
    hidden = net[:2](x)
    with torch.no_grad():
        advantage = 1 - value(hidden)
    loss = (net[2](hidden) * advantage).mean() + (value(hidden) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def run(text: str, folder: Path) -> tuple[Report, list[str]]:
    """Audit a loop as a file, so that findings have its lines."""
    path = folder / "train.py"
    path.write_text(HEAD + text, encoding="utf-8")
    with audit() as audited, torch.random.fork_rng():
        exec(compile(HEAD + text, str(path), "exec"), {"torch": torch, "nn": nn, "F": F, "__name__": "train"})
    return audited.report, (HEAD + text).splitlines()


@pytest.mark.parametrize(
    ("bug", "found", "line", "edits"),
    [
        (
            PAST_THE_SCALER,
            "unguarded-step warning",
            "    opt.step()",
            [("opt.step()", "scaler.step(opt)")],
        ),
        (
            KEPT_GRADIENT,
            "grad-by-reference error",
            "    opt.zero_grad(set_to_none=False)",
            [("= p.grad", "= p.grad.clone()"), ("(set_to_none=False)", "()")],
        ),
        (
            DROPPING_TEACHER,
            "frozen-in-train-mode warning",
            "        goal = teacher(x)",
            [("F.dropout(x, 0.5)", "F.dropout(x, 0.5, self.training)")],
        ),
    ],
    ids=["past-the-scaler", "kept-gradient", "dropping-teacher"],
)
def test_a_bug_is_found_at_its_line_and_its_sound_twin_is_not(bug, found, line, edits, tmp_path):
    report, lines = run(bug, tmp_path)
    (finding,) = report.findings
    assert (f"{finding.code} {level_of(finding)}", lines[finding.place.line - 1]) == (found, line)
    for old, new in edits:
        assert bug.count(old) == 1
        assert run(bug.replace(old, new), tmp_path)[0].findings == ()


def test_a_baseline_under_no_grad_is_asked_about_and_not_advised_against(tmp_path):
    report, _ = run(BASELINE, tmp_path)
    (finding,) = report.findings
    assert (finding.code, level_of(finding)) == ("dead-term", "question")
    assert "right for a baseline or target, else freeze its weights instead" in finding.message
