"""Two processes with gloo take the steps of the catalogue's replicated specs, by the plan and by hand.

``python -m tests.catalogue.replicas FOLDER`` writes the weights that each of them ends with.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from runtime import build
from tests.catalogue.mathematics import high, low, mse
from tests.catalogue.trial import batches, make_net, plan_of, world_of

WORLD = 2
SPECS = ("replicated-gan", "replicated-penalty", "replicated-micro-batches")
Nets = Mapping[str, torch.nn.Module]
Batch = Mapping[str, torch.Tensor]


def judge_twice(nets: Nets, batch: Batch) -> None:
    """Make the mistake: two forwards of a wrapped model, then two backwards, of which only one is reduced."""
    g, d = nets["g"], nets["d"]
    fake = g(batch["z"])
    real, judged = d(batch["image"]), d(fake.detach())
    high(real).backward()
    low(judged).backward()
    high(d.module(fake)).backward(inputs=[*g.parameters()])
    step(nets)


def punish_by_grad(nets: Nets, batch: Batch) -> None:
    """Make the mistake: the gradients of the update come from `autograd.grad`, past the hooks that reduce."""
    critic, x = nets["critic"], batch["x"].clone().requires_grad_()
    score = critic(x)
    (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
    loss = score.mean() + 10 * mse(slope.norm(dim=1), 1.0)
    parameters = [*critic.parameters()]
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    step(nets)


def step(nets: Nets) -> None:
    """Go down the gradients that all parameters have, and forget them."""
    with torch.no_grad():
        for parameter in (each for net in nets.values() for each in net.parameters()):
            parameter -= 0.1 * (0 if parameter.grad is None else parameter.grad)
            parameter.grad = None


HANDS: Mapping[str, Callable[[Nets, Batch], None]] = {
    "replicated-gan": judge_twice,
    "replicated-penalty": punish_by_grad,
}


def run(rank: int, folder: Path) -> list[object]:
    """Take the steps of all specs as one of the processes; return what must outlive its group.

    To free the last reducer of a group joins Gloo's thread, and holds the GIL, for which that thread may wait.
    """
    kept: list[object] = []
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD)
    for name in SPECS:
        plan = plan_of(name)
        trained = build(plan, device="cpu", dtype="float64")
        start = world_of(trained.tensors())
        nets = {each: DistributedDataParallel(make_net(weights)) for each, weights in start.items()}
        kept.append(nets)
        for batch in batches(plan):
            own = {key: torch.tensor_split(value, WORLD)[rank] for key, value in batch.items()}
            trained({key: value.numpy() for key, value in own.items()})
            if name in HANDS:
                HANDS[name](nets, own)
        save(folder / f"{name}.{rank}.npz", world_of(trained.tensors()))
        save(folder / f"{name}.hand.{rank}.npz", {each: dict(net.module.state_dict()) for each, net in nets.items()})
        save(folder / f"{name}.start.npz", start)
    dist.destroy_process_group()
    return kept


def save(path: Path, world: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
    """Write all weights, by model and name."""
    flat = {f"{model}/{name}": value.numpy() for model, weights in world.items() for name, value in weights.items()}
    np.savez(path, allow_pickle=False, **flat)


def main(folder: Path) -> int:
    """Fork the processes; return how many failed."""
    children: list[int] = []
    for rank in range(WORLD):
        if child := os.fork():
            children.append(child)
            continue
        try:
            kept = run(rank, folder)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0 if kept else 1)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
