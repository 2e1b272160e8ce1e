"""Gradients of the embedding are zeroed to freeze it, and AdamW's weight decay moves it all the same; fairseq#4702."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
embed, head = nn.Embedding(12, 8), nn.Linear(8, 3)
optimizer = torch.optim.AdamW([*embed.parameters(), *head.parameters()], lr=1e-2, weight_decay=0.1)

for _ in range(3):
    tokens, label = torch.randint(12, (4, 5)), torch.randint(3, (4,))
    loss = F.cross_entropy(head(embed(tokens).mean(dim=1)), label)
    optimizer.zero_grad()
    loss.backward()
    embed.weight.grad.zero_()  # expect: frozen-moves error
    optimizer.step()  # expect: frozen-moves error
