"""Weights updated by hand through .data between two backwards of one graph; pytorch/pytorch#37573."""

import torch

torch.manual_seed(0)
w1 = torch.randn(4, 10, requires_grad=True)
w2 = torch.randn(10, 4, requires_grad=True)
critic = torch.randn(4, 1, requires_grad=True)
lr = 0.05

for _ in range(3):
    x, target = torch.randn(12, 4), torch.randn(12, 4)
    out = (x @ w1).tanh() @ w2
    value = (out @ critic).tanh()
    critic_loss = (value - 1).square().mean()
    model_loss = (out - target).square().mean() + value.mean()

    (grad,) = torch.autograd.grad(critic_loss, critic, retain_graph=True)
    critic.data -= lr * grad  # expect: stale-read error

    grads = torch.autograd.grad(model_loss, (w1, w2))  # expect: stale-read error
    for w, grad in zip((w1, w2), grads, strict=True):
        w.data -= lr * grad
