"""VQ-VAE, declared in Python: the spec of vq-vae.yaml. `python vq_vae.py > vq-vae-from-python.yaml` writes it."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, argmax, einsum, exp, lerp, log, mean, mse, one_hot, square, stop, sum

CODES, SIZE, MOVE, COMMITMENT = 32, 8, 0.01, 0.25


def declare() -> GraphSpec:
    g = Graph("vq-vae")
    image = g.input("image", ["batch", 1, 8, 8])  # from -1 (paper) to 1 (ink)
    counts = g.state("counts", [CODES], init=1.0)
    sums = g.state("sums", [CODES, SIZE], init="normal")

    def half(out):
        return [{"conv2d": {"out": out, "kernel": 4, "stride": 2, "padding": 1}}, "relu"]

    def double(out):
        return [{"conv_transpose2d": {"out": out, "kernel": 4, "stride": 2, "padding": 1}}, "relu"]

    layers = [*half(32), *half(64), {"conv2d": {"out": SIZE, "kernel": 1}}, {"reshape": [SIZE, 4]}]
    encoder = g.model("encoder", layers=layers, optimizer=adam(1e-3))
    last = {"conv2d": {"out": 1, "kernel": 3, "padding": 1}}
    layers = [{"reshape": [SIZE, 2, 2]}, *double(64), *double(32), last]
    decoder = g.model("decoder", layers=layers, optimizer=adam(1e-3))

    # A code is its sum by its count; that of a code which nobody chooses stays above 0 (Laplace smoothing).
    smooth = (counts + 1e-5) * sum(counts) / (sum(counts) + CODES * 1e-5)
    codebook = sums / smooth[:, None]

    encoded = encoder(image)  # [batch, SIZE, 4]
    # The squared distance, but for a term of `encoded` alone.
    distance = sum(square(codebook), axis=1) - 2 * einsum(encoded, codebook, equation="bdp,kd->bpk")
    choice = one_hot(argmax(-distance, axis=2), classes=CODES)  # [batch, 4, CODES]
    chosen = einsum(choice, codebook, equation="bpk,kd->bdp")
    passed = encoded + stop(chosen - encoded)  # the gradient passes straight through the choice
    rebuilt = decoder(passed)
    error = mse(rebuilt, image)
    g.update([encoder, decoder], loss=error + COMMITMENT * mse(encoded, stop(chosen)), name="step")

    # No gradient trains the codebook: a code is the running mean of what chose it (appendix A.1). Every op reads the
    # codes as the step before left them.
    new_counts = lerp(counts, sum(choice, axis=[0, 1]), MOVE)
    g.assign(counts, new_counts, name="count")
    new_sums = lerp(sums, einsum(choice, encoded, equation="bpk,bdp->kd"), MOVE)
    g.assign(sums, new_sums, name="add")

    share = mean(choice, axis=[0, 1])
    perplexity = exp(-sum(share * log(share + 1e-10)))  # how many codes are in use, were all used equally often
    return g.build(
        outputs=[error, perplexity],
        data={
            "train": {"source": "digits", "batch": 64, "shuffle": True},
            "test": {"source": "digits", "split": "test", "batch": 360},
        },
        run={"steps": 3000, "log_every": 250, "eval": {"every": "1000 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")
