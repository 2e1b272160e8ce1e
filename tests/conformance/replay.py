"""Ten steps, and a digest of every number in them; as a script, of an emitted file where this project does not exist.

``python -I replay.py FOLDER PROJECT INPUTS`` imports ``emitted`` from a folder and prints the digest.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

SEED = 7
PROJECT = ("graphspec", "compiler", "runtime", "schemas", "tests")
NEEDED_BY_IT = ("pydantic", "yaml", "networkx", "typer")

Inputs = Mapping[str, tuple[tuple[int, ...], int]]
"""Shape by name, and how many classes the numbers stand for: 0 for any number."""


def batches(inputs: Inputs) -> Iterator[dict[str, torch.Tensor]]:
    """Yield ten batches, the same every time."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(10):
        yield {name: _draw(tuple(shape), classes, generator) for name, (shape, classes) in inputs.items()}


def _draw(shape: tuple[int, ...], classes: int, generator: torch.Generator) -> torch.Tensor:
    if classes:
        return torch.randint(classes, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def run(
    step: Callable[[dict[str, torch.Tensor]], Mapping[str, torch.Tensor]],
    models: Mapping[str, torch.nn.Module],
    optimizers: Mapping[str, object],
    inputs: Inputs,
) -> str:
    """Take the steps; return the digest of all outputs, and of all weights, buffers and slots at the end."""
    digest = hashlib.sha256()
    for batch in batches(inputs):
        update(digest, step(batch))
    for model in models.values():
        update(digest, model.state_dict())
    for optimizer in optimizers.values():
        for name, values in optimizer.slots.items():
            update(digest, {f"{name}.{index}": value for index, value in enumerate(values)})
    return digest.hexdigest()


def update(digest: hashlib._Hash, tensors: Mapping[str, torch.Tensor]) -> None:
    """Add the names, types and bytes of tensors to a digest."""
    for name, tensor in tensors.items():
        kept = tensor.detach().contiguous().reshape(-1)
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(bytes(kept.view(torch.uint8).tolist()))


def hide(project: Path) -> None:
    """Take the project off the path, and make sure that it is gone."""
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != project]
    for name in PROJECT:
        assert importlib.util.find_spec(name) is None, f"{name} can be imported"


if __name__ == "__main__":
    folder, project, inputs = sys.argv[1:]
    hide(Path(project))
    sys.path.insert(0, folder)
    emitted = importlib.import_module("emitted")
    emitted.build(seed=SEED)
    found = run(emitted.step, emitted.MODELS, emitted.OPTIMIZERS, json.loads(inputs))
    assert sys.modules.keys().isdisjoint((*PROJECT, *NEEDED_BY_IT))
    print(found)
