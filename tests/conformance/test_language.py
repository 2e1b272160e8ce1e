"""The specs that both backends run say everything that the language of a step has."""

from __future__ import annotations

from tests.conformance.language import find_all, find_said
from tests.conformance.scenarios import specs

_REDUCE = ("reduce", "reduce = mean", "reduce = sum")
ELSEWHERE = {
    "ModelSpec.weights": "a file beside the spec: tests/features/test_model_sources.py",
    "Traits.recomputes": "a class that runs its forward again: tests/backends/test_recomputed.py",
    **{f"UpdateOp.on_overflow = {one}": "tests/features/test_shared_loss_scale.py" for one in ("group", "all")},
    "UpdateOp.on_overflow = error": "it ends the run: tests/features/test_skipped_steps.py",
    "UpdateOp.missing = zero": "tests/features/test_missing_gradients.py",
    "UseSpec.recompute_buffers": "evaluations of a run: tests/features/test_recomputed_of_random_specs.py",
    "layer batch_norm.sync": "several processes: tests/processes/cases.py",
    **{f"UpdateOp.{one}": "several processes: tests/processes/cases.py" for one in _REDUCE},
    "InputSpec.dtype = bfloat16": "NumPy has no such type: such a batch is one of the framework's own",
    **{
        f"optimizer {name}.fused": "PyTorch's kernels"
        for name in ("adadelta", "adagrad", "adam", "adamax", "adamw", "nadam", "rmsprop")
    },
}


def test_every_part_of_the_language_is_said_by_one_of_the_specs() -> None:
    said = {part for one in specs() for part in find_said(one.plan("torch").spec)}
    assert find_all() - said == ELSEWHERE.keys()


def test_the_list_is_read_from_the_declarations() -> None:
    found = find_all()
    assert {
        "loss nll",
        "layer conv2d.dilation",
        "optimizer sgd.momentum_form = lr_inside",
        "op.until",
        "in epochs",
    } <= found
