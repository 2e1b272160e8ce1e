"""VQ-VAE with a codebook of running means (appendix A.1 of the paper): gradients pass straight through the choice."""

from __future__ import annotations

from itertools import chain

import torch
import torch.nn.functional as F
from torch import nn

from graphspec.declare.inputs import StateSpec
from tests.conformance.examples.example import Example, HandLoop, Tensors
from tests.oracle.states import begin

SEED = 5
"""Of the build that the loop is compared with: the sums begin with numbers of their own."""
CODES, SIZE, KEEP, SMALL = 32, 8, 0.99, 1e-5


def make_encoder() -> nn.Module:
    """Return an encoder: a vector for each of the four quarters."""
    convolutions = [nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, SIZE, 1)]
    return nn.Sequential(*convolutions, nn.Flatten(2)).double()


def make_decoder() -> nn.Module:
    """Return a decoder."""
    first = [nn.Unflatten(2, (2, 2)), nn.ConvTranspose2d(SIZE, 64, 4, 2, 1), nn.ReLU()]
    second = [nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 1, 3, padding=1)]
    return nn.Sequential(*first, *second).double()


class Quantised(HandLoop):
    """The codes are those that the step before left; they move by what has chosen them."""

    def __init__(self) -> None:
        self.encoder, self.decoder = make_encoder(), make_decoder()
        self.nets = {"encoder": self.encoder, "decoder": self.decoder}
        self.optimizer = torch.optim.Adam(chain(self.encoder.parameters(), self.decoder.parameters()), lr=1e-3)
        self.counts = torch.ones(CODES, dtype=torch.float64)
        self.sums = torch.from_numpy(begin("sums", StateSpec(shape=(CODES, SIZE), init="normal"), SEED))

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        encoded = self.encoder(batch["image"]).transpose(1, 2)  # [batch, 4, size]
        rows = encoded.detach().reshape(-1, SIZE)
        chosen = self.quantise(rows).reshape(encoded.shape)
        passed = encoded + (chosen - encoded).detach()
        error = F.mse_loss(self.decoder(passed.transpose(1, 2)), batch["image"])
        loss = error + 0.25 * F.mse_loss(encoded, chosen)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"error": error.detach(), "step.loss": loss.detach(), "counts": self.counts, "sums": self.sums}

    def quantise(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the nearest code of every row, and move the codes."""
        codebook = self.find_codes()
        choice = torch.cdist(rows, codebook).argmin(dim=1)
        self.move(rows, choice)
        return codebook[choice]

    def find_codes(self) -> torch.Tensor:
        """Return the codebook."""
        total = self.counts.sum()
        return self.sums / ((self.counts + SMALL) / (total + CODES * SMALL) * total).unsqueeze(1)

    def move(self, rows: torch.Tensor, choice: torch.Tensor) -> None:
        """Count the rows that have chosen each code, and add them up."""
        used = torch.bincount(choice, minlength=CODES).double()
        added = torch.zeros_like(self.sums).index_add_(0, choice, rows)
        self.counts, self.sums = KEEP * self.counts + (1 - KEEP) * used, KEEP * self.sums + (1 - KEEP) * added


class MovedFirst(Quantised):
    """The mistake: the decoder gets the codes as they are after the move."""

    def quantise(self, rows: torch.Tensor) -> torch.Tensor:
        choice = torch.cdist(rows, self.find_codes()).argmin(dim=1)
        self.move(rows, choice)
        return self.find_codes()[choice]


EXAMPLE = Example(
    name="vq-vae",
    loop=Quantised,
    mutant=MovedFirst,
    shapes={"image": (6, 1, 8, 8)},
    classes={},
    losses=("error", "step.loss", "counts", "sums"),
    drawn=(),
)
