"""Random models of built-in layers, each from ``size`` features to ``size`` features."""

from __future__ import annotations

from random import Random

ACTIVATIONS: tuple[object, ...] = (
    "tanh", "sigmoid", "gelu", "silu", "elu", "relu", {"leaky_relu": 0.2}, "softmax", "identity",
)  # fmt: skip
STATELESS = ("plain", "plain", "deep", "residual", "layer_norm", "group_norm", "dropout", "conv", "pool")
NORMALIZED = ("normalized", "normalized", "first", "normalized dropout", "normalized conv")


def random_layers(random: Random, size: int) -> list[object]:
    """Return layers; a third has BatchNorm, behind layers without bias: its gradient would be pure rounding error."""
    kind = random.choice(NORMALIZED if random.random() < 0.35 else STATELESS)
    act, wide = random.choice(ACTIVATIONS), random.choice([2, 3, 4])
    end: object = {"linear": size}
    bare: object = {"linear": {"out": wide, "bias": False}}
    grid: list[object] = [{"linear": 4}, {"reshape": {"shape": [1, 2, 2]}}]
    conv = {"out": 2, "kernel": 2, "padding": 1}
    match kind:
        case "plain":
            return [{"linear": wide}, act, end]
        case "deep":
            return [{"linear": wide}, act, {"linear": wide}, "tanh", end]
        case "residual":
            return [{"residual": [{"linear": wide}, act, end]}, end]
        case "layer_norm":
            return [{"linear": 4}, "layer_norm", act, end]
        case "group_norm":
            return [{"linear": 6}, {"group_norm": 2}, act, end]
        case "dropout":
            return [{"linear": 4}, act, {"dropout": random.choice([0.3, 0.5])}, end]
        case "conv":
            return [*grid, {"conv2d": conv}, act, random.choice(["flatten", "global_avg_pool"]), end]
        case "pool":
            pool = random.choice(["avg_pool", "max_pool"])
            return [*grid, {"conv2d": conv}, act, {pool: {"kernel": 2, "stride": 1}}, "flatten", end]
        case "normalized":
            return [bare, "batch_norm", act, end]
        case "first":
            return [{"batch_norm": {"momentum": 0.5}}, end, act, end]
        case "normalized dropout":
            return [bare, {"batch_norm": {"affine": False}}, "tanh", {"dropout": 0.3}, end]
        case _:
            return [*grid, {"conv2d": {**conv, "bias": False}}, "batch_norm", act, "flatten", end]


def random_growing_layers(random: Random, size: int) -> list[object]:
    """Return layers in which images become larger."""
    growing = random.choice(
        [
            {"upsample": random.choice([2, 3])},
            {"upsample": {"factor": 2, "mode": "bilinear"}},
            {"conv_transpose2d": {"out": 2, "kernel": 2}},
            {"conv_transpose2d": {"out": 1, "kernel": [2, 3], "stride": [1, 2], "bias": False}},
            {"conv_transpose2d": {"out": 2, "kernel": 3, "stride": 2, "padding": 1, "output_padding": 1}},
        ]
    )
    image: list[object] = [{"linear": 4}, {"reshape": {"shape": [1, 2, 2]}}]
    return [*image, growing, random.choice(ACTIVATIONS), "flatten", {"linear": size}]


def has_buffers(models: dict[str, dict], name: str) -> bool:
    """Return whether a model, or the one it is like, has BatchNorm."""
    declared = models[name]
    if "like" in declared:
        return has_buffers(models, declared["like"])
    return "batch_norm" in repr(declared.get("layers"))
