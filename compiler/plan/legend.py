"""What the words of a plan mean: codes of decisions, what orders two instructions, and marks at the ends of lines."""

from __future__ import annotations

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "DEFER": "something comes between an update's gradient and its write",
    "RETAIN": "a gradient keeps its graph, because a later one runs through it",
    "CREATE_GRAPH": "a gradient is itself differentiated",
    "NO_GRAD": "a forward runs without a graph",
    "FREEZE": "a forward is recorded, but not for its own weights",
    "DETACH": "a value is used detached",
    "RECOMPUTE": "a gradient runs parts of forwards again, which read weights and buffers a second time",
    "SNAPSHOT": "a forward runs on clones, so that a later write does not wait",
    "MERGE": "one forward is of several micro-batches, or several calls of a model, or one gradient of several ops",
    "ADD": "a gradient is the sum of what each process has on its own rows (`reduce: sum`)",
    "GATHER": "the weights of a sharded model stay gathered after a forward, for a second derivative",
    "declared": "the spec orders two ops, with `after` or `every: update`",
    "implied": "an average or a copy comes after every writer of its source",
    "raw": "read after write: an op reads a version that another writes",
    "war": "write after read: an op still reads the version that a write replaces",
    "waw": "write after write: two writes of one cell keep their order",
    "backward-war": "a gradient that has not run yet still reads parameters that a write replaces",
    "buffer-war": "a gradient that has not run yet still reads buffers that a write replaces",
    "verdict": "a write takes place only if the gradients of its group, or of another update, are finite",
}
"""Codes of decisions, and what orders two instructions."""
MARKS: Mapping[str, str] = {
    "train": "the model runs in training mode, with dropout, and with BatchNorm by the batch",
    "no_grad": "no graph is recorded: no gradient runs through the forward",
    "frozen": "recorded, but not for the weights of its model: a gradient only runs through it",
    "stop": "the spec says `stop: true`: its results are constants for every gradient",
    "checkpoint": "gradients run it again, in place of keeping its intermediate results",
    "makes": "calls of the model that are one, on the rows of all (`join_calls: false` keeps them apart)",
    "clones": "it reads clones of weights or buffers, so that a later write does not wait",
    "computes": "the type of its matrix products",
    "gives": "gradients that one backward pass gives, but for a factor (`join_gradients: false` takes them apart)",
    "retain_graph": "the gradient keeps its graph, because a later one runs through it",
    "create_graph": "the gradient is itself differentiated",
    "scaled": "the loss is multiplied by the loss scale, and the gradient divided by it",
    "without": "no gradient is taken for these parameters, which are currently frozen",
    "rows": "the gradients of embeddings that are `sparse`: indices, and a vector for each",
    "detached": "this value is used as a constant, though it has a graph",
    "message": "it waits for this message, which brings the value of all processes",
    "waits": "the write comes after this for another reason than that it uses its result",
    "if": "the write takes place only if these verdicts say that gradients are finite",
    "unless": "it does nothing if these verdicts say that gradients are finite",
    "half_life": "after so long the weights that an average follows make up half of it",
    "copy": "the average begins as a copy of its source, or copies these parameters",
    "zero": "the average begins at zero, and is divided by the sum of its weights (`debiased`)",
    "only": "the average is of the parameters that match",
    "rounded": "the numbers of the average have this type, and are rounded so",
    "buffers": "what an average does with the buffers of its source",
}
"""Marks at the ends of lines, between brackets, each by its first word."""
