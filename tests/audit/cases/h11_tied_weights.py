"""An embedding tied to the output layer is stepped by the optimizers of both halves; pytorch/pytorch#40967."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
vocabulary, width = 20, 8
embed = nn.Embedding(vocabulary, width)
rnn = nn.GRU(width, width, batch_first=True)
decoder = nn.Linear(width, vocabulary, bias=False)
decoder.weight = embed.weight
opt_encoder = torch.optim.Adam([*embed.parameters(), *rnn.parameters()], lr=1e-3)
opt_decoder = torch.optim.Adam(decoder.parameters(), lr=1e-3)  # expect: shared-parameter error

for _ in range(3):
    tokens = torch.randint(vocabulary, (4, 9))
    hidden, _ = rnn(embed(tokens[:, :-1]))
    loss = F.cross_entropy(decoder(hidden).flatten(0, 1), tokens[:, 1:].flatten())
    opt_encoder.zero_grad()
    opt_decoder.zero_grad()
    loss.backward()
    opt_encoder.step()
    opt_decoder.step()  # expect: shared-parameter error
