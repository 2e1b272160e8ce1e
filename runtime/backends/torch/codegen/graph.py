"""The dialect of a PyTorch step that is captured as one graph. What differs from the plain one is all here."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from compiler.ir.instructions import Gradient
from runtime.backends.torch.codegen.dialect import TorchDialect
from runtime.backends.torch.codegen.gradient import lower_gradient
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.scheduled_numbers import Form


class GraphDialect(TorchDialect):
    """PyTorch, to be captured: numbers of the host are fed to the graph, and the compiler decides what is kept."""

    direct: Mapping[str, str] = {rule: f"Graph{name}" for rule, name in TorchDialect.direct.items()}
    freezing = "frozen_in_eager"
    window = "GraphWindow"
    verdicts = "GraphVerdicts"
    loss_scale = "GraphLossScale"
    asks_late = True
    grouped = "GraphGrouped"
    decay = "FedDecay"
    sources: Mapping[str, str] = {"native": "GraphNativeRandom", "portable": "GraphPortableRandom"}

    def gradient(self, instruction: Gradient, scope: EmitScope) -> Lowered:
        """Return ``torch.autograd.grad``, in a graph without freeing anything: the compiler sees what is used again."""
        return lower_gradient(instruction, scope, syntax.call("torch.compiler.is_compiling"))

    def scheduled(self, read: ast.expr, form: Form) -> ast.expr:
        """Return a number that is fed."""
        typed = (syntax.name("device"), syntax.name("dtype")) if form == "value" else ()
        return syntax.call("FedNumber", read, *typed)


GRAPH = GraphDialect()
"""Lowering of a step that is captured."""
