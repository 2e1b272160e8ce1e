"""What an offline run of a published script lacks, put in while modules load: generated data, stubs, old names.

Python imports this module by itself when its folder is on the path. The script and its library stay as published.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import pickle
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

IMAGES = {"train": 60000, "t10k": 10000}


LIBRARIES: list[object] = []
"""Libraries of operators, which vanish with what defined them."""


def define_missing_operators() -> None:
    """Define what torchvision's compiled part would, which a CPU build of torch cannot load."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    LIBRARIES.append(library)


def generate_mnist(module: Any) -> None:
    """Let downloads of MNIST and its kin write noise in the original format."""
    import numpy

    def download(self: Any) -> None:
        folder = Path(self.raw_folder)
        folder.mkdir(parents=True, exist_ok=True)
        random = numpy.random.default_rng(0)
        for part, count in IMAGES.items():
            images = random.integers(0, 256, (count, 28, 28), dtype=numpy.uint8).tobytes()
            labels = random.integers(0, 10, count, dtype=numpy.uint8).tobytes()
            head = count.to_bytes(4, "big")
            sizes = (28).to_bytes(4, "big") * 2
            (folder / f"{part}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + head + sizes + images)
            (folder / f"{part}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + head + labels)

    module.MNIST.download = download


def generate_cifar(module: Any) -> None:
    """Let downloads of CIFAR-10 write noise in the original format."""
    import numpy

    def download(self: Any) -> None:
        folder = Path(self.root) / self.base_folder
        folder.mkdir(parents=True, exist_ok=True)
        random = numpy.random.default_rng(0)
        for name, _ in (*self.train_list, *self.test_list):
            images = random.integers(0, 256, (100, 3072), dtype=numpy.uint8)
            content = {"data": images, "labels": random.integers(0, 10, 100).tolist()}
            (folder / name).write_bytes(pickle.dumps(content))
        (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(each) for each in range(10)]}))

    module.CIFAR10.download = download
    module.CIFAR10._check_integrity = lambda self: (Path(self.root) / self.base_folder).exists()
    module.check_integrity = lambda path, md5=None: Path(path).exists()


def put_monitor_back(module: Any) -> None:
    """Give gym the wrapper that later versions dropped; it only recorded."""
    module.Monitor = lambda env, *arguments, **options: env


def put_pendulum_back(module: Any) -> None:
    """Give gym the earlier name of an environment."""
    made = "gym.envs.classic_control:PendulumEnv"
    module.envs.registration.register(id="Pendulum-v0", entry_point=made, max_episode_steps=200)


def put_name_back(module: Any) -> None:
    """Give numpy a name that version 2 dropped."""
    module.bool8 = module.bool_


def put_zero_gradients_back(module: Any) -> None:
    """Give torch a function that version 1.9 dropped."""

    def zero_gradients(tensor: Any) -> None:
        if tensor.grad is not None:
            tensor.grad.detach_().zero_()

    module.zero_gradients = zero_gradients


BEFORE: dict[str, Callable[[], None]] = {"torchvision": define_missing_operators}
AFTER: dict[str, Callable[[Any], None]] = {
    "numpy": put_name_back,
    "torch.autograd.gradcheck": put_zero_gradients_back,
    "gym": put_pendulum_back,
    "torchvision.datasets.mnist": generate_mnist,
    "torchvision.datasets.cifar": generate_cifar,
    "gym.wrappers": put_monitor_back,
}
STUBS = ("pybullet_envs", "tensorboard.compat.notf", "wandb")
"""Modules that a script imports without need; TensorBoard loads no TensorFlow where it finds `notf`."""


class Changed(importlib.abc.Loader):
    """Loads a module as usual and then changes it."""

    def __init__(self, usual: importlib.abc.Loader, change: Callable[[Any], None]) -> None:
        self.usual, self.change = usual, change

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        """Leave it to the usual loader."""
        return self.usual.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        """Execute the module, which sees the usual loader as its own, and change it."""
        module.__loader__ = self.usual
        if module.__spec__ is not None:
            module.__spec__.loader = self.usual
        self.usual.exec_module(module)
        self.change(module)


class Empty(importlib.abc.Loader):
    """Loads a module without content."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave it empty."""


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are changed or missing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where a module is, or nothing where it needs no change."""
        if fullname in BEFORE:
            BEFORE.pop(fullname)()
        if fullname in AFTER:
            spec = importlib.machinery.PathFinder.find_spec(fullname, path)
            if spec is not None and spec.loader is not None:
                spec.loader = Changed(spec.loader, AFTER[fullname])
            return spec
        if fullname in STUBS and importlib.machinery.PathFinder.find_spec(fullname, path) is None:
            return importlib.util.spec_from_loader(fullname, Empty())
        return None


sys.meta_path.insert(0, Finder())
