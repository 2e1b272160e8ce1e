"""`repeat` runs its ops several times, `choose` and `sometimes` those that are drawn: ten steps equal loops by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import torch

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, StepError
from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("A15")

STEPS, TIMES, ROWS = 10, 5, 7
WGAN = """
graphspec: 1
name: wgan-gp
inputs: {image: {shape: [batch, 3]}}
models:
  g: {layers: [{linear: 3}], optimizer: {name: sgd, lr: 0.05}}
  d: {layers: [{linear: 4}, tanh, {linear: 1}], optimizer: {name: sgd, lr: 0.01, momentum: 0.5}}
ops:
  critic:
    repeat: 5
    batch: reuse
    outputs: [z, share, d_loss]
    ops:
      z: {random: normal, shape: [batch, 2]}
      fake: {forward: g, inputs: z, stop: true}
      share: {random: uniform, shape: [batch, 1]}
      mixed: {expr: "image + share * (fake - image)"}
      judged: {forward: d, inputs: mixed}
      on_fake: {forward: d, inputs: fake}
      on_real: {forward: d, inputs: image}
      slope: {gradient: "sum(judged)", wrt: mixed}
      d_loss: {expr: "mean(on_fake) - mean(on_real) + 10 * mean((norm(slope, axis=1) - 1)**2)"}
      step_d: {update: d, loss: d_loss}
  z: {random: normal, shape: [batch, 2]}
  fake: {forward: g, inputs: z}
  score: {forward: d, inputs: fake, after: critic}
  step_g: {update: g, loss: "-mean(score)"}
outputs: [critic.d_loss, critic.z, critic.share, z, step_g.loss]
"""


def tensors(step: Step) -> dict[str, torch.Tensor]:
    """Return the weights of a step."""
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in weights(step).items()}


def generate(held: Mapping[str, torch.Tensor], z: torch.Tensor) -> torch.Tensor:
    return z @ held["g.0.weight"].T + held["g.0.bias"]


def judge(held: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    hidden = torch.tanh(x @ held["d.0.weight"].T + held["d.0.bias"])
    return hidden @ held["d.2.weight"].T + held["d.2.bias"]


def descend(
    held: dict[str, torch.Tensor],
    model: str,
    loss: Callable[..., torch.Tensor],
    *given: torch.Tensor,
    lr: float,
    momentum: tuple[float, dict[str, torch.Tensor]] | None = None,
) -> float:
    """Take a step of gradient descent on the weights of a model; the loss is of all weights, and of what is given."""
    leaves = {name: value.clone().requires_grad_() for name, value in held.items()}
    value = loss(leaves, *given)
    names = [name for name in held if name.startswith(f"{model}.")]
    for name, slope in zip(names, torch.autograd.grad(value, [leaves[each] for each in names]), strict=True):
        moved = slope
        if momentum is not None:
            factor, buffers = momentum
            moved = buffers[name] = slope + factor * buffers[name] if name in buffers else slope
        held[name] = held[name] - lr * moved
    return float(value.detach())


def criticize(held: Mapping[str, torch.Tensor], image: torch.Tensor, z: torch.Tensor, share: torch.Tensor):
    fake = generate(held, z).detach()
    mixed = (image + share * (fake - image)).requires_grad_()
    (slope,) = torch.autograd.grad(judge(held, mixed).sum(), mixed, create_graph=True)
    penalty = ((torch.linalg.vector_norm(slope, dim=1) - 1) ** 2).mean()
    return judge(held, fake).mean() - judge(held, image).mean() + 10 * penalty


def mislead(held: Mapping[str, torch.Tensor], z: torch.Tensor) -> torch.Tensor:
    return -judge(held, generate(held, z)).mean()


def numbers(step: Step, outputs: Mapping[str, object], name: str) -> torch.Tensor:
    return torch.tensor(step.numpy(outputs[name]), dtype=torch.float64)


def images(generator: np.random.Generator) -> np.ndarray:
    return generator.normal(size=(ROWS, 3))


@pytest.mark.sample(3)
@pytest.mark.parametrize("batch", ["reuse", "split", "next"])
def test_five_lines_train_a_critic_several_times(batch: str, backend: str) -> None:
    text = WGAN
    if batch == "split":  # parts differ by a row, and cannot be stacked: the draws are those of the whole batch
        text = text.replace("outputs: [z, share, d_loss]", "outputs: [d_loss]").replace(
            "critic.z, critic.share,", "critic.whole.z, critic.whole.share,"
        )
    step = build_step(text, backend, [f"ops.critic.batch={batch}"])
    held, momentum, generator = tensors(step), dict[str, torch.Tensor](), np.random.default_rng(0)
    for _ in range(STEPS):
        given = [images(generator) for _ in range(TIMES if batch == "next" else 1)]
        outputs = step([{"image": each} for each in given] if batch == "next" else {"image": given[0]})
        real = [torch.tensor(each) for each in given] if batch == "next" else [torch.tensor(given[0])] * TIMES
        if batch == "split":
            real = [*torch.tensor(given[0]).tensor_split(TIMES)]
            drawn = [numbers(step, outputs, f"critic.whole.{name}").tensor_split(TIMES) for name in ("z", "share")]
        else:
            drawn = [numbers(step, outputs, f"critic.{name}") for name in ("z", "share")]
        losses = []
        for each in zip(real, *drawn, strict=True):
            losses.append(descend(held, "d", criticize, *each, lr=0.01, momentum=(0.5, momentum)))
        descend(held, "g", mislead, numbers(step, outputs, "z"), lr=0.05)
        np.testing.assert_allclose(numbers(step, outputs, "critic.d_loss"), losses, rtol=1e-9)
        if batch != "split":
            assert len({tuple(each.flatten().tolist()) for each in drawn[0]}) == TIMES  # every iteration draws its own
    for name, value in weights(step).items():
        np.testing.assert_allclose(value, held[name], rtol=1e-9, atol=1e-12, err_msg=name)


PPO = """
graphspec: 1
name: several passes over one batch
inputs: {state: {shape: [batch, 3]}, action: {shape: [batch, 2]}, advantage: {shape: [batch, 1]}}
models:
  policy: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.2}}
  slow: {like: policy}
ops:
  before: {forward: policy, inputs: state, after: []}
  old: {expr: "stop(sum(-(action - before)**2, axis=1, keepdims=True))"}
  passes:
    repeat: 4
    batch: split
    outputs: [fit]
    ops:
      mean: {forward: policy, inputs: state}
      ratio: {expr: "exp(sum(-(action - mean)**2, axis=1, keepdims=True) - old)"}
      fit: {expr: "-mean(minimum(ratio * advantage, clip(ratio, min=0.8, max=1.2) * advantage))"}
      step: {update: policy, loss: fit}
      follow: {ema: policy, into: slow, decay: 0.9}
outputs: [passes.fit]
"""


def likely(held: Mapping[str, torch.Tensor], state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    mean = state @ held["policy.0.weight"].T + held["policy.0.bias"]
    return -((action - mean) ** 2).sum(1, keepdim=True)


def improve(
    held: Mapping[str, torch.Tensor], state: torch.Tensor, action: torch.Tensor, gain: torch.Tensor, old: torch.Tensor
) -> torch.Tensor:
    ratio = torch.exp(likely(held, state, action) - old)
    return -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()


def test_passes_over_parts_of_a_batch_read_parts_of_what_was_made_before(backend: str) -> None:
    step, generator = build_step(PPO, backend), np.random.default_rng(1)
    held = tensors(step)
    slow = {name.removeprefix("slow."): held.pop(name) for name in [*held] if name.startswith("slow.")}

    for _ in range(STEPS):
        batch = {
            name: generator.normal(size=(10, width)) for name, width in (("state", 3), ("action", 2), ("advantage", 1))
        }
        found = step.numpy(step(batch)["passes.fit"])
        state, action, gain = (torch.tensor(each) for each in batch.values())
        old, losses = likely(held, state, action).detach(), []
        for each in zip(*(whole.tensor_split(4) for whole in (state, action, gain, old)), strict=True):
            losses.append(descend(held, "policy", improve, *each, lr=0.2))
            slow = {name: 0.9 * value + 0.1 * held[f"policy.{name}"] for name, value in slow.items()}
        np.testing.assert_allclose(found, losses, rtol=1e-9)
    for name, value in slow.items():
        np.testing.assert_allclose(weights(step)[f"slow.{name}"], value, rtol=1e-9)


VIEWS = """
graphspec: 1
name: augmentation
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}
  extra: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 0.5}}
ops:
  views:
    choose:
      - {p: 0.5, ops: {seen: {expr: "-x"}}}
      - {p: 0.3, ops: {twice: {expr: "2 * x"}, seen: {expr: "twice + 1"}}}
      - p: 0.2
        ops:
          factor: {forward: extra}
          seen: {expr: "x * stop(factor)"}
          far: {loss: mse, inputs: [factor, 0.0]}
          shrink: {update: extra, loss: far}
    outputs: [seen]
    mode: train
  shift:
    sometimes: 0.25
    mode: train
    ops: {moved: {expr: "views.seen + 3"}}
    else: {moved: views.seen}
  out: {forward: net, inputs: shift.moved, mode: train}
  fit: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: fit}
outputs: [fit, shift.moved]
"""


def miss(held: Mapping[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x @ held["net.0.weight"].T + held["net.0.bias"] - y) ** 2).mean()


def draw(step: int, name: str, seed: int = 0) -> float:
    """Return the number that docs/semantics.md says is drawn."""
    digest = hashlib.blake2b(f"{seed}/train/{step}/{name}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


def test_one_alternative_runs_and_the_others_leave_no_trace(backend: str) -> None:
    step, generator = build_step(VIEWS, backend), np.random.default_rng(2)
    held, taken = tensors(step), []
    for number in range(1, 41):
        x, y = generator.normal(size=(5, 2)), generator.normal(size=(5, 1))
        outputs, chosen = step({"x": x, "y": y}), draw(number, "views")
        factor = held["extra.value"]
        seen = -x if chosen < 0.5 else 2 * x + 1 if chosen < 0.8 else x * float(factor)
        seen = seen + 3 if draw(number, "shift") < 0.25 else seen
        if chosen >= 0.8:
            held["extra.value"] = factor - 0.5 * 2 * factor
        taken.append((int(chosen >= 0.5) + int(chosen >= 0.8), draw(number, "shift") < 0.25))
        loss = descend(held, "net", miss, torch.tensor(seen), torch.tensor(y), lr=0.1)
        np.testing.assert_allclose(step.numpy(outputs["shift.moved"]), seen, rtol=1e-9)
        np.testing.assert_allclose(step.numpy(outputs["fit"]), loss, rtol=1e-9)
        report = step.report.updates["views.3.shrink"]
        assert report.fired == (chosen >= 0.8)
        assert report.fired or report.reason == "it is in 'views.3', which was not drawn"
    assert len(set(taken)) == 6  # every combination was met
    assert step.optimizers["extra"].iterations == sum(view == 2 for view, _ in taken)
    for name, value in weights(step).items():
        np.testing.assert_allclose(value, held[name], rtol=1e-8, atol=1e-12, err_msg=name)


def test_alternatives_are_drawn_as_often_as_they_say() -> None:
    numbers = [draw(number, "views") for number in range(4000)]
    shares = [np.mean([low <= each < high for each in numbers]) for low, high in ((0, 0.5), (0.5, 0.8), (0.8, 1))]
    assert np.allclose(shares, [0.5, 0.3, 0.2], atol=0.03)
    other = [draw(number, "views", seed=1) for number in range(4000)]
    assert abs(np.corrcoef(numbers, other)[0, 1]) < 0.06


GROWING = """
graphspec: 1
name: more passes later
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models: {net: {layers: [{linear: 1}], optimizer: {name: adam, lr: 0.1}}}
ops:
  passes:
    repeat: {schedule: piecewise, at: {0: 1, 2: 3, 5: 4}}
    outputs: [fit]
    ops:
      noise: {random: normal, like: x}
      out: {forward: net, inputs: noise}
      fit: {loss: mse, inputs: [out, y]}
      step: {update: net, loss: fit}
  more:
    sometimes: 0.5
    after: passes
    ops:
      small: {forward: net, inputs: x}
      far: {loss: l1, inputs: [small, 0.0]}
      again: {update: net, loss: far}
outputs: [passes.fit]
"""


def rows(count: int = 6) -> Sequence[dict[str, np.ndarray]]:
    generator = np.random.default_rng(3)
    return [{"x": generator.normal(size=(4, 2)), "y": generator.normal(size=(4, 1))} for _ in range(count)]


def single(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: each.astype(np.float32) for name, each in batch.items()}


@pytest.mark.parametrize(
    ("counts", "expected"), [("{0: 1, 2: 3, 5: 4}", [1, 1, 3, 3, 3, 4]), ("{0: 3, 4: 0}", [3] * 4 + [0] * 2)]
)
def test_the_number_of_iterations_follows_a_schedule(counts: str, expected: list[int], backend: str) -> None:
    step = build_step(GROWING, backend, [f"ops.passes.repeat.at={counts}"])
    found = [len(step.numpy(outputs["passes.fit"])) if outputs else 0 for outputs in map(step, rows())]
    assert found == expected
    again = sum("again" in name for name in step.report.fired)
    assert step.optimizers["net"].iterations >= sum(expected) + again


PARTED = """
graphspec: 1
name: parts of a batch, as many as there are iterations
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models: {net: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  passes:
    repeat: COUNTS
    batch: split
    outputs: [fit]
    ops:
      noise: {random: normal, shape: [batch, 2]}
      seen: {expr: "x + 0.1 * noise"}
      out: {forward: net, inputs: seen}
      fit: {loss: mse, inputs: [out, y]}
      step: {update: net, loss: fit}
outputs: [passes.fit, passes.whole.noise]
"""


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ("{schedule: piecewise, at: {0: 1, 1: 3}}", [1, 3, 3]),
        ("{schedule: piecewise, at: {0: 2, 1: 0}}", [2, 0]),
        ("1", [1, 1]),
    ],
)
def test_a_batch_is_cut_into_as_many_parts_as_the_step_has_iterations(
    counts: str, expected: list[int], backend: str
) -> None:
    step = build_step(PARTED.replace("COUNTS", counts), backend)
    held, generator = tensors(step), np.random.default_rng(4)
    for count in expected:
        batch = {"x": generator.normal(size=(ROWS, 2)), "y": generator.normal(size=(ROWS, 1))}
        outputs = step(batch)
        noise = numbers(step, outputs, "passes.whole.noise")
        wholes = (torch.tensor(batch["x"]), torch.tensor(batch["y"]), noise)
        parts = zip(*(whole.tensor_split(count) for whole in wholes), strict=True) if count else ()
        fits = [descend(held, "net", fit_noisy, *part, lr=0.1) for part in parts]
        assert np.allclose(step.numpy(outputs["passes.fit"]) if count else [], fits, rtol=1e-12, atol=0)
    assert np.allclose(weights(step)["net.0.weight"], held["net.0.weight"], rtol=1e-12, atol=0)


def fit_noisy(held: Mapping[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    return (((x + 0.1 * noise) @ held["net.0.weight"].T + held["net.0.bias"] - y) ** 2).mean()


def test_a_run_goes_on_in_the_middle_bit_for_bit(backend: str) -> None:
    one, other = (build_step(GROWING, backend, dtype="float32") for _ in range(2))
    for batch in rows()[:3]:
        one(single(batch))
    other.restore(one.state())
    for batch in map(single, rows()[3:]):
        assert one.numpy(one(batch)["passes.fit"]).tobytes() == other.numpy(other(batch)["passes.fit"]).tobytes()
    assert one.state().counters == other.state().counters


OVERFLOW = """
graphspec: 1
name: an overflow in one iteration
inputs: {slope: {shape: [batch, 2]}}
models:
  v: {parameter: {shape: [2], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
  slow: {like: v}
ops:
  passes:
    repeat: 3
    batch: next
    ops:
      value: {forward: v}
      cost: {expr: "sum(value * slope)"}
      step: {update: v, loss: cost}
      follow: {ema: v, into: slow, decay: 0.5}
precision: {loss_scale: {kind: dynamic, initial: 1024, growth_steps: 1}}
outputs: []
"""


def test_another_number_of_batches_is_refused_and_the_message_says_how_many(backend: str) -> None:
    step, batch = build_step(OVERFLOW, backend, dtype="float32"), {"slope": np.ones((1, 2), np.float32)}
    for given, found in (([batch], r"1 \(dict\)"), ([], "none"), ([batch, batch, 3], r"3 \(dict, int\)")):
        with pytest.raises(StepError, match=f"GS209.*takes 3 batches, each a mapping .*; found {found}\n"):
            step(given)


def test_one_batch_may_stand_in_a_list(backend: str) -> None:
    """A loop that gathers as many batches as the spec repeats need not know of the number 1."""
    one, other = (build_step(OVERFLOW, backend, ["ops.passes.repeat=1"], dtype="float32") for _ in range(2))
    batch = {"slope": np.ones((1, 2), np.float32)}
    one([batch])
    other(batch)
    assert weights(one)["v.value"].tolist() == weights(other)["v.value"].tolist() == [-1.0, -1.0]
    with pytest.raises(StepError, match=r"GS209.*the batch is list"):
        one([batch, batch])


def test_an_overflow_skips_its_iteration_alone_and_the_scale_moves_once(backend: str) -> None:
    step = build_step(OVERFLOW, backend, dtype="float32")

    def take(*slopes: float) -> None:
        step([{"slope": np.full((1, 2), slope, np.float32)} for slope in slopes])

    take(1.0, np.inf, 2.0)
    assert weights(step)["v.value"].tolist() == [-3.0, -3.0]
    assert weights(step)["slow.value"].tolist() == [-1.75, -1.75]  # 0, -0.5, and -1.75: the second one is held
    assert step.report.updates["passes.2.step"].skipped
    assert step.optimizers["v"].iterations == 2
    assert step.report.scale_after == 512.0
    take(1.0, 1.0, 1.0)
    assert weights(step)["v.value"].tolist() == [-6.0, -6.0]
    assert step.report.scale_after == 1024.0  # it grows once per step, not once per iteration


ACCUMULATING = """
graphspec: 1
name: windows of iterations
inputs: {slope: {shape: [batch, 1]}}
models: {v: {parameter: {shape: [1], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}}
ops:
  passes:
    repeat: 2
    batch: split
    ops:
      value: {forward: v}
      cost: {expr: "mean(value * slope)"}
      step: {update: v, loss: cost, accumulate: 2}
outputs: []
"""


def test_every_iteration_has_a_window_of_its_own(backend: str) -> None:
    step, moved = build_step(ACCUMULATING, backend), []
    for slopes in ([1.0, 2.0, 3.0, 10.0, 20.0], [4.0, 5.0, 6.0, 30.0, 40.0]):  # three rows, then two
        step({"slope": np.array(slopes)[:, None]})
        moved.append(weights(step)["v.value"].tolist())
    assert moved[0] == [0.0]
    np.testing.assert_allclose(moved[1], [-(1 + 2 + 3 + 4 + 5 + 6) / 6 - (10 + 20 + 30 + 40) / 4])


def test_iterations_are_the_same_in_micro_batches(backend: str) -> None:
    whole, parted = (
        build_step(GROWING.replace("\nops:", f"\nmicro_batches: {count}\nops:", 1), backend) for count in (1, 2)
    )
    for batch in rows():
        found = [step.numpy(step(batch)["passes.fit"]) for step in (whole, parted)]
        np.testing.assert_allclose(*found, rtol=1e-9)
    for name, value in weights(whole).items():
        np.testing.assert_allclose(weights(parted)[name], value, rtol=1e-9)


def test_phases_are_the_same_as_after(backend: str) -> None:
    text = """
graphspec: 1
name: phases
inputs: {x: {shape: [batch, 2]}}
models: {a: {layers: [{linear: 2}], optimizer: sgd}, b: {layers: [{linear: 2}], optimizer: sgd}}
phases: [[out, fit, step_a], [again, far, step_b], [last]]
ops:
  out: {forward: a, inputs: x}
  fit: {loss: mse, inputs: [out, x]}
  step_a: {update: a, loss: fit}
  again: {forward: a, inputs: x}
  mixed: {forward: b, inputs: again}
  far: {loss: mse, inputs: [mixed, x]}
  step_b: {update: b, loss: far}
  last: {forward: b, inputs: x}
outputs: [again, last]
"""
    after = text.replace("phases: [[out, fit, step_a], [again, far, step_b], [last]]\n", "")
    after = after.replace("again: {forward: a, inputs: x}", "again: {forward: a, inputs: x, after: step_a}")
    after = after.replace("last: {forward: b, inputs: x}", "last: {forward: b, inputs: x, after: [step_a, step_b]}")
    found = [build_step(each, backend) for each in (text, after)]
    set_weights(found[1], weights(found[0]))
    for batch in rows(3):
        one, other = ({name: step.numpy(value) for name, value in step({"x": batch["x"]}).items()} for step in found)
        assert all(one[name].tobytes() == other[name].tobytes() for name in ("again", "last"))


def test_an_order_within_an_iteration_is_written_with_the_names_in_it() -> None:
    text = """
graphspec: 1
name: ordered
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  passes:
    repeat: 2
    ops:
      out: {forward: net, inputs: x}
      loss: {loss: mse, inputs: [out, x]}
      one: {update: net, loss: loss}
      other: {update: net, loss: loss}
"""
    with pytest.raises(SpecError) as raised:
        compile_step(load(text))
    (found,) = raised.value.diagnostics
    assert found.code == "E-UNORDERED-WRITES"
    assert "write `after: one` on 'other'" in found.help
    compile_step(load(text.replace("other: {update: net, loss: loss}", "other: {update: net, loss: loss, after: one}")))
