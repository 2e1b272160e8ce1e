"""Train and eval mode: frozen models that still behave as in training, trained ones that behave as in an evaluation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from runtime.audit.findings.finding import Evidence, Finding, Other
from runtime.audit.findings.update_clocks import find_averages
from runtime.audit.trace import Draw, Forward, Update, Write

_DROPOUT = ("native_dropout", "bernoulli_", "bernoulli", "_fused_dropout", "rrelu_with_noise")


def find_frozen_in_train_mode(evidence: Evidence) -> Iterator[Finding]:
    """Yield frozen models whose statistics move, or that drop units.

    Where the program ends before anything is updated, what it would train is not known.
    """
    trace = evidence.trace
    targets = {target for target, _ in find_averages(evidence)}
    moved = evidence.steppers.keys() | evidence.written
    stepped = {trace.tensors[tensor].label.rpartition(".")[0] for tensor in moved}
    trained = evidence.trained | {trace.model(tensor) for tensor in evidence.written} | _find_replaced(evidence)
    for event in trace.events:
        match event:
            case Write(by="forward", frozen=why, tensor=tensor, place=place) if why:
                stored = trace.tensors[tensor]
                layer, _, name = stored.label.rpartition(".")
                is_trained = layer in stepped if why == "parameters" else stored.model in trained
                if is_trained or _is_in(stored.model, targets) or stored.kind != "buffers":
                    continue
                yield Finding(
                    code="frozen-in-train-mode",
                    place=place,
                    message=f"{layer} is not trained, but runs in training mode, and its {name} moves: call eval()",
                    level=None if moved else "question",
                )
            case Draw(awake=True, model=model, place=place, backward=0) if model not in trained:
                yield Finding(
                    code="frozen-in-train-mode",
                    place=place,
                    message=f"{model} is not trained and in eval mode, but a function in it drops units: call it with "
                    "training=self.training",
                    level=None if moved else "question",
                )
            case Draw(frozen=True, model=model, place=place, operation=operation, backward=0):
                if operation in _DROPOUT and model not in trained and not _is_in(model, targets):
                    yield Finding(
                        code="frozen-in-train-mode",
                        place=place,
                        message=f"{model} is not trained, but runs in training mode, and drops units: call eval()",
                        level=None if moved else "question",
                    )
            case _:
                pass


def find_trained_in_eval_mode(evidence: Evidence) -> Iterator[Finding]:
    """Yield models that are trained without running in training mode, which would change what they do."""
    forwards = [each for each in evidence.trace.of(Forward) if each.recorded and not each.backward]
    training = {each.model for each in forwards if each.training}
    for event in forwards:
        if event.idle and event.model in evidence.trained and event.model not in training:
            yield Finding(
                code="trained-in-eval-mode",
                place=event.place,
                message=f"{event.model} is trained, but runs in eval mode alone, where its {event.idle} acts otherwise",
            )


def find_left_in_eval_mode(evidence: Evidence) -> Iterator[Finding]:
    """Yield models that run in eval mode alone, and are trained, from an evaluation to the end."""
    trained, evaluated = dict[str, Forward](), dict[str, Forward]()
    waiting: dict[str, list[Forward]] = defaultdict(list)
    left: dict[str, list[Finding]] = defaultdict(list)
    for event in evidence.trace.events:
        match event:
            case Forward(backward=0, model=model, recorded=True, training=True):
                trained[model] = event
                for each in (evaluated, waiting, left):
                    each.pop(model, None)
            case Forward(backward=0, model=model, recorded=recorded, idle=idle) if idle and model in trained:
                if recorded and model in evaluated:
                    waiting[model].append(event)
                elif not recorded:
                    evaluated.setdefault(model, event)
            case Update(parts=parts):
                stepped = {evidence.trace.model(part.tensor) for part in parts if part.has_gradient}
                for model in stepped & waiting.keys():
                    left[model] += [_left(each, trained[model], evaluated[model]) for each in waiting.pop(model)]
            case _:
                pass
    for findings in left.values():
        yield from findings


def _left(event: Forward, before: Forward, evaluated: Forward) -> Finding:
    return Finding(
        code="trained-in-eval-mode",
        place=event.place,
        message=f"{event.model} is in eval mode since its evaluation and is trained in it, where its {event.idle} acts "
        "otherwise: call train() again",
        others=(Other("trained in training mode at", before.place), Other("evaluated at", evaluated.place)),
    )


def find_evaluated_in_train_mode(evidence: Evidence) -> Iterator[Finding]:
    """Yield forwards in training mode that move statistics of a trained model, and make no part of a loss.

    Statistics that were just reset are being estimated anew, as after averaging weights.
    """
    trace, reset = evidence.trace, set[str]()
    for event in trace.events:
        match event:
            case Update():
                reset.clear()
            case Write(by="code", tensor=tensor) if trace.tensors[tensor].kind == "buffers":
                reset.add(trace.model(tensor))
            case Forward(moves=moves, model=model, place=place) if moves and model in evidence.trained - reset:
                yield Finding(
                    code="evaluated-in-train-mode",
                    place=place,
                    message=f"{model} runs in training mode here, where no loss is made of its result, and its {moves} "
                    "moves: call eval() before it, and train() after it",
                )
            case _:
                pass


def _find_replaced(evidence: Evidence) -> set[str]:
    """Return the models that the program gives other parameters between their calls."""
    seen: dict[str, set[int]] = defaultdict(set)
    found = set[str]()
    for event in evidence.trace.of(Forward):
        own = {tensor for tensor, _ in event.versions if evidence.trace.tensors[tensor].kind == "params"}
        if seen[event.model] and own - seen[event.model]:
            found.add(event.model)
        seen[event.model] |= own
    return found


def _is_in(model: str, targets: set[str]) -> bool:
    return any(model == each or model.startswith(f"{each}.") or each.startswith(f"{model}.") for each in targets)
