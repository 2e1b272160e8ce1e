"""What is compared: each variant with its code, its framework, and the package that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to take a step: ``code`` is a module and a function of this folder."""

    code: str
    framework: str = "torch"
    module: str = ""
    """The module of its library."""
    distribution: str = ""
    """The name by which that is installed."""
    tolerance: float = 1e-4
    """How far its first losses may be from the expert's, relatively."""
    optional: bool = False
    """Whether it is measured only where its name is asked for."""

    @property
    def is_installed(self) -> bool:
        """Return whether what it needs is here."""
        needed = [self.framework, *([self.module] if self.module else [])]
        return all(find_spec(each) is not None for each in needed)

    @property
    def version(self) -> str:
        """Return the version of its library; empty where it has none of its own."""
        try:
            return version(self.distribution) if self.distribution else ""
        except PackageNotFoundError:
            return ""


EXPERT, GRAPH = "expert", "tf.function"
"""The baselines: a plain loop on PyTorch, and one on TensorFlow."""
JIT = "stepgraph --jit"
KERAS = {"framework": "tensorflow", "module": "keras", "distribution": "keras", "tolerance": 1e-3}
"""Adam of Keras adds epsilon to another root."""
VARIANTS: dict[str, Variant] = {
    "idiom": Variant(code="by_hand:idiom"),
    EXPERT: Variant(code="by_hand:expert"),
    "stepgraph emitted": Variant(code="with_stepgraph:emitted"),
    "stepgraph step": Variant(code="with_stepgraph:built"),
    "stepgraph run": Variant(code="with_stepgraph:run"),
    JIT: Variant(code="with_stepgraph:captured", optional=True),
    "Ignite": Variant(code="with_ignite:run", module="ignite", distribution="pytorch-ignite"),
    "Accelerate": Variant(code="with_accelerate:loop", module="accelerate", distribution="accelerate"),
    "Lightning": Variant(code="with_lightning:fit", module="lightning", distribution="lightning"),
    GRAPH: Variant(code="with_keras:call", **KERAS),
    "stepgraph step, TensorFlow": Variant(code="with_stepgraph:built_tensorflow", framework="tensorflow"),
    "stepgraph run, TensorFlow": Variant(code="with_stepgraph:run_tensorflow", framework="tensorflow"),
    "stepgraph step, XLA": Variant(code="with_stepgraph:built_xla", framework="tensorflow"),
    "Keras": Variant(code="with_keras:fit_plainly", **KERAS),
    "Keras, XLA": Variant(code="with_keras:fit", **KERAS),
    "Keras, XLA, 16 steps a call": Variant(code="with_keras:fit_sixteen", **KERAS),
}
