"""Modes: frozen models that still behave as in training."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.audit.findings.clocks import find_averages
from runtime.audit.findings.finding import Evidence, Finding
from runtime.audit.trace import Draw, Forward, Write

_DROPOUT = ("native_dropout", "bernoulli_", "bernoulli", "_fused_dropout", "rrelu_with_noise")


def find_frozen_in_train_mode(evidence: Evidence) -> Iterator[Finding]:
    """Yield frozen models whose statistics move, or that drop units."""
    trace = evidence.trace
    targets = {target for target, _ in find_averages(evidence)}
    stepped = {trace.tensors[tensor].label.rpartition(".")[0] for tensor in evidence.steppers}
    for event in trace.events:
        match event:
            case Write(by="forward", frozen=why, tensor=tensor, place=place) if why:
                stored = trace.tensors[tensor]
                layer, _, name = stored.label.rpartition(".")
                is_trained = layer in stepped if why == "parameters" else stored.model in evidence.trained
                if is_trained or _is_in(stored.model, targets) or stored.kind != "buffers":
                    continue
                yield Finding(
                    code="frozen-in-train-mode",
                    place=place,
                    message=f"{layer} is not trained, but runs in training mode, and its {name} moves: call eval()",
                )
            case Draw(frozen=True, model=model, place=place, operation=operation, backward=0):
                if operation in _DROPOUT and model not in evidence.trained and not _is_in(model, targets):
                    yield Finding(
                        code="frozen-in-train-mode",
                        place=place,
                        message=f"{model} is not trained, but runs in training mode, and drops units: call eval()",
                    )
            case _:
                pass


def find_trained_in_eval_mode(evidence: Evidence) -> Iterator[Finding]:
    """Yield models that are trained without ever running in training mode, which would change what they do."""
    forwards = [each for each in evidence.trace.of(Forward) if each.recorded and not each.backward]
    training = {each.model for each in forwards if each.training}
    for event in forwards:
        if event.idle and event.model in evidence.trained and event.model not in training:
            yield Finding(
                code="trained-in-eval-mode",
                place=event.place,
                message=f"{event.model} is trained, but runs in eval mode alone, where its {event.idle} acts otherwise",
            )


def _is_in(model: str, targets: set[str]) -> bool:
    return any(model == each or model.startswith(f"{each}.") or each.startswith(f"{model}.") for each in targets)
