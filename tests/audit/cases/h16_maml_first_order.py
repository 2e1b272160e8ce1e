"""MAML's inner gradient is taken without create_graph: a meta-gradient of first order; MAML-Pytorch#26."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
meta = [torch.randn(16, 1) * 0.5, torch.zeros(16), torch.randn(1, 16) * 0.5, torch.zeros(1)]
meta = [w.requires_grad_() for w in meta]
meta_optimizer = torch.optim.Adam(meta, lr=1e-3)


def forward(weights, x):
    w1, b1, w2, b2 = weights
    return F.linear(F.linear(x, w1, b1).tanh(), w2, b2)


for _ in range(3):
    meta_loss = 0.0
    for _ in range(2):
        amplitude, phase = torch.rand(1) * 5, torch.rand(1) * 3
        x = torch.rand(20, 1) * 10 - 5
        y = amplitude * (x + phase).sin()
        inner_loss = F.mse_loss(forward(meta, x[:10]), y[:10])
        grads = torch.autograd.grad(inner_loss, meta)  # expect: cut-meta-gradient question
        fast = [w - 0.01 * g for w, g in zip(meta, grads, strict=True)]
        meta_loss = meta_loss + F.mse_loss(forward(fast, x[10:]), y[10:])
    meta_optimizer.zero_grad()
    meta_loss.backward()
    meta_optimizer.step()
