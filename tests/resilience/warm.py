"""What the processes of these tests have imported before they begin: it takes seconds once, not each time."""

from __future__ import annotations

import matplotlib.backends.backend_agg
import matplotlib.figure
import safetensors.numpy
import torch
import torch._dynamo  # fake tensors need it

import compiler
import runtime.backends.torch.backend  # a user without rights may not read what it would still import
import runtime.cli
import runtime.step
import runtime.train.run
import tests.suite.warm

torch.set_num_threads(1)
__all__ = ["compiler", "matplotlib", "runtime", "safetensors", "tests", "torch"]
