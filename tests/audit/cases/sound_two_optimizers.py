"""Sound: sparse embedding and dense tower have an optimizer each; one backward fills both."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
embed = nn.EmbeddingBag(30, 8, sparse=True)
tower = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
sparse_opt = torch.optim.SparseAdam(embed.parameters(), lr=1e-2)
dense_opt = torch.optim.Adam(tower.parameters(), lr=1e-3)

for _ in range(3):
    items, clicked = torch.randint(30, (16, 5)), torch.randint(2, (16,)).float()
    loss = F.binary_cross_entropy_with_logits(tower(embed(items)).squeeze(1), clicked)
    sparse_opt.zero_grad()
    dense_opt.zero_grad()
    loss.backward()
    sparse_opt.step()
    dense_opt.step()
