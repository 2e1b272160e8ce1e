"""What the benchmarks of TensorFlow compare are the same steps: five of them give the same losses in every variant."""

from __future__ import annotations

import pytest

from benchmarks.tensorflow_run import EXPERT, make_variants
from benchmarks.tensorflow_steps import WORKLOADS
from tests.suite.graphs import rewriting

every_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


@pytest.mark.sample(3)
@every_workload
def test_five_steps_give_the_losses_of_the_expert_but_for_rounding(workload):
    with rewriting():
        losses = {
            name: [float(value) for batch in workload.batches(5) for value in step(batch).values()]
            for name, step in make_variants(workload, xla=False).items()
        }
    assert len(set(losses["emitted step"])) == len(losses["emitted step"])  # every step changes something
    assert losses["emitted step"] == losses["built step"]
    assert losses["emitted step"] == pytest.approx(losses[EXPERT], rel=2e-6)
    # The optimizer of Keras adds epsilon to another root, and its normalization rounds otherwise.
    assert losses["Keras"] == pytest.approx(losses[EXPERT], rel=2e-4)
