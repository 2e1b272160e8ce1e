"""Sound: a hook collects per-sample gradients, which are clipped, summed, noised and put in place of p.grad."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
MAX_NORM, NOISE, BATCH = 1.0, 0.8, 16


def keep_input(layer, inputs, output):
    layer.given = inputs[0].detach()


def keep_samples(layer, grad_input, grad_output):
    slope = grad_output[0].detach() * BATCH
    layer.samples = {"weight": torch.einsum("no,ni->noi", slope, layer.given), "bias": slope}


layers = [layer for layer in model if isinstance(layer, nn.Linear)]
for layer in layers:
    layer.register_forward_hook(keep_input)
    layer.register_full_backward_hook(keep_samples)

for _ in range(3):
    x, y = torch.randn(BATCH, 6), torch.randint(3, (BATCH,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    squares = sum(each.flatten(1).square().sum(dim=1) for layer in layers for each in layer.samples.values())
    factor = (MAX_NORM / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for layer in layers:
        for name, samples in layer.samples.items():
            clipped = torch.einsum("n,n...->...", factor, samples)
            noise = NOISE * MAX_NORM * torch.randn_like(clipped)
            getattr(layer, name).grad = (clipped + noise) / BATCH
    optimizer.step()
