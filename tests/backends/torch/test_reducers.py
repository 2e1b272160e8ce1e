"""Modules that act on gradients themselves are refused; compiled modules and hooks that a step calls are not."""

from __future__ import annotations

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.tensor import distribute_module
from torch.nn.parallel import DataParallel, DistributedDataParallel

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build
from runtime.backends.torch.models import find_late_hook
from tests.backends.torch.specs import batch_of, build_of, plan_of

HERE = "tests.backends.torch.test_reducers"
NET = "{class: 'zoo:Net', optimizer: {name: sgd, lr: 0.1}}"
MADE = f"{{class: '{HERE}:make', optimizer: {{name: sgd, lr: 0.1}}}}"
GAN = """
graphspec: 1
name: gan
inputs: {x: {shape: [batch, 4]}, z: {shape: [batch, 2]}}
models:
  g: {class: "zoo:G", optimizer: {name: sgd, lr: 0.1}}
  d: {class: "zoo:D", optimizer: {name: sgd, lr: 0.1}}
ops:
  fake: {forward: g, inputs: z}
  real: {forward: d, inputs: x}
  shown: {forward: d, inputs: fake}
  on_real: {loss: bce_with_logits, inputs: [real, 1.0]}
  on_fake: {loss: bce_with_logits, inputs: [shown, 0.0]}
  d_loss: {call: add, inputs: [on_real, on_fake]}
  step_d: {update: d, loss: d_loss}
  judged: {forward: d, inputs: fake, after: step_d}
  g_loss: {loss: bce_with_logits, inputs: [judged, 1.0]}
  step_g: {update: g, loss: g_loss}
"""


class Holder(nn.Module):
    """A module with another inside, registered or in a list."""

    def __init__(self, inner: nn.Module, *, hidden: bool = False) -> None:
        super().__init__()
        self.registered = inner.module if hidden else inner
        self.inner = [inner]

    def forward(self, x):
        return self.inner[0](x)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def make() -> nn.Module:
    """Return a wrapped module, as a `class:` of a spec may."""
    return DistributedDataParallel(net())


def partly_sharded() -> nn.Module:
    model = net()
    fully_shard(model[0])
    return model


def with_hook() -> nn.Module:
    model = net()
    model[0].weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return model


def with_hook_of_node(kind: str) -> nn.Module:
    """Return a model whose first weight keeps a hook on the node that would add its gradient to `.grad`."""
    model = net()
    model.node = model[0].weight.expand_as(model[0].weight).grad_fn.next_functions[0][0]
    getattr(model.node, kind)(lambda *gradients: None)
    return model


WRAPPED = {
    "ddp": (lambda: DistributedDataParallel(net()), "is wrapped by DistributedDataParallel", "`net.module`"),
    "ddp inside": (
        lambda: Holder(DistributedDataParallel(net())),
        "part 'registered' is wrapped by DistributedDataParallel",
        "`net.registered.module`",
    ),
    "ddp in a list": (
        lambda: Holder(DistributedDataParallel(net()), hidden=True),
        r"part 'inner\.0' is wrapped by DistributedDataParallel",
        "parallel",
    ),
    "compiled ddp": (
        lambda: torch.compile(DistributedDataParallel(net()), backend="eager"),
        "part '_orig_mod' is wrapped",
        "`net._orig_mod.module`",
    ),
    "data parallel": (lambda: DataParallel(net()), "is wrapped by DataParallel", "`net.module`"),
    "fsdp": (
        lambda: FullyShardedDataParallel(
            net(), sharding_strategy=ShardingStrategy.NO_SHARD, device_id=torch.device("cpu")
        ),
        "is wrapped by FullyShardedDataParallel",
        "as it was before; shards are declared in the spec, by `kind: sharded`",
    ),
    "fully_shard": (lambda: fully_shard(net()), "was given to `fully_shard`", "as it was before"),
    "fully_shard inside": (partly_sharded, "part '0' was given to `fully_shard`", "as it was before"),
    "dtensor": (
        lambda: distribute_module(net(), init_device_mesh("cpu", (1,))),
        r"parameter '0\.weight' is spread over processes",
        "as it was before",
    ),
    "hook": (with_hook, r"parameter '0\.weight' has a post-accumulate-grad hook", "`transform`"),
    "hook of a node": (
        lambda: with_hook_of_node("register_hook"),
        r"parameter '0\.weight' has a hook on its AccumulateGrad node",
        "`transform`",
    ),
    "hook before a node": (
        lambda: with_hook_of_node("register_prehook"),
        r"parameter '0\.weight' has a hook on its AccumulateGrad node",
        "`transform`",
    ),
}


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory):
    """Make a group of one process."""
    store = tmp_path_factory.mktemp("group") / "store"
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("name", WRAPPED)
def test_a_module_that_acts_on_gradients_is_refused(name):
    wrap, message, remedy = WRAPPED[name]
    with pytest.raises(SpecError, match=f"GS273.*model 'net'.*{message}") as raised:
        build_of(NET, models={"net": wrap()})
    assert remedy in raised.value.diagnostics[0].help


def test_a_factory_that_wraps_what_it_makes_is_refused():
    with pytest.raises(SpecError, match=r"GS273.*is wrapped by DistributedDataParallel"):
        build(plan_of(MADE), allow=[HERE])


def test_a_wrapped_module_in_place_of_layers_is_refused():
    with pytest.raises(SpecError, match=r"GS273.*is wrapped by DistributedDataParallel"):
        build_of("{layers: [{linear: 3}], optimizer: sgd}", models={"net": make()})


def test_the_module_inside_of_a_wrapper_trains_as_it_would_alone():
    wrapped, alone = make(), net()
    step = build_of(NET, models={"net": wrapped.module})
    batch = batch_of()
    step(batch)
    loss = nn.functional.mse_loss(alone(torch.tensor(batch["x"])), torch.tensor(batch["t"]))
    loss.backward()
    torch.optim.SGD(alone.parameters(), lr=0.1).step()
    torch.testing.assert_close(dict(wrapped.module.named_parameters()), dict(alone.named_parameters()))


def test_hooks_of_tensors_and_modules_act_as_they_do_in_a_loop():
    models = [net(), net()]
    for model in models:
        model[2].weight.register_hook(lambda gradient: 2 * gradient)
        model[1].register_full_backward_hook(lambda module, inside, outside: (3 * inside[0],))
    step, batch = build_of(NET, models={"net": models[0]}), batch_of()
    step(batch)
    nn.functional.mse_loss(models[1](torch.tensor(batch["x"])), torch.tensor(batch["t"])).backward()
    torch.optim.SGD(models[1].parameters(), lr=0.1).step()
    torch.testing.assert_close(dict(models[0].named_parameters()), dict(models[1].named_parameters()))


def test_a_look_at_the_hooks_of_a_node_leaves_none_and_keeps_those_it_finds():
    model, called = net(), []
    weight = model[0].weight
    node = weight.expand_as(weight).grad_fn.next_functions[0][0]
    assert not find_late_hook(weight)
    assert not find_late_hook(weight.detach())
    handle = node.register_hook(lambda *_: called.append(1))
    assert find_late_hook(weight)
    model(torch.ones(1, 4)).sum().backward()
    assert called == [1]
    handle.remove()
    assert not find_late_hook(weight)


def train_gan(wrap) -> dict[str, torch.Tensor]:
    """Return the weights of a GAN after three steps, its discriminator once judging with frozen weights."""
    torch.manual_seed(1)
    made = {
        "g": nn.Sequential(nn.Linear(2, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4)),
        "d": nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)),
    }
    made["d"][1].register_full_backward_hook(lambda module, inside, outside: (3 * inside[0],))
    step = build(compile_step(load(GAN)), device="cpu", models={name: wrap(each) for name, each in made.items()})
    for _ in range(3):
        step({"x": torch.randn(6, 4), "z": torch.randn(6, 2)})
    return {f"{name}.{key}": each for name, model in made.items() for key, each in model.state_dict().items()}


@pytest.mark.filterwarnings("ignore")  # torch.compile sets off warnings of torch about itself
def test_compiled_modules_train_as_plain_ones_do():
    torch.compiler.reset()
    torch.testing.assert_close(
        train_gan(lambda model: torch.compile(model, backend="aot_eager")), train_gan(lambda m: m)
    )


@pytest.mark.filterwarnings("ignore")
def test_a_second_derivative_through_a_compiled_module_says_so():
    torch.compiler.reset()
    ops = """
  y: {forward: net, inputs: x}
  slope: {gradient: top, wrt: x}
  top: {call: mean, inputs: y}
  loss: {loss: mse, inputs: [slope, 0.0]}
  step: {update: net, loss: loss, missing: zero}
"""
    step = build_of(NET, ops, models={"net": torch.compile(net(), backend="aot_eager")})
    with pytest.raises(SpecError, match=r"double backward|no second derivative") as raised:
        step({"x": batch_of()["x"]})
    assert "without torch.compile" in raised.value.diagnostics[0].help
