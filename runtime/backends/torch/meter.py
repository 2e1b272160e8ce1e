"""What timing steps needs of PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from compiler.ir.program import InputDecl
from runtime.backends.torch.devices import choose_device
from runtime.backends.torch.tensors import target_dtype, to_numpy, to_tensor
from runtime.bench.meter import Machine
from runtime.support.closures import bound_again


class TorchMeter:
    """PyTorch's side of a measurement on one device; ``threads`` None leaves their number as it is."""

    def __init__(self, device: str, threads: int | None) -> None:
        self.device = choose_device(device)
        if threads is not None:
            torch.set_num_threads(threads)

    def describe(self) -> Machine:
        """Return facts about the machine."""
        is_cuda = self.device.type == "cuda"
        return Machine(
            framework=f"torch {torch.__version__}",
            device=str(self.device),
            title=torch.cuda.get_device_name(self.device) if is_cuda else "",
            threads=torch.get_num_threads(),
        )

    def place(self, value: object, declared: InputDecl) -> torch.Tensor:
        """Return an input as a tensor on the device."""
        return to_tensor(value, self.device, target_dtype(declared, torch.float32))

    def copy(self, models: Mapping[str, Any]) -> dict[str, object]:
        """Return copies of modules in training mode, as a build leaves them: reading data may have used the others."""
        memo: dict[int, Any] = {}
        with bound_again([part for model in models.values() for part in model.modules()], memo):
            copies = copy.deepcopy(dict(models), memo)
        return {name: model.train() for name, model in copies.items()}

    def array(self, value: object) -> npt.NDArray[np.generic] | None:
        """Return a copy of a tensor, array or number on the host."""
        if isinstance(value, torch.Tensor):
            return to_numpy(value)
        return np.array(value) if isinstance(value, (bool, int, float, np.ndarray, np.generic)) else None

    def wait(self, result: object) -> None:
        """Wait until the device has finished all that it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def peak(self, run: Callable[[], object]) -> int | None:
        """Return the most bytes that a run allocates on CUDA; None elsewhere."""
        if self.device.type != "cuda":
            return None
        self.wait(None)
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        run()
        self.wait(None)
        return torch.cuda.max_memory_allocated(self.device) - before
