"""A GAN that grows from 4 by 4 to 8 by 8 pixels: first the small players alone, then all, with layers that fade in."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.examples.example import Example, HandLoop, Tensors

GROW, FADE = 4, 4
KEEP = 0.998
GENERATOR, DISCRIMINATOR = ("trunk", "to_4", "double", "to_8"), ("from_4", "from_8", "halve", "head")


def make_nets() -> dict[str, nn.Module]:
    """Return the parts of both players."""
    begin = [nn.Linear(16, 128), nn.LeakyReLU(0.2), nn.Linear(128, 512), nn.LeakyReLU(0.2), nn.Unflatten(1, (32, 4, 4))]
    end = [nn.Flatten(), nn.Linear(512, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1)]
    return {
        "trunk": nn.Sequential(*begin, nn.Conv2d(32, 32, 3, padding=1), nn.LeakyReLU(0.2)).double(),
        "to_4": nn.Sequential(nn.Conv2d(32, 1, 1)).double(),
        "double": nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.LeakyReLU(0.2)).double(),
        "to_8": nn.Sequential(nn.Conv2d(16, 1, 1)).double(),
        "from_8": nn.Sequential(nn.Conv2d(1, 16, 1), nn.LeakyReLU(0.2)).double(),
        "halve": nn.Sequential(nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2)).double(),
        "from_4": nn.Sequential(nn.Conv2d(1, 32, 1), nn.LeakyReLU(0.2)).double(),
        "head": nn.Sequential(nn.Conv2d(33, 32, 3, padding=1), nn.LeakyReLU(0.2), *end).double(),
    }


class Growing(HandLoop):
    """Each stage updates the discriminator, then the generator, then the averages of what was stepped of it."""

    def __init__(self) -> None:
        self.own = make_nets()
        self.slow = {f"slow_{name}": copy.deepcopy(self.own[name]) for name in GENERATOR}
        self.nets = {**self.own, **self.slow}
        adam = torch.optim.Adam
        self.optimizers = {name: adam(net.parameters(), lr=1e-3, betas=(0.0, 0.99)) for name, net in self.own.items()}
        self.steps = 0

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        share, is_grown = min(max(self.steps - GROW, 0) / FADE, 1.0), self.steps >= GROW
        self.steps += 1
        z = F.normalize(drawn["drawn"], dim=1)
        draw, judge = (self.draw_8, self.judge_8) if is_grown else (self.draw_4, self.judge_4)
        real = self.soften(batch["image"], share) if is_grown else F.avg_pool2d(batch["image"], 2)
        fake = draw(z, share)
        now, other = (8, 4) if is_grown else (4, 8)
        noise = [drawn[f"{name}_{now}.grain"] for name in ("on_real", "on_fake", "judged")]

        on_real, on_fake = judge(real + noise[0], share), judge(fake.detach() + noise[1], share)
        d_loss = (on_real - 1).square().mean() + on_fake.square().mean()
        self.update(DISCRIMINATOR if is_grown else ("from_4", "head"), d_loss)

        g_loss = (judge(fake + noise[2], share) - 1).square().mean()
        moved = GENERATOR if is_grown else GENERATOR[:2]
        self.update(moved, g_loss)
        self.follow(moved)
        none = torch.zeros(())  # nothing to compare: the step returns no loss of the other stage
        found = {f"d_loss_{now}": d_loss.detach(), f"g_loss_{now}": g_loss.detach()}
        return {**found, f"d_loss_{other}": none, f"g_loss_{other}": none}

    def draw_4(self, z: torch.Tensor, share: float) -> torch.Tensor:
        """Return images of 4 by 4."""
        return self.own["to_4"](self.own["trunk"](z))

    def draw_8(self, z: torch.Tensor, share: float) -> torch.Tensor:
        """Return images of 8 by 8, to which new layers have added their share."""
        coarse = self.own["trunk"](z)
        full = self.own["to_8"](self.own["double"](coarse))
        return (1 - share) * enlarge(self.own["to_4"](coarse)) + share * full

    def judge_4(self, image: torch.Tensor, share: float) -> torch.Tensor:
        """Return the scores of images of 4 by 4."""
        return self.decide(self.own["from_4"](image))

    def judge_8(self, image: torch.Tensor, share: float) -> torch.Tensor:
        """Return the scores of images of 8 by 8."""
        old, new = self.own["from_4"](F.avg_pool2d(image, 2)), self.own["halve"](self.own["from_8"](image))
        return self.decide((1 - share) * old + share * new)

    def decide(self, coarse: torch.Tensor) -> torch.Tensor:
        """Return the scores of features, with their mean standard deviation in the batch as one more."""
        spread = (coarse.var(dim=0, correction=0) + 1e-8).sqrt().mean()
        return self.own["head"](torch.cat([coarse, spread.expand(len(coarse), 1, 4, 4)], dim=1))

    def soften(self, image: torch.Tensor, share: float) -> torch.Tensor:
        """Return real digits as sharp as the generator can draw by now."""
        return (1 - share) * enlarge(F.avg_pool2d(image, 2)) + share * image

    def update(self, names: Iterable[str], loss: torch.Tensor) -> None:
        """Step some parts by the gradient of a loss, each with its own optimizer."""
        for name in self.own:
            self.own[name].zero_grad()
        loss.backward(inputs=[p for name in names for p in self.own[name].parameters()])
        for name in names:
            self.optimizers[name].step()

    @torch.no_grad()
    def follow(self, names: Iterable[str]) -> None:
        """Average what was stepped."""
        for name in names:
            for old, new in zip(self.slow[f"slow_{name}"].parameters(), self.own[name].parameters(), strict=True):
                old.lerp_(new, 1 - KEEP)


class RealAtOnce(Growing):
    """The mistake: real digits are sharp from the start, while those of the generator still fade in."""

    def soften(self, image: torch.Tensor, share: float) -> torch.Tensor:
        return image


def enlarge(image: torch.Tensor) -> torch.Tensor:
    """Return images with every pixel as two by two."""
    return image.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)


EXAMPLE = Example(
    name="progressive-gan",
    loop=Growing,
    mutant=RealAtOnce,
    shapes={"image": (6, 1, 8, 8)},
    classes={},
    losses=("d_loss_4", "g_loss_4", "d_loss_8", "g_loss_8"),
    drawn=("drawn", *(f"{name}_{size}.grain" for size in (4, 8) for name in ("on_real", "on_fake", "judged"))),
    settings=(f"vars.grow={GROW}", f"vars.fade={FADE}"),
)
