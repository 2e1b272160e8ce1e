"""Word vectors by skip-gram, declared in Python: the spec of sparse-embeddings.yaml, which running this file prints."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, bce_with_logits, einsum, metrics, where

COUNT, SIZE, DRAWN, LR = 96, 16, 5, 0.01


def declare(rows: bool = True, seed: int = 0) -> GraphSpec:
    """Return the spec; without rows it has the numbers of a dense gradient."""
    g = Graph("sparse-embeddings", seed=seed)
    word, near = g.input("word", ["batch"], "int64"), g.input("near", ["batch"], "int64")
    drawn = g.input("drawn", ["batch", DRAWN], "int64")
    # A step sees few of the words: the gradients of both tables are rows, and the optimizer steps these alone.
    table = [{"embedding": {"count": COUNT, "size": SIZE, "sparse": rows}}]
    words, contexts = g.model("words", layers=table), g.model("contexts", layers=table)
    optimizer = adam(LR, sparse="lazy" if rows else "dense")

    vector = words(word)
    beside, others = contexts(near), contexts(drawn)
    score = einsum(vector, beside, equation="bi,bi->b")
    scores = einsum(vector, others, equation="bi,bki->bk")
    found, avoided = bce_with_logits(score, 1.0), bce_with_logits(scores, 0.0)
    loss = found + DRAWN * avoided
    g.update([words, contexts], loss=loss, optimizer=optimizer, name="step")

    is_nearer = where(score > scores[:, 0], 1.0, 0.0, mode="eval")
    nearer = metrics.mean(is_nearer, mode="eval")
    train = {"held_out": False, "repeats": 10, "negatives": DRAWN, "seed": seed}
    test = {"held_out": True, "repeats": 2, "negatives": DRAWN, "seed": 12345}
    return g.build(
        outputs=[loss, nearer],
        data={
            "train": {"class": "pairs:pairs", "args": train, "batch": 64},
            "test": {"class": "pairs:pairs", "args": test, "batch": 64},
        },
        run={"steps": 1500, "log_every": 500, "eval": {"every": "500 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")
