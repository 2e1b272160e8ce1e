"""Training loops as people write them, for audits: what each does is the same with and without one."""

from __future__ import annotations

import copy
from itertools import pairwise
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

BATCH = 8


def block(*sizes):
    """Return linear layers with batch norm, dropout and ReLU between them."""
    layers = []
    for inner, outer in pairwise(sizes):
        layers += [nn.Linear(inner, outer), nn.BatchNorm1d(outer), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers[:-3])


def gan(steps, *, fused=False, keep_fake=False):
    """Alternating updates; with ``keep_fake`` the generator's loss reads the score from before D's update."""
    g, d = block(4, 8, 6), block(6, 8, 1)
    opt_g = torch.optim.Adam(g.parameters(), 1e-2, fused=fused)
    opt_d = torch.optim.Adam(d.parameters(), 1e-2, fused=fused)
    losses = []
    for _ in range(steps):
        fake = g(torch.randn(BATCH, 4))
        judged = d(fake) if keep_fake else None
        opt_d.zero_grad()
        loss_d = F.softplus(-d(torch.randn(BATCH, 6))).mean() + F.softplus(d(fake.detach())).mean()
        loss_d.backward()
        opt_d.step()
        opt_g.zero_grad()
        loss_g = F.softplus(-(d(fake) if judged is None else judged)).mean()
        loss_g.backward()
        opt_g.step()
        losses += [loss_d.item(), loss_g.item()]
    return SimpleNamespace(models=[g, d], optimizers=[opt_g, opt_d], values=losses)


def penalty(steps):
    """Train a critic with a gradient penalty, clamped weights and RMSprop."""
    d = block(6, 8, 1)
    opt = torch.optim.RMSprop(d.parameters(), 1e-2)
    values = []
    for _ in range(steps):
        x = torch.randn(BATCH, 6, requires_grad=True)
        (slope,) = torch.autograd.grad(d(x).sum(), x, create_graph=True)
        loss = d(torch.randn(BATCH, 6)).mean() + (slope.norm(dim=1) - 1).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        for parameter in d.parameters():
            parameter.data.clamp_(-0.5, 0.5)
        values.append(loss.item())
    return SimpleNamespace(models=[d], optimizers=[opt], values=values)


def student(steps):
    """Train a mean teacher with accumulation, clipping, a schedule and a checkpointed block."""
    net = nn.Sequential(block(6, 8, 8), nn.Linear(8, 3))
    teacher = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
    values = []
    for _ in range(steps):
        opt.zero_grad()
        for _ in range(2):
            x = torch.randn(BATCH, 6)
            with torch.no_grad():
                goal = teacher(x)
            hidden = checkpoint(net[0], x.requires_grad_(), use_reentrant=False)
            loss = F.mse_loss(net[1](hidden), goal) + net[1](hidden).square().mean()
            (loss / 2).backward()
            values.append(loss.item())
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        schedule.step()
        with torch.no_grad():
            for mine, its in zip(teacher.parameters(), net.parameters(), strict=True):
                mine.lerp_(its, 0.1)
            for mine, its in zip(teacher.buffers(), net.buffers(), strict=True):
                mine.copy_(its)
    return SimpleNamespace(models=[net, teacher], optimizers=[opt], values=values)


def inference(steps):
    """Distil a teacher that moves its statistics and draws in inference mode."""
    norm = nn.InstanceNorm1d(6, track_running_stats=True)
    teacher = nn.Sequential(norm, nn.Flatten(), block(24, 8, 3), nn.RReLU(), nn.AlphaDropout(0.1))
    net = nn.Linear(24, 3)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    values = []
    for _ in range(steps):
        x = torch.randn(BATCH, 6, 4)
        with torch.inference_mode():
            goal = teacher(x)
        loss = F.mse_loss(net(x.flatten(1)), goal.clone())
        opt.zero_grad()
        loss.backward()
        opt.step()
        values += [loss.item(), F.dropout(goal, 0.2).sum().item()]
    return SimpleNamespace(models=[net, teacher], optimizers=[opt], values=values)


def scaled(steps):
    """Half precision with a loss scaler that skips its second step."""
    net = nn.Sequential(nn.Conv1d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 2))
    opt = torch.optim.AdamW(net.parameters(), 1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    values = []
    for step in range(steps):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(torch.randn(BATCH, 3, 6)).square().mean()
        scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        values += [loss.item(), scaler.get_scale()]
    return SimpleNamespace(models=[net], optimizers=[opt], values=values)


def closures(steps):
    """L-BFGS, which runs forward and backward inside its step."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    opt = torch.optim.LBFGS(net.parameters(), max_iter=3)
    x, y = torch.randn(BATCH, 3), torch.randn(BATCH, 1)
    values = []

    def closure():
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    for _ in range(steps):
        values.append(opt.step(closure).item())
    return SimpleNamespace(models=[net], optimizers=[opt], values=values)


def stale(write):
    """Return the error of a backward whose weights or values were written after the forward, by one way of many."""
    p = nn.Parameter(torch.arange(1.0, 7.0).reshape(2, 3))
    net = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 1))
    conv = nn.Conv1d(2, 3, 1)
    x = torch.randn(4, 3, requires_grad=True)
    with torch.no_grad():
        if write == "linear":
            with torch.enable_grad():
                loss = net(x).sum()
            net[2].weight.add_(1)
        elif write == "conv":
            with torch.enable_grad():
                loss = conv(torch.randn(2, 2, 5)).sum()
            conv.weight.add_(1)
        elif write == "leaf":
            with torch.enable_grad():
                loss = (p * torch.ones(2, 3).mul(2) * p).sum()
            p.add_(1)
        elif write == "result":
            with torch.enable_grad():
                y = p.exp()
                loss = (y * 1.0).sum()
            y.add_(1)
        elif write == "view":
            with torch.enable_grad():
                y = (p * 2)[1:]
                loss = (y * y).sum()
            y.add_(1)
        elif write == "base":
            with torch.enable_grad():
                base = p * 2
                loss = base.view(6).square().mul(base.view(6)).sum()
            base.add_(1)
        elif write == "constant":
            y = torch.ones(2, 3)
            with torch.enable_grad():
                loss = (p * y).sum()
            y.add_(1)
        elif write == "data":
            with torch.enable_grad():
                loss = net(x).sum()
            net[2].weight.data.add_(1)
        elif write == "rebound":
            with torch.enable_grad():
                loss = (p * p).sum()
            p.data = p.data * 3
        elif write == "softmax":
            with torch.enable_grad():
                y = net(x).softmax(1)
                loss = y.log().sum()
            y.mul_(2)
    loss.backward()
    return [each.grad for each in (p, x, *net.parameters(), *conv.parameters())]


WRITES = ("linear", "conv", "leaf", "result", "view", "base", "constant", "data", "rebound", "softmax")
LOOPS = {
    "gan": gan,
    "gan-fused": lambda steps: gan(steps, fused=True),
    "gan-fused-stale": lambda steps: gan(steps, fused=True, keep_fake=True),
    "penalty": penalty,
    "student": student,
    "inference": inference,
    "scaled": scaled,
    "closures": closures,
}
