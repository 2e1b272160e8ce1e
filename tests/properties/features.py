"""What random specs really contain, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphspec.declare.graph import find_kinds
from tests.properties.causality import as_list
from tests.properties.models import has_buffers

Document = Mapping[str, Any]


def count_features(documents: Iterable[Document]) -> Counter[str]:
    """Return in how many documents each feature occurs."""
    return Counter(feature for document in documents for feature in set(find_features(document)))


def find_features(document: Document) -> Iterator[str]:
    """Yield the features of a document, some of them several times."""
    for name, model in document["models"].items():
        yield from _of_model(document, name, model)
    for op in document["ops"].values():
        yield from _of_op(document, op)
    yield from _of_uses(document)
    if any(len(one.get("shape") or ()) > 2 for one in document["inputs"].values()):
        yield "input: sequences"
    if any("shape" not in one or "width" in one["shape"] for one in document["inputs"].values()):
        yield "input: of open shape"


def _of_model(document: Document, name: str, model: Document) -> Iterator[str]:
    yield next(f"model: {kind}" for kind in ("layers", "parameter", "like", "class") if kind in model)
    if model.get("init") == "fresh":
        yield "model: like, fresh"
    yield from (f"model: {field}" for field in ("groups", "constraint", "regularizer", "precision") if field in model)
    if any("optimizer" in group for group in model.get("groups", ())):
        yield "group: optimizer"
    if "class" in model:
        yield f"class: {model['class'].rpartition(':')[2]}"
    for layer in model.get("layers", ()):
        yield f"layer: {layer if isinstance(layer, str) else next(iter(layer))}"
        if "sparse" in repr(layer):
            yield f"rows: {'lazy' if 'lazy' in repr(model['optimizer']) else 'dense'}"
    if "optimizer" in model and any(name in as_list(op.get("update", [])) for op in document["ops"].values()):
        yield from _of_optimizer(model["optimizer"])


def _of_optimizer(optimizer: Document) -> Iterator[str]:
    if "name" not in optimizer:
        yield "optimizer: by epochs"
        for each in optimizer.values():
            yield from _of_optimizer(each)
        return
    yield f"optimizer: {optimizer['name']}"
    for option, value in optimizer.items():
        if isinstance(value, dict):
            yield f"schedule: {value['schedule']}"
            yield f"schedule: by {value.get('clock', 'updates')}"
        elif option in ("momentum_form", "nesterov", "dampening", "weight_decay"):
            yield f"optimizer: {option}"


def _of_op(document: Document, op: Document) -> Iterator[str]:
    (kind,) = find_kinds(op)
    yield f"op: {kind}"
    for field in (
        "after",
        "every",
        "accumulate",
        "constraint",
        "start",
        "until",
        "mode",
        "stop",
        "snapshot",
        "checkpoint",
        "clip",
        "reset",
        "unconnected",
        "weight",
        "reduction",
    ):
        if field in op:
            yield f"{kind}: {field}"
    if kind in ("loss", "call", "random", "transform", "metric"):
        yield f"{kind}: {op[kind]}"
    for field in ("start", "until"):
        if isinstance(op.get(field), str):
            yield f"{kind}: {field} in {op[field].partition(' ')[2]}"
            if "updates" in op[field] and _may_skip(document):
                yield f"{kind}: {field} in updates that may be skipped"
    if op.get("after") == []:
        yield f"{kind}: after nothing"
    if "within" in op:
        yield f"{kind}: in a part"
        yield "part: " + " of ".join("iteration" if "repeat" in part else "alternative" for part in op["within"][::-1])
    if kind == "adapt" and "class" in document["models"].get(op["adapt"], ()):
        yield f"adapt: of a class, order {op.get('order', 2)}"
    if isinstance(op.get("every"), str):
        yield f"{kind}: every update"
    yield from _of_writer(document, op, kind)


def _may_skip(document: Document) -> bool:
    """Return whether some update may be skipped, or all of them."""
    policies = {op.get("on_overflow") for op in document["ops"].values() if "update" in op}
    return "loss_scale" in document.get("precision", {}) or not policies.issubset({None, "apply"})


def _of_writer(document: Document, op: Document, kind: str) -> Iterator[str]:
    if kind == "update":
        yield "update: joint" if len(op["update"]) > 1 else "update: of one"
        yield "update: from gradients" if "gradients" in op else "update: from a loss"
        if "optimizer" in op:
            yield "update: with an optimizer"
            yield from _of_optimizer(op["optimizer"])
    if kind == "ema":
        yield next(f"ema: {rate}" for rate in ("decay", "tau", "half_life", "schedule_free") if rate in op)
        yield f"ema: init {op.get('init', 'unsaid')}"
        if isinstance(op.get("decay"), dict) and "kind" in op["decay"]:
            yield f"ema: {op['decay']['kind']}"
            yield "ema: a formula"
        yield "ema: into a model" if "into" in op else "ema: hidden"
        yield f"ema: buffers {op['buffers']}" if "buffers" in op else "ema: no buffers"
        if "eval" in op.get("use", {}):
            yield "ema: stands in"
        if "write_back" in op.get("use", {}):
            yield "ema: written back"


def _of_uses(document: Document) -> Iterator[str]:
    """Yield what only shows in several ops together."""
    ops = document["ops"]
    updates = [op for op in ops.values() if "update" in op]
    yield f"updates: {len(updates)}"
    owners = Counter(model for op in updates for model in op["update"])
    if any(count > 1 for count in owners.values()):
        yield "a model updated twice"
    calls = [op for op in ops.values() if "forward" in op]
    given = Counter((op["forward"], str(op.get("inputs"))) for op in calls)
    if any(count > 1 for count in Counter(op["forward"] for op in calls).values()):
        yield "a model called twice"
    if any(count > 1 for count in given.values()):
        yield "a model called twice on the same"
    for op in calls:
        if op["forward"] in document["models"] and has_buffers(document["models"], op["forward"]):
            trains = op.get("train", op["forward"] in owners)
            yield "BatchNorm in training" if trains else "BatchNorm in evaluation"
    shared = [op for op in calls if op["forward"] in ("speaker", "hearer")]
    if len({op.get("train", op["forward"] in owners) for op in shared}) > 1:
        yield "a module in both modes"
    losses = Counter(op["loss"] for op in updates if "loss" in op)
    if any(count > 1 for count in losses.values()):
        yield "a loss with two updates"
    copied = {op["into"] for op in ops.values() if "copy" in op}
    if any(op["forward"] in copied and op.get("train") is True for op in calls):
        yield "a copy into a model in training"
    inner = {name for op in calls for one in op.get("outputs", ()) if isinstance(one, dict) for name in one}
    if any(inner.intersection(as_list(op["wrt"])) for op in ops.values() if "gradient" in op):
        yield "gradient: by a tap"
    if any(
        inner.intersection(map(str, as_list(op["inputs"]))) for op in ops.values() if "loss" in op and "inputs" in op
    ):
        yield "loss: of a tap"
    targets = {op["into"] for op in ops.values() if "into" in op}
    if any(op["forward"] in targets for op in calls):
        yield "a forward of an average or copy"
