"""An audit changes nothing: weights, buffers, state, random numbers, values and errors are those of a plain run."""

from __future__ import annotations

import gc
import warnings
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler
from torch.optim.optimizer import _global_optimizer_pre_hooks

from runtime.audit import audit
from tests.audit.labels import scripts
from tests.audit.loops import LOOPS, WRITES, stale
from tests.audit.mutants import read_edits


def run(loop):
    """Return everything that a loop leaves, and the state of the random numbers behind it."""
    torch.manual_seed(7)
    left = loop(3)
    tensors = [t for model in left.models for t in model.state_dict().values()]
    tensors += [parameter.grad for model in left.models for parameter in model.parameters()]
    for optimizer in left.optimizers:
        state = optimizer.state_dict()["state"]
        tensors += [value for slots in state.values() for value in slots.values() if isinstance(value, torch.Tensor)]
    return tensors, left.values, torch.get_rng_state()


def same(one, other):
    return (one is None and other is None) or torch.equal(one.nan_to_num(), other.nan_to_num())


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_leaves_bit_for_bit_what_it_leaves_without_an_audit(name):
    plain, values, state = run(LOOPS[name])
    with audit():
        audited, audited_values, audited_state = run(LOOPS[name])
    assert len(plain) == len(audited) > 0
    assert all(map(same, plain, audited))
    assert values == audited_values
    assert torch.equal(state, audited_state)


KEPT = []
"""Replicated models, to the end of the process: PyTorch may never return where their group is freed after a backward.

It joins the threads of gloo without releasing the interpreter, which one of them may wait for (pytorch/pytorch#56297).
"""


def leave(source, path, capsys, context):
    """Run a script; return all numbers that its variables hold, what it prints, its error, and the random state."""
    names, error = {"__name__": "__main__", "__file__": str(path)}, ""
    with torch.random.fork_rng(), warnings.catch_warnings(), context:
        warnings.simplefilter("ignore")
        torch.manual_seed(7)
        try:
            exec(compile(source, str(path), "exec"), names)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        state = torch.get_rng_state()
    left = [value for name, value in names.items() if not name.startswith("__")]
    KEPT.extend(value for value in left if isinstance(value, DistributedDataParallel))
    return [*numbers(left)], capsys.readouterr(), error, state


def numbers(values):
    """Yield the tensors and numbers that values hold, gradients and the state of optimizers included."""
    for value in values:
        match value:
            case nn.Module():
                yield from numbers([value.state_dict(), [each.grad for each in value.parameters()]])
            case torch.Tensor():
                yield value.detach().to_dense()
            case bool() | int() | float():
                yield torch.tensor(value)
            case dict():
                yield from numbers(value.values())
            case list() | tuple():
                yield from numbers(value)
            case type():
                pass
            case _ if hasattr(value, "state_dict"):
                yield from numbers([value.state_dict()])


UNSET = "h68_fused_momentum_on_skip"
"""Its optimizer ends with memory that was never given a value: two plain runs differ, too."""
SCRIPTS = {
    each.stem: each.read_text(encoding="utf-8") for each in [*scripts("sound_"), *scripts("h")] if each.stem != UNSET
}
MUTANTS = {f"{number}-{each.script}": each.source() for number, each in enumerate(read_edits(), 1)}


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.sample(14)) for name in SCRIPTS),
        *(pytest.param(name, marks=pytest.mark.long) for name in MUTANTS),
    ],
)
def test_a_script_leaves_bit_for_bit_what_it_leaves_without_an_audit(name, tmp_path, capsys):
    source = {**SCRIPTS, **MUTANTS}[name]
    plain, printed, error, state = leave(source, tmp_path / "train.py", capsys, nullcontext())
    audited, printed_too, error_too, state_too = leave(source, tmp_path / "train.py", capsys, audit())
    assert (printed, error) == (printed_too, error_too)
    assert torch.equal(state, state_too)
    assert len(plain) == len(audited) > 0
    assert all(map(same, plain, audited))


@pytest.mark.parametrize("write", WRITES)
def test_a_backward_raises_the_error_that_it_raises_without_an_audit(write):
    def attempt():
        torch.manual_seed(7)
        try:
            return stale(write), ""
        except RuntimeError as error:
            return [], str(error)

    gradients, message = attempt()
    with audit() as report:
        audited, audited_message = attempt()
    assert audited_message == message
    assert all(map(same, gradients, audited))
    found = {each.code for each in report.findings}
    assert found & {"stale-read", "stale-read-unneeded", "stale-value"}


@pytest.mark.long
def test_compiled_models_run_compiled():
    def loop(steps):
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
        fast = torch.compile(net, backend="aot_eager")
        scale = torch.compile(lambda x: x.sin() * 3, backend="aot_eager")
        opt = torch.optim.SGD(net.parameters(), 0.1)
        values = []
        for _ in range(steps):
            loss = fast(scale(torch.randn(8, 3))).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            values.append(loss.item())
        return SimpleNamespace(models=[net], optimizers=[opt], values=values)

    frames = []
    for context in (nullcontext(), audit()):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        with context as report:
            frames.append((run(loop), torch._dynamo.utils.counters["frames"]["ok"]))
    (plain, values, state), compiled = frames[0]
    (audited, audited_values, audited_state), compiled_too = frames[1]
    assert compiled == compiled_too > 0
    assert all(map(same, plain, audited))
    assert values == audited_values
    assert torch.equal(state, audited_state)
    assert report.is_sound
    assert len(report.report.trace.unseen) == 2


def test_everything_is_let_go_of():
    before = (
        torch.autograd._engine_run_backward,
        torch.amp.GradScaler.step,
        lr_scheduler.LRScheduler.step,
        torch.optim.Optimizer.__init__,
        len(modules._global_forward_hooks),
        len(modules._global_forward_pre_hooks),
        len(_global_optimizer_pre_hooks),
    )
    with audit() as report:
        left = LOOPS["gan"](2)
    after = (
        torch.autograd._engine_run_backward,
        torch.amp.GradScaler.step,
        lr_scheduler.LRScheduler.step,
        torch.optim.Optimizer.__init__,
        len(modules._global_forward_hooks),
        len(modules._global_forward_pre_hooks),
        len(_global_optimizer_pre_hooks),
    )
    assert after == before
    refs = [weakref.ref(each) for each in (*left.models, *left.optimizers, *left.models[0].parameters())]
    del left
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)
    assert report.report.trace.events


def test_an_exception_of_the_loop_is_its_own_and_ends_the_audit():
    class Own(Exception):
        pass

    net = nn.Linear(2, 1)

    def fail():
        net(torch.ones(1, 2)).sum().backward()
        raise Own("mine")

    with pytest.raises(Own, match="mine"), audit() as report:
        fail()
    assert report.report.trace.error == "Own: mine"
    assert torch.autograd._engine_run_backward.__module__ == "torch.autograd.graph"


def test_pytorch_warns_at_the_line_of_the_program_as_without_an_audit():
    def loop():
        net = nn.Linear(2, 1)
        opt = torch.optim.SGD(net.parameters(), 0.1)
        schedule = lr_scheduler.StepLR(opt, 10)
        schedule.step()  # before the first step of the optimizer
        product = net.weight * 2
        product.grad  # noqa: B018  # of a tensor that is no leaf

    told = []
    for context in (nullcontext(), audit()):
        with warnings.catch_warnings(record=True) as caught, context:
            warnings.simplefilter("always")
            loop()
        told.append([(str(each.message), each.category, each.filename, each.lineno) for each in caught])
    assert told[0] == told[1]
    assert {file for _, _, file, _ in told[0]} == {__file__}
    assert len(told[0]) == 2
