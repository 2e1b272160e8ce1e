"""The training step of a page of docs/coming-from, taken twice: by hand as the page shows it, and from its spec.

``python -m tests.docs.twice PAGE SPEC`` reads variants of the program by name from its input, and prints how far the
weights of each are from those of the spec after the same batches, or the error that it raises. Everything is float64.
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import numpy as np

import stepgraph as sg

STEPS, ROWS = 20, 32


def build(spec: Path, models: dict[str, object], backend: str = "torch") -> sg.Step:
    """Return the built step of a page's spec, with the models that the program trains by hand."""
    return sg.build(sg.compile_step(sg.load(spec), backend), device="cpu", dtype="float64", models=models)


def find_gap(pairs: Iterable[tuple[object, object]]) -> float:
    """Return the largest difference of two lists of arrays."""
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def find_gap_of_modules(old: Iterable[object], new: Iterable[object]) -> float:
    """Return the largest difference of the parameters of modules."""
    pairs = [pair for a, b in zip(old, new, strict=True) for pair in zip(a.parameters(), b.parameters(), strict=True)]
    return find_gap((a.detach(), b.detach()) for a, b in pairs)


def take_pytorch(by_hand: ModuleType, spec: Path) -> float:
    """Call `train_step` of the page with random batches."""
    import torch

    given = {"generator": by_hand.generator, "discriminator": by_hand.discriminator}
    step = build(spec, copy.deepcopy(given))
    for _ in range(STEPS):
        image, z = torch.rand(ROWS, 64) * 2 - 1, torch.randn(ROWS, 16)
        by_hand.train_step(image, z)
        step({"image": image, "z": z})
    return find_gap_of_modules([getattr(by_hand, name) for name in step.models], step.models.values())


def take_lightning(by_hand: ModuleType, spec: Path) -> float:
    """Fit the module of the page for three epochs of five batches."""
    import lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    gan = by_hand.Gan()
    step = build(spec, copy.deepcopy({"generator": gan.generator, "discriminator": gan.discriminator}))
    loader = DataLoader(TensorDataset(torch.rand(5 * ROWS, 64) * 2 - 1, torch.randn(5 * ROWS, 16)), batch_size=ROWS)
    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", precision="64-true", enable_model_summary=False, **silent
    )
    trainer.fit(gan, loader)
    for _ in range(3):
        for image, z in loader:
            step({"image": image, "z": z})
    return find_gap_of_modules([getattr(gan, name) for name in step.models], step.models.values())


def take_keras(by_hand: ModuleType, spec: Path) -> float:
    """Call `train` of the page with random batches."""
    random = np.random.default_rng(0)
    image, label = random.normal(size=(STEPS * ROWS, 20)), random.integers(10, size=STEPS * ROWS)
    ours, theirs = ({"teacher": by_hand.make_teacher(), "student": by_hand.make_student()} for _ in range(2))
    for name, model in ours.items():
        model.build(image[:1].shape)
        theirs[name].build(image[:1].shape)
        theirs[name].set_weights(model.get_weights())
    step = build(spec, ours, "tensorflow")
    by_hand.train(by_hand.Distiller(theirs["student"], theirs["teacher"]), image, label)
    for at in range(0, len(image), ROWS):
        step({"image": image[at : at + ROWS], "label": label[at : at + ROWS]})
    pairs = [zip(model.get_weights(), theirs[name].get_weights(), strict=True) for name, model in ours.items()]
    return find_gap(pair for each in pairs for pair in each)


def prepare(page: str) -> None:
    """Let the framework of a page make everything in float64, and the same weights every time."""
    if page == "keras":
        import keras

        keras.config.set_floatx("float64")
        keras.utils.set_random_seed(0)
    else:
        import torch

        torch.set_default_dtype(torch.float64)
        torch.manual_seed(0)


TAKE: dict[str, Callable[[ModuleType, Path], float]] = {
    "pytorch": take_pytorch,
    "lightning": take_lightning,
    "keras": take_keras,
}
"""How the step of a page is taken both ways."""


def main(page: str, spec: Path) -> None:
    """Print, for every variant of the program, a gap or an error."""
    found: dict[str, float | str] = {}
    for name, text in json.load(sys.stdin).items():
        prepare(page)
        by_hand = sys.modules["by_hand"] = ModuleType("by_hand")
        exec(compile(text, name, "exec"), vars(by_hand))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Lightning's: a loader without workers, a module without a log
                found[name] = TAKE[page](by_hand, spec)
        except RuntimeError as error:
            found[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
