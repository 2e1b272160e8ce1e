"""`plan --simulate`: closed formulas on steps that are small enough to count by hand, limits, and diagnostics."""

from __future__ import annotations

import json
import re

import pytest

import compiler
from compiler import compile_step
from compiler.plan.simulate.cluster import Cluster, ClusterProblem, time_collective
from compiler.plan.simulate.report import describe_limit, export_simulation, print_simulation
from compiler.plan.simulate.simulation import simulate
from graphspec import load
from graphspec.diagnostics import SpecError
from runtime.cli import execute
from runtime.cli.simulated_cluster import expand_ranks, read_cluster

TINY = """
graphspec: 1
name: tiny
parallel: {kind: replicated}
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 3}, {linear: 2}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: loss}
outputs: [loss]
"""
# Operations of a row: the layers take 2 * 4 * 3 = 24 and 2 * 3 * 2 = 12, the loss reads 2 * 2 = 4 numbers. Back, the
# loss 4, the second layer 2 * 12, and the first 24: nothing is asked for its input. Of 4 * 3 + 3 + 3 * 2 + 2 = 23
# parameters each is added up and stepped: 1 + 2 operations. The message is 4 * 23 bytes, and 4 of the loss.
FORWARD, BACKWARD, FIXED, SIZE = 24 + 12 + 4, 4 + 24 + 24, 3 * 23, 4 * 23 + 4
PAIR = """
graphspec: 1
name: pair
parallel: {kind: replicated}
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 2]}}
models:
  a: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.1}}
  b: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.1}}
ops:
  a_out: {forward: a, inputs: x}
  a_loss: {loss: mse, inputs: [a_out, y]}
  a_step: {update: a, loss: a_loss}
  b_out: {forward: b, inputs: x}
  b_loss: {loss: mse, inputs: [b_out, y]}
  b_step: {update: b, loss: b_loss}
outputs: []
"""
CLASS = """
graphspec: 1
name: classes
parallel: {kind: replicated}
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 2]}}
models: {net: {class: "zoo:Net", optimizer: {name: sgd, lr: 0.1}}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: loss}
outputs: [loss]
"""
SPEED = 1e6
SLOW = {"bandwidth": 1e6, "latency": 1e-3, "flops": SPEED}
ENDLESS = {"bandwidth": float("inf"), "latency": 0.0, "flops": SPEED}


def run(text, *overrides, ranks=(4,), mode="train", batch=1024, **given):
    plan = compile_step(load(text, overrides))
    return simulate(plan, mode, Cluster(ranks=ranks, sizes={"batch": batch}, **{**SLOW, **given}))


def step_of(*arguments, **given):
    (estimate,) = run(*arguments, **given).estimates
    return estimate.step


def test_a_step_of_one_process_takes_its_operations():
    assert step_of(TINY, ranks=(1,)) == pytest.approx((1024 * (FORWARD + BACKWARD) + FIXED) / SPEED)


def test_a_step_waits_for_the_hops_of_a_tree_where_these_are_fewer():
    # A ring of four takes 6 hops, a tree 4. The rows of each, 3 hops, are there before the forward is over.
    message = 4 * (1e-3 + SIZE / 1e6)
    assert message < 6e-3 + 2 * 3 / 4 * SIZE / 1e6
    assert 256 * FORWARD / SPEED > 3 * (1e-3 + 8 / 1e6)
    assert step_of(TINY) == pytest.approx((256 * (FORWARD + BACKWARD) + FIXED) / SPEED + message)


def test_a_step_waits_for_the_bytes_of_a_ring_where_these_are_fewer():
    message = 6e-6 + 2 * 3 / 4 * SIZE / 1e3
    rows = 3 * (1e-6 + 8 / 1e3)  # 24 ms, more than the forward takes
    forward = 256 * FORWARD / SPEED
    expected = rows + (256 * BACKWARD + FIXED) / SPEED + message
    assert rows > forward
    assert step_of(TINY, bandwidth=1e3, latency=1e-6) == pytest.approx(expected)


def test_a_message_travels_while_the_other_model_runs():
    # A row takes 2 * 4 * 2 = 16 forward, 4 for the loss, and back 4 and 16. 10 parameters, 40 bytes.
    simulation = run(PAIR, bandwidth=1e3, latency=0.0, collectives="ring")
    (estimate,) = simulation.estimates
    rows, forward, back, fixed = 3 * 8 / 1e3, 256 * 20 / SPEED, 256 * 20 / SPEED, 30 / SPEED
    message = 2 * 3 / 4 * 40 / 1e3  # 60 ms: the first travels while the other model runs, the second after it
    # the rows are known 24 ms after the begin; the first message leaves after its gradient
    begun = max(rows, forward) + back
    first = begun + message
    second = max(first, begun + forward + back) + message
    # the first update takes place while the second message is on its way
    assert estimate.step == pytest.approx(second + fixed)
    assert estimate.compute == pytest.approx(2 * (forward + back + fixed))


def test_buckets_leave_while_the_first_layer_is_differentiated():
    # The second layer has 8 parameters, 32 bytes: a bucket of 30. The first has 60, and the loss 4.
    given = {"bandwidth": 1e4, "latency": 0.0, "collectives": "ring"}
    (estimate,) = run(TINY, "parallel.bucket_mb=0.00003", **given).estimates
    ring = 2 * 3 / 4 / 1e4
    begun = max(3 * 8 / 1e4, 256 * FORWARD / SPEED)
    after_second = begun + 256 * (4 + 24) / SPEED
    after_first = after_second + 256 * 24 / SPEED
    first = after_second + 32 * ring
    second = max(first, after_first) + 60 * ring
    assert estimate.step == pytest.approx(second + 4 * ring + FIXED / SPEED)
    (whole,) = run(TINY, **given).estimates
    assert estimate.step < whole.step == pytest.approx(after_first + 96 * ring + FIXED / SPEED)


def test_shards_are_gathered_layer_by_layer_and_scattered():
    # A layer of n bytes takes 3 (latency + n / 4 / bandwidth); the first has 60 bytes, the second 32.
    (estimate,) = run(TINY.replace("replicated", "sharded"), bandwidth=1e4, latency=1e-4).estimates
    rows, first, second, scattered = (3 * (1e-4 + size / 1e4) for size in (8, 60 / 4, 32 / 4, 92 / 4))
    loss = 6e-4 + 2 * 3 / 4 * 4 / 1e4  # a ring: a tree takes 2 ms
    layer = 256 * 24 / SPEED
    # The rows and the first layer are waited for. The second layer is gathered while the first runs.
    assert second < layer
    now = rows + first + 256 * FORWARD / SPEED
    # The loss leaves, and then the second layer is gathered for its gradient, which is waited for; the first meanwhile.
    assert loss + second > 256 * 4 / SPEED
    assert first < layer
    now += loss + second + 2 * layer
    # The set is scattered, of which each process steps its part.
    now += scattered + (23 + 2 * 23 / 4) / SPEED
    assert estimate.step == pytest.approx(now)
    assert estimate.sent == pytest.approx(8 * 3 + 2 * 3 / 4 * 4 + 3 / 4 * (92 + 92 + 92))


@pytest.mark.parametrize(
    ("collective", "ring", "tree"),
    [
        ("sum", 14 * 1e-3 + 2 * 7 / 8 * 5, 2 * 3 * (1e-3 + 5)),
        ("gather", 7 * (1e-3 + 5), 3 * 1e-3 + 7 * 5),
        ("broadcast", 10 * 1e-3 + 2 * 7 / 8 * 5, 3 * (1e-3 + 5)),
    ],
)
def test_collectives_of_eight_processes(collective, ring, tree):
    for kind, expected in (("ring", ring), ("tree", tree)):
        cluster = Cluster(ranks=(8,), bandwidth=1.0, latency=1e-3, collectives=kind)
        assert time_collective(collective, 5, 8, cluster).total == pytest.approx(expected)
    best = ring if collective == "gather" else min(ring, tree)
    cluster = Cluster(ranks=(8,), bandwidth=1.0, latency=1e-3)
    assert time_collective(collective, 5, 8, cluster).total == pytest.approx(best)


@pytest.mark.parametrize(
    "kind", ["replicated", "sharded", "replicated, bucket_mb: 0.00003", "replicated, compress: fp16"]
)
def test_more_bandwidth_and_less_latency_are_never_slower(kind):
    text = TINY.replace("replicated", kind)
    for name, values in {"bandwidth": [1e2, 1e3, 1e4, 1e5, 1e9], "latency": [1e-1, 1e-2, 1e-4, 0.0]}.items():
        for ranks in (2, 3, 8):
            steps = [step_of(text, ranks=(ranks,), **{name: value}) for value in values]
            assert steps == sorted(steps, reverse=True)


def test_an_endless_network_leaves_the_law_of_amdahl():
    one = 1024 * (FORWARD + BACKWARD) + FIXED
    for estimate in run(TINY, ranks=(1, 2, 8, 64), **ENDLESS).estimates:
        assert estimate.waited == 0
        assert estimate.speedup == pytest.approx(one / (1024 / estimate.ranks * (FORWARD + BACKWARD) + FIXED))


def test_an_endless_network_makes_weak_scaling_ideal():
    for estimate in run(TINY, ranks=(1, 2, 8, 1000), scaling="weak", **ENDLESS).estimates:
        assert estimate.rows == 1024
        assert estimate.speedup == pytest.approx(estimate.ranks)


def test_a_measured_step_is_divided_by_work_and_its_overhead_stays():
    simulation = run(TINY, ranks=(4,), step=12e-3, overhead=2e-3, flops=None, bandwidth=float("inf"), latency=0.0)
    assert simulation.one.step == pytest.approx(12e-3)
    (estimate,) = simulation.estimates
    assert estimate.step == pytest.approx(2e-3 + 10e-3 / 4)


def test_processes_that_share_cores_compute_one_after_another():
    given = {"step": 12e-3, "flops": None, "bandwidth": float("inf"), "latency": 0.0, "cores": 2}
    one, two, four = run(TINY, ranks=(1, 2, 4), **given).estimates
    assert two.by_rows == pytest.approx(one.by_rows / 2)
    assert four.by_rows == pytest.approx(one.by_rows / 2)


VGG = (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512, 512, 512, 512, 0)


def test_vgg_19_takes_as_much_as_was_published():
    """He et al. 2015, Deep Residual Learning, section 3.3: VGG-19 has 19.6 billion multiply-adds."""
    layers = ", ".join(
        f"{{conv2d: {{out: {each}, kernel: 3, padding: 1}}}}, relu" if each else "{max_pool: 2}" for each in VGG
    )
    text = TINY.replace("[batch, 4]", "[batch, 3, 224, 224]").replace("[batch, 2]", "[batch, 1000]")
    text = text.replace(
        "{linear: 3}, {linear: 2}", f"{layers}, flatten, {{linear: 4096}}, {{linear: 4096}}, {{linear: 1000}}"
    )
    (estimate,) = run(text, ranks=(1,), mode="eval", batch=1, flops=1.0).estimates
    assert estimate.step == pytest.approx(2 * 19.6e9, rel=0.01)
    # Simonyan and Zisserman 2015, table 2: 144 million parameters
    assert estimate.memory.weights == pytest.approx(4 * 144e6, rel=0.01)


def test_memory_is_counted_by_hand():
    (estimate,) = run(TINY.replace("name: sgd", "name: adam")).estimates
    memory = estimate.memory
    assert (memory.weights, memory.slots, memory.gradients) == (92, 184, 92)
    assert memory.messages == SIZE + 8
    # the batch, two results of layers; the loss, as what it is of the whole, is a number three times
    assert memory.values == pytest.approx(4 * 256 * (4 + 2 + 3 + 2), abs=100)


def test_shards_divide_weights_and_slots_and_gather_a_layer():
    (estimate,) = run(TINY.replace("name: sgd", "name: adam").replace("replicated", "sharded")).estimates
    assert (estimate.memory.weights, estimate.memory.slots) == (92 // 4 + 60, 184 // 4)


def test_windows_make_a_step_the_mean_of_its_functions():
    simulation = run(TINY.replace("loss: loss}", "loss: loss, accumulate: 4}"), ranks=(1,))
    assert sorted(simulation.shares.values()) == [0.25, 0.75]


def test_micro_batches_compute_the_same_rows():
    assert step_of(TINY, "micro_batches=4", **ENDLESS) == pytest.approx(step_of(TINY, **ENDLESS), rel=0.01)


# ------------------------------------------------------------ where it stops


def test_it_stops_scaling_where_twice_as_many_are_less_than_a_tenth_faster():
    given = {"bandwidth": 1e9, "collectives": "tree"}
    simulation = run(TINY, ranks=(1, 1024), **given)
    limit = simulation.limit
    steps = {each: step_of(TINY, ranks=(each,), **given) for each in (limit.ranks // 2, limit.ranks, 2 * limit.ranks)}
    assert steps[limit.ranks] < 1.1 * steps[2 * limit.ranks]
    assert steps[limit.ranks // 2] >= 1.1 * steps[limit.ranks]
    assert (limit.reason, limit.message) == ("latency", "step#sent")
    assert describe_limit(simulation).startswith(f"It stops scaling at {limit.ranks} processes: with {2 * limit.ranks}")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"bandwidth": 1e3, "latency": 0.0}, "bandwidth"),
        ({"bandwidth": 1e9, "latency": 1e-3}, "latency"),
        ({**ENDLESS, "flops": None, "step": 12e-3, "overhead": 11e-3}, "fixed"),
        ({**ENDLESS, "cores": 1}, "cores"),
        ({**ENDLESS, "batch": 4}, "rows"),
        ({"bandwidth": 1e2, "latency": 0.0, "scaling": "weak"}, "bandwidth"),
    ],
)
def test_the_reason_is_what_most_is_lost_to(given, reason):
    simulation = run(TINY, ranks=(4, 256) if "batch" not in given else (4,), **given)
    assert simulation.limit.reason == reason
    assert len(describe_limit(simulation).splitlines()) == 1


def test_numbers_that_every_process_draws_for_all_limit_weak_scaling():
    text = TINY.replace("ops:\n", 'ops:\n  z: {random: normal, shape: [batch, 64]}\n  x2: {expr: "x + z[:, :4]"}\n')
    simulation = run(text.replace("inputs: x}", "inputs: x2}"), ranks=(4, 4096), scaling="weak", **ENDLESS)
    assert simulation.limit.reason == "undivided"


def test_it_says_so_where_nothing_stops():
    simulation = run(TINY, ranks=(1, 8), **ENDLESS)
    assert simulation.limit is None
    assert describe_limit(simulation) == "Up to 8 processes, twice as many make a step at least 1.1 times faster."


def test_processes_without_rows_are_left_out():
    simulation = run(TINY, "micro_batches=2", ranks=(2, 4, 8), batch=8)
    assert [each.ranks for each in simulation.estimates] == [2, 4]
    assert simulation.left_out == (8,)
    assert "The batch has too few rows for 8 processes." in print_simulation(simulation)
    with pytest.raises(ClusterProblem, match="rows for 4 processes at most"):
        run(TINY, "micro_batches=2", ranks=(16,), batch=8)


# ------------------------------------------------------------ classes


def test_a_class_has_the_cost_and_the_parameters_that_are_given():
    given = {"costs": {"net": 36}, "parameters": {"net": 23}}
    (estimate,) = run(CLASS, **given).estimates
    assert estimate.sent == run(TINY).estimates[0].sent
    # a class is one layer, back once as nothing is asked for its input; of the loss, two numbers are known
    assert estimate.by_rows == pytest.approx(256 * (36 + 2 + 2 + 36) / SPEED)


def test_a_measured_step_serves_for_classes():
    simulation = run(CLASS, step=12e-3, flops=None)
    (estimate,) = simulation.estimates
    assert simulation.one.step == pytest.approx(12e-3)
    assert estimate.compute == pytest.approx(3e-3, rel=0.01)
    assert "set `net.flops=...`" in print_simulation(simulation)
    assert "set `net.parameters=...`" in print_simulation(simulation)


def test_operations_of_a_class_are_asked_for():
    with pytest.raises(ClusterProblem, match="the cost of a forward of model 'net' is not known") as error:
        run(CLASS)
    assert "net.flops=4GFLOP" in error.value.help


def test_a_batch_is_asked_for():
    with pytest.raises(ClusterProblem, match="the number of rows of a batch"):
        simulate(compile_step(load(TINY)), "train", Cluster(ranks=(2,), **SLOW))


# ------------------------------------------------------------ the option


def read(text, spec=TINY):
    return read_cluster(text, compile_step(load(spec)))


def test_units_are_read():
    cluster = read("ranks=8..100, 3, bandwidth=200 Gbit/s, latency=2.5us, flops=1.5TFLOPS, memory=80GiB, batch=64")
    assert cluster.ranks == (3, 8, 16, 32, 64, 100)
    assert (cluster.bandwidth, cluster.latency, cluster.flops) == (25e9, 2.5e-6, 1.5e12)
    assert (cluster.memory, cluster.sizes) == (80 * 2**30, {"batch": 64})
    named = read("ranks=2,bandwidth=1MB/s,latency=0s,step=2ms,net.parameters=25.6M,net.flops=4.1GFLOP", CLASS)
    assert (named.step, named.parameters, named.costs) == (2e-3, {"net": 25_600_000}, {"net": 4_100_000_000})


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(1, 1, (1,)), (1, 8, (1, 2, 4, 8)), (3, 9, (3, 4, 8, 9)), (8, 100, (8, 16, 32, 64, 100))],
)
def test_a_range_has_both_ends_and_the_powers_of_two(first, last, expected):
    assert expand_ranks(first, last) == expected


GOOD = "ranks=2, bandwidth=1GB/s, latency=5us, flops=1TFLOP/s"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        (f"{GOOD}, latncy=5us", 56, "there is no key 'latncy'"),
        (GOOD.replace("1GB/s", "1Gb"), 20, "'Gb' is no unit of `bandwidth`"),
        (GOOD.replace("5us", "5"), 35, "`latency` has no unit"),
        (GOOD.replace("5us", "fast"), 35, "`latency` is a number with a unit, not 'fast'"),
        (GOOD.replace("1GB/s", "0GB/s"), 20, "`bandwidth` is more than zero"),
        (GOOD.replace("=2", "=9..2"), 7, "the range ends before it begins: 9 is more than 2"),
        (GOOD.replace("=2", "=two"), 7, "`ranks` is a whole number, not 'two'"),
        (f"{GOOD}, scaling=week", 64, "`scaling` is strong or weak, not 'week'"),
        (f"{GOOD}, flops=2TFLOP/s", 62, "`flops` is there twice"),
        (f"{GOOD}, step=2ms", 1, "`flops` and `step` both say how fast a process is"),
        ("ranks=2, bandwidth=1GB/s, latency=5us", 1, "the speed of a process is missing"),
        ("ranks=2, latency=5us, step=2ms", 1, "`bandwidth` is missing"),
        ("ranks=2, bandwidth=1GB/s, latency=5us, step=2ms, overhead=3ms", 1, "the overhead is longer than the step"),
        ("8", 1, "expected `key=value`"),
        (f"{GOOD}, net.flops=1GFLOP", 56, "there is no key 'net.flops'"),
    ],
)
def test_what_is_wrong_has_its_place(text, column, message):
    with pytest.raises(SpecError) as error:
        read(text)
    (found,) = error.value.diagnostics
    assert (found.code, found.span.column) == ("GS239", column)
    assert found.message.startswith(message)
    assert found.help


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(SpecError) as error:
        read("ranks=two, bandwith=1, latency=5")
    assert len(error.value.diagnostics) == 3


ASKED = "bandwidth=1GB/s, latency=5us, flops=1TFLOP/s, batch=20000"


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return str(path)


def test_the_plan_is_compiled_once_however_many_processes_there_are(tiny, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(
        compiler, "compile_step", lambda *given, **named: calls.append(1) or compile_step(*given, **named)
    )
    assert execute(["plan", tiny, "--simulate", f"ranks=1..10000, {ASKED}"]) == 0
    assert len(calls) == 1
    table = re.findall(r"^ +(\d+) +(\d+) ", capsys.readouterr().out, re.MULTILINE)
    assert table[0] == ("1", "20000")
    assert [int(ranks) for ranks, _ in table] == [*(2**each for each in range(14)), 10000]


def test_the_command_prints_a_table_and_where_it_stops(tiny, capsys):
    assert execute(["plan", tiny, "--simulate", f"ranks=1..4, {ASKED}"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "tiny: train step of several processes, replicated, strong scaling"
    assert shown[1] == "20000 rows in all; 1 GB/s, 5 us a hop, 1 TFLOP/s"
    assert shown[3].split() == [
        "ranks",
        "rows",
        "each",
        "compute",
        "sent",
        "waits",
        "step",
        "speedup",
        "efficiency",
        "memory",
    ]
    assert len({len(line) for line in shown[3:7]}) == 1
    assert shown[-1].startswith("It stops scaling at 1 process: with 2 a step is no faster.")


def test_the_command_prints_json(tiny, capsys):
    assert execute(["plan", tiny, "--format", "json", "--simulate", f"ranks=1, 2, {ASKED}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["ranks"] for each in found["ranks"]] == [1, 2]
    plan = compile_step(load(TINY))
    given = read_cluster(f"ranks=1, 2, {ASKED}", plan)
    assert found == export_simulation(simulate(plan, "train", given))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nproc", "2"], "names the numbers of processes itself"),
        (["--format", "svg"], "a simulation is text or json, not svg"),
        (["-s", "parallel=null"], "GS257"),
        (["--mode", "infer"], "GS233"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tiny, capsys, options, message):
    assert execute(["plan", tiny, "--simulate", f"ranks=2, {ASKED}", *options]) != 0
    assert message in re.sub(r"[\s│]+", " ", capsys.readouterr().err)


def test_what_a_step_lacks_is_a_diagnostic(tiny, capsys):
    assert execute(["plan", tiny, "--simulate", "ranks=2, bandwidth=1GB/s, latency=5us, flops=1TFLOP/s"]) == 1
    assert "error[GS239]: the number of rows of a batch is missing" in capsys.readouterr().err
