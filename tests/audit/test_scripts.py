"""A script under an audit ends after its steps, and warns as it does without one."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType

import torch

from runtime.audit.session import _run_main, audit_script
from runtime.audit.trace import Update
from runtime.port.porting import port_script

ANEW = """
import torch
from torch import nn
net = nn.Linear(4, 1)
for x in torch.randn(7, 8, 4):
    opt = torch.optim.SGD(net.parameters(), 0.1)
    net(x).square().mean().backward()
    opt.step()
raise RuntimeError("never stopped")
"""
WARNING = """
import warnings
import torch
from torch import nn

def warn(place):
    for level in range(1, 9):
        warnings.warn(f"{place} {level}", stacklevel=level)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        warn("forward")
        return self.layer(x)

class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        warn("step")
        return super().step(closure)

class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        warn("function")
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        warn("backward")
        return grad

net = Net()
hooked = Net()
hooked.register_forward_hook(lambda *_: None)
opt = Optimizer(net.parameters(), 0.1)
schedule = torch.optim.lr_scheduler.StepLR(opt, 2)
for x in torch.randn(2, 8, 4):
    hooked(x)
    y = Same.apply(net(x))
    y.register_hook(lambda grad: warn("hook"))
    y.square().mean().backward()
    opt.step()
    schedule.step(1)
    warn("loop")
"""
DIRECT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.second(self.first(x).relu())

net, data = Net(), torch.randn(5, 8, 4)
opt = torch.optim.SGD(net.parameters(), 0.1)
for x in data:
    loss = net.forward(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def write(text: str, folder: Path) -> Path:
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_loop_that_makes_its_optimizer_anew_ends_after_the_steps(tmp_path: Path):
    report, problem = audit_script(write(ANEW, tmp_path), (), 3)
    assert problem is None
    assert len(list(report.trace.of(Update))) == 3


def test_warnings_name_the_lines_of_a_run_without_an_audit(tmp_path: Path):
    path, shown = write(WARNING, tmp_path), list[list[tuple[str, str, int]]]()
    main = ModuleType("__main__")
    for run in (lambda: _run_main(main, path), lambda: audit_script(path, (), 3)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run()
        shown.append([(str(each.message), each.filename, each.lineno) for each in caught])
    plain, audited = shown
    assert len(plain) > 60
    # what runs a script here has no place in a run of its own, where Python says `sys`
    seen = (str(path), str(Path(torch.__file__).parent))
    assert [each if each[1].startswith(seen) else (each[0], "sys", 1) for each in plain] == audited


def test_a_forward_that_is_called_past_the_hooks_is_asked_about(tmp_path: Path):
    made, _ = port_script(write(DIRECT, tmp_path), (), 3)
    assert [each.partition(": ")[2].partition(",")[0] for each in made.questions] == [
        "net.forward() runs without a call of net"
    ]
