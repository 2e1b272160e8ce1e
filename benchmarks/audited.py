"""Time steps under an audit against plain ones: ``python -m benchmarks.audited [--rounds 9]``.

Each round takes three steps without an audit and three with one, so that a slow drift of the machine meets both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from runtime.audit import audit

STEPS = 3
Step = Callable[[], object]


def dcgan() -> Step:
    """Return a step of convolutions on images of 32 by 32."""
    up = [nn.ConvTranspose2d(64, 128, 8), nn.BatchNorm2d(128), nn.ReLU(), nn.ConvTranspose2d(128, 64, 4, 2, 1)]
    net_g = nn.Sequential(*up, nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())
    down = [nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.BatchNorm2d(128)]
    net_d = nn.Sequential(*down, nn.LeakyReLU(0.2), nn.Conv2d(128, 1, 8), nn.Flatten())
    opt_g = torch.optim.Adam(net_g.parameters(), 2e-4, fused=True)
    opt_d = torch.optim.Adam(net_d.parameters(), 2e-4, fused=True)
    real, ones, zeros = torch.randn(32, 3, 32, 32), torch.ones(32, 1), torch.zeros(32, 1)

    def step() -> None:
        fake = net_g(torch.randn(32, 64, 1, 1))
        opt_d.zero_grad()
        F.binary_cross_entropy_with_logits(net_d(real), ones).backward()
        F.binary_cross_entropy_with_logits(net_d(fake.detach()), zeros).backward()
        opt_d.step()
        opt_g.zero_grad()
        F.binary_cross_entropy_with_logits(net_d(fake), ones).backward()
        opt_g.step()

    return step


def language_model() -> Step:
    """Return a step of a transformer of four layers, with a clip and an average."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    net = nn.Sequential(nn.Embedding(500, 128), nn.TransformerEncoder(layer, 4, enable_nested_tensor=False))
    head = nn.Linear(128, 500)
    parameters = [*net.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-3)
    average = [each.detach().clone() for each in parameters]
    tokens = torch.randint(500, (16, 64))

    def step() -> None:
        loss = F.cross_entropy(head(net(tokens)).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average, parameters, strict=True):
                slow.lerp_(fast, 0.01)

    return step


def penalty() -> Step:
    """Return a step of a critic with a gradient penalty: a backward through a gradient."""
    net = nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 1))
    optimizer = torch.optim.Adam(net.parameters(), 1e-4)
    real, fake = torch.randn(128, 256), torch.randn(128, 256)

    def step() -> None:
        mixed = torch.lerp(real, fake, torch.rand(128, 1)).requires_grad_()
        (slope,) = torch.autograd.grad(net(mixed).sum(), mixed, create_graph=True)
        loss = net(fake).mean() - net(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def accumulation() -> Step:
    """Return an update by eight backwards of a convolution net under autocast."""
    body = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Flatten()]
    net = nn.Sequential(*body, nn.Linear(64 * 64, 10))
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    images, labels = torch.randn(16, 3, 16, 16), torch.randint(10, (16,))

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(8):
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(net(images), labels)
            (loss / 8).backward()
        optimizer.step()

    return step


LOOPS = {"DCGAN": dcgan, "language model": language_model, "gradient penalty": penalty, "accumulation": accumulation}


def take(step: Step) -> list[float]:
    """Return the milliseconds of some steps."""
    found: list[float] = []
    for _ in range(STEPS):
        begun = time.perf_counter()
        step()
        found.append(1e3 * (time.perf_counter() - begun))
    return found


def main() -> None:
    """Print a row for each loop."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audited", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"{'loop':<18}{'plain ms':>10}{'audited ms':>12}{'ratio':>8}{'least':>8}{'most':>8}{'first ms':>10}")
    for name, make in LOOPS.items():
        torch.manual_seed(0)
        step = make()
        take(step)
        plain, audited, ratios, firsts = list[float](), list[float](), list[float](), list[float]()
        for _ in range(rounds):
            before = statistics.median(take(step))
            begun = time.perf_counter()
            with audit():
                found = take(step)
            firsts.append(1e3 * (time.perf_counter() - begun) - sum(found))
            plain.append(before)
            audited.append(statistics.median(found))
            ratios.append(audited[-1] / before)
        row = (
            statistics.median(plain),
            statistics.median(audited),
            statistics.median(ratios),
            min(ratios),
            max(ratios),
        )
        print(f"{name:<18}{row[0]:>10.1f}{row[1]:>12.1f}", *(f"{each:>7.2f}" for each in row[2:]), end="")
        print(f"{statistics.median(firsts):>10.0f}")


if __name__ == "__main__":
    main()
