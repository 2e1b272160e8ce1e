"""Export of a step: weights for plain modules, programs with the numbers of the step, and what is refused."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build
from tests.backends.torch import exporters, users

USERS = exporters.__name__
HEAD = """
graphspec: 1
name: small net
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 3]}, signal: {shape: [batch, length]}}
models:
"""
LAYERS = "{layers: [{linear: 5}, batch_norm, tanh, {dropout: 0.5}, {linear: 3}], optimizer: {name: sgd, lr: 0.1}}"
LEARN = """
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y], mode: train}
  step: {update: net, loss: loss}
"""
AVERAGE = LEARN + "  average: {ema: net, decay: 0.8, buffers: copy, start: 2 steps, use: {eval: swap}}\n"
DRAWS = """
  net: {layers: [{linear: 3}], optimizer: {name: sgd, lr: 0.1}}
  bias: {parameter: {shape: [3]}, optimizer: {name: sgd, lr: 0.1}}
  train: {like: net}
ops:
  out: {forward: net, inputs: x}
  shift: {forward: bias}
  total: {call: add, inputs: [out, shift]}
  loss: {loss: mse, inputs: [total, y], mode: train}
  step: {update: [net, bias], loss: loss}
  follow: {copy: net, into: train}
  other: {forward: train, inputs: x, mode: eval}
  noise: {random: normal, like: total, args: {std: 0.2}, mode: eval}
  noisy: {call: add, inputs: [total, noise], mode: eval}
  mask: {random: bernoulli, shape: [batch, length], mode: eval}
  masked: {call: mul, inputs: [signal, mask], mode: eval}
  chosen: {random: permutation, shape: [batch], mode: eval}
outputs: [loss, noisy, other, masked, noise, mask, chosen]
"""
PARTS = f"""
  net: {{class: '{users.__name__}:Tapped', optimizer: {{name: sgd, lr: 0.1}}}}
  other: {{class: '{users.__name__}:Plain', optimizer: {{name: sgd, lr: 0.1}}}}
ops:
  out: {{forward: net, inputs: x, outputs: [out, {{seen: {{tap: inner}}}}]}}
  both: {{forward: other, inputs: x, method: encode, outputs: [one, two]}}
  loss: {{loss: mse, inputs: [out, two], mode: train}}
  step: {{update: [net, other], loss: loss}}
outputs: [loss, out, seen, one, two]
"""
MODES = """
  net: {layers: [{linear: 3}], optimizer: {name: sgd, lr: 0.1}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y], mode: "!infer"}
  step: {update: net, loss: loss}
  slope: {gradient: loss, wrt: x, mode: eval}
  steep: {call: mean, inputs: slope, mode: eval}
  error: {metric: mean, inputs: out, mode: [eval, test]}
  second: {call: neg, inputs: out, mode: test, every: 2}
  answer: {call: softmax, inputs: out, mode: infer}
outputs: [loss, steep, error, second, answer]
"""


def make(text, **more):
    """Return the step of a text, after three steps."""
    step = build(compile_step(load(HEAD + text)), device="cpu", seed=2, allow=[USERS, users.__name__, "torch"], **more)
    for number in range(3):
        step(batch_of(6, number))
    return step


def layers(ops=LEARN, outputs="[loss, out]"):
    return f"  net: {LAYERS}\nops:{ops}outputs: {outputs}\n"


def in_low(text):
    return text.replace("optimizer:", "precision: bfloat16, optimizer:")


def user(name, ops=LEARN, outputs="[loss, out]"):
    net = f"{{class: '{USERS}:{name}', optimizer: {{name: sgd, lr: 0.1}}}}"
    return f"  net: {net}\nops:{ops}outputs: {outputs}\n"


def batch_of(size, number=0):
    drawn = torch.Generator().manual_seed(100 * size + number)
    shapes = {"x": (size, 4), "y": (size, 3), "signal": (size, size + 2)}
    return {name: torch.randn(shape, generator=drawn) for name, shape in shapes.items()}


CONSTANT = """
  bias: {parameter: {shape: [3], init: ones}, optimizer: {name: sgd, lr: 0.1}}
ops:
  shift: {forward: bias}
  loss: {call: sum, inputs: shift, mode: train}
  step: {update: bias, loss: loss}
  double: {call: mul, inputs: [shift, 2.0], mode: eval}
outputs: [loss, double]
"""


def test_a_mode_that_reads_no_inputs_is_a_program_of_none(tmp_path):
    exported = make(CONSTANT).export(tmp_path / "out")
    program = torch.export.load(tmp_path / "out" / exported.program.file).module()
    moved = torch.full((3,), 1 - 3 * 0.1)  # three steps along a slope of 1
    torch.testing.assert_close(program({}), {"double": 2 * moved})


def assert_same(folder, step, mode="eval", **tolerance):
    """Compare the program in a folder with a step, bit for bit; what the step draws and returns is given."""
    tolerance = tolerance or {"rtol": 0, "atol": 0}
    listing = json.loads((folder / "export.json").read_text())["program"]
    program = torch.export.load(folder / listing["file"]).module()
    for size in (1, 2, 8, 33):
        batch = batch_of(size)
        expected = step(batch, mode=mode)
        with torch.no_grad():  # as the step does: torch chooses kernels by it
            found = program({name: {**batch, **expected}[name] for name in listing["inputs"]})
        assert list(found) == listing["outputs"]
        torch.testing.assert_close(found, {name: expected[name] for name in found}, **tolerance)


SEQUENCES = """
  net:
    layers:
      - {spectral_norm: [{linear: 8}]}
      - {reshape: [2, 4]}
      - {conv1d: {out: 3, kernel: 3, padding: 1}}
      - instance_norm
      - {positional: {method: sinusoidal}}
      - {multi_head_attention: {heads: 2, causal: true, dropout: 0.1}}
      - rms_norm
      - positional
      - {lstm: {size: 4, bidirectional: true}}
      - {gru: {size: 3, last: true}}
    optimizer: {name: sgd, lr: 0.1}
ops:
"""
EXPORTED = [
    layers(AVERAGE),
    user("Rich"),
    user("Deep"),
    DRAWS,
    PARTS,
    in_low(layers(AVERAGE)),
    f"{SEQUENCES}{LEARN}outputs: [loss, out]\n",
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", EXPORTED)
def test_the_program_gives_the_numbers_of_the_step_for_batches_of_any_size(tmp_path, text):
    step = make(text)
    step.export(tmp_path / "out")
    assert_same(tmp_path / "out", step)


def test_where_torch_has_another_kernel_for_programs_the_numbers_differ_by_rounding(tmp_path):
    step = make(user("Fast"))
    step.export(tmp_path / "out")
    assert_same(tmp_path / "out", step, rtol=1e-5, atol=1e-6)


def test_a_step_of_float64_is_exported_as_such(tmp_path):
    step = make(layers(AVERAGE), dtype="float64")
    step.export(tmp_path / "out")
    listing = json.loads((tmp_path / "out" / "export.json").read_text())
    assert listing["program"]["inputs"] == {"x": {"shape": ["batch", 4], "dtype": "float64"}}
    program = torch.export.load(tmp_path / "out" / "small-net.pt2").module()
    x = torch.randn(7, 4, dtype=torch.float64)
    assert torch.equal(program({"x": x})["out"], step({"x": x, "y": x[:, :3], "signal": x}, mode="eval")["out"])


def plain_net():
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(), nn.Linear(5, 3)).eval()


@pytest.mark.parametrize(("steps", "source"), [("start: 2 steps", "average"), ("start: 9 steps", "net")])
def test_the_weights_of_a_model_are_those_that_evaluation_uses(tmp_path, steps, source):
    step = make(layers(AVERAGE.replace("start: 2 steps", steps)))
    step.export(tmp_path / "out")
    net = plain_net()
    net.load_state_dict(load_file(tmp_path / "out" / "net.safetensors"))
    torch.testing.assert_close(net(batch_of(5)["x"]), step(batch_of(5), mode="eval")["out"], rtol=0, atol=0)
    listing = json.loads((tmp_path / "out" / "export.json").read_text())
    assert listing["weights"]["net"]["of"] == source


def test_an_average_has_a_file_of_its_own(tmp_path):
    step = make(layers(AVERAGE.replace("swap", "separate")))
    step.export(tmp_path / "out", format="weights")
    for name in ("net", "average"):
        found = load_file(tmp_path / "out" / f"{name}.safetensors")
        assert all(torch.equal(value, step.models[name].state_dict()[key]) for key, value in found.items())
    assert not torch.equal(load_file(tmp_path / "out" / "net.safetensors")["0.weight"], found["0.weight"])


def test_the_weights_of_a_class_load_into_the_class(tmp_path):
    step = make(user("Rich"))
    step.export(tmp_path / "out")
    model = exporters.Rich()
    model.load_state_dict(load_file(tmp_path / "out" / "net.safetensors"))
    x = batch_of(5)["x"]
    assert torch.equal(model.eval()(x), step(batch_of(5), mode="eval")["out"])


def test_types_that_numpy_lacks_are_kept(tmp_path):
    given = exporters.Linear()
    given.register_buffer("small", torch.arange(3, dtype=torch.bfloat16))
    build(compile_step(load(HEAD + user("Linear"))), device="cpu", models={"net": given}).export(tmp_path / "out")
    found = load_file(tmp_path / "out" / "net.safetensors")["small"]
    assert found.dtype == torch.bfloat16
    assert found.tolist() == [0, 1, 2]


def test_a_type_that_safetensors_lacks_is_told(tmp_path):
    given = exporters.Linear()
    given.register_buffer("turn", torch.zeros(2, dtype=torch.complex128))
    step = build(compile_step(load(HEAD + user("Linear"))), device="cpu", models={"net": given})
    with pytest.raises(SpecError, match=r"model 'net' cannot be exported: safetensors does not have .*complex128"):
        step.export(tmp_path / "out", format="weights")


def test_what_a_model_keeps_beside_tensors_is_told(tmp_path):
    exported = make(user("Telling")).export(tmp_path / "out")
    assert exported.models["net"].packed.notes == ("_extra_state of 'net' is no tensor: it is not in the file",)


@pytest.mark.parametrize("text", [user("Rich"), DRAWS])
def test_exporting_leaves_the_step_alone(tmp_path, text):
    exported, other = make(text), make(text)
    before = torch.get_rng_state()
    exported.export(tmp_path / "out")
    assert torch.equal(before, torch.get_rng_state())
    for number in range(3, 6):
        found, expected = exported(batch_of(6, number)), other(batch_of(6, number))
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    tensors = other.tensors()
    assert all(torch.equal(value, tensors[name]) for name, value in exported.tensors().items())


def test_a_mode_infer_is_taken_before_eval(tmp_path):
    step = make(MODES)
    exported = step.export(tmp_path / "out")
    assert (exported.program.pure.mode, exported.program.pure.outputs) == ("infer", ("answer",))
    assert_same(tmp_path / "out", step, "infer")


def test_values_can_be_chosen_and_running_figures_are_left_out(tmp_path):
    step = make(layers(LEARN + "  error: {metric: mean, inputs: out}\n", "[loss, out, error]"))
    pure = step.export(tmp_path / "all").program.pure
    assert (pure.outputs, pure.left_out, [each.name for each in pure.program.inputs]) == (("out",), ("error",), ["x"])
    pure = make(MODES).export(tmp_path / "one", mode="eval", values=["out"]).program.pure
    assert (pure.outputs, [each.name for each in pure.program.inputs]) == (("out",), ["x"])


CLOCKED = layers(
    LEARN + "  small: {loss: l1, inputs: [out, 0.0], every: 2}\n  far: {loss: mse, inputs: [out, 1.0], every: 3}\n",
    "[loss, out, small, far]",
)


def test_a_value_is_exported_where_others_of_its_mode_do_not_fire_in_every_step(tmp_path):
    step = make(CLOCKED)
    assert step.export(tmp_path / "one", values=["out"]).program.pure.outputs == ("out",)
    assert_same(tmp_path / "one", step)


@pytest.mark.parametrize("value", ["small", "far"])
def test_a_value_that_does_not_fire_in_every_step_is_refused_by_its_own_name(tmp_path, value):
    with pytest.raises(SpecError, match=rf"GS265\]: op '{value}' does not fire in every step of mode eval"):
        make(CLOCKED).export(tmp_path / "one", values=["out", value])


REFUSED = {
    "branch": (user("Branching"), {}, r"GS265\]: op 'out' cannot be exported: what it does depends on the values"),
    "sizes": (user("Sized"), {}, r"GS265\]: mode eval .* not work for every size of batch\n(.*\n)*.* 5 <= "),
    "draw": (user("Drawing"), {}, r"GS265\]: mode eval .* draws random numbers\n.*drawn by dropout in net"),
    "count": (user("Counting"), {}, r"GS265\]: mode eval .* writes into the buffer net.calls"),
    "gradient": (MODES, {"mode": "eval"}, r"GS265\]: op 'slope' cannot be exported: it takes a gradient"),
    "schedule": (
        layers(
            LEARN + "  beta: {schedule: warmup, to: 1, over: 9}\n  faded: {call: mul, inputs: [out, beta]}\n", "[faded]"
        ),
        {},
        r"GS265\]: op 'beta' cannot be exported: it follows a schedule, and a program has no steps",
    ),
    "weight": (
        layers(LEARN + "  aim: {loss: mse, inputs: [out, 0.0], weight: {schedule: warmup, to: 1, over: 9}}\n", "[aim]"),
        {},
        r"GS265\]: op 'aim' cannot be exported: it follows a schedule",
    ),
    "running": (MODES, {"mode": "eval", "values": ["error"]}, "GS265.*op 'error' .* its value runs over many batches"),
    "clock": (MODES, {"mode": "test"}, r"GS265\]: op 'second' does not fire in every step of mode test"),
    "dropout": (
        layers(LEARN + "  rough: {forward: net, inputs: x, train: true, mode: eval}\n", "[rough]").replace(
            "batch_norm, ", ""
        ),
        {},
        "GS265.*op 'rough' cannot be exported: the layers of 'net' draw random numbers",
    ),
    "statistics": (
        layers(LEARN + "  rough: {forward: net, inputs: x, train: true, mode: eval}\n", "[rough]"),
        {},
        r"GS266\]: mode eval changes models, so it cannot be exported: it runs rough",
    ),
    "train": (layers(), {"mode": "train"}, r"GS266\]: mode train changes models, so it cannot be .*: it runs .*step"),
    "mode": (layers(), {"mode": "infer"}, r"GS266\]: the step has no mode 'infer' to export: it has train, eval"),
    "nothing": (layers(outputs="[loss]"), {}, r"GS266\]: the step computes nothing outside train mode"),
    "value": (layers(), {"values": ["oud"]}, r"GS266\]: mode eval computes no value 'oud'\n.*did you mean 'out'\?"),
    "figures": (
        layers(LEARN + "  error: {metric: mean, inputs: out}\n", "[loss, error]"),
        {},
        r"GS266\]: mode eval gives figures that run over many batches, and nothing else\n.*`--value out`",
    ),
}


@pytest.mark.parametrize(("text", "how", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_exported_is_told_and_nothing_is_written(tmp_path, capfd, text, how, message):
    step = make(text)
    with pytest.raises(SpecError, match=message):
        step.export(tmp_path / "out", **how)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_an_input_without_a_shape_is_told(tmp_path):
    text = HEAD.replace("signal: {shape: [batch, length]}", "signal: {}") + layers(
        LEARN + "  sent: {call: neg, inputs: signal, mode: eval}\n", "[out, sent]"
    )
    step = build(compile_step(load(text)), device="cpu")
    with pytest.raises(SpecError, match=r"GS265\]: 'signal' would be an input of the program, and has no known shape"):
        step.export(tmp_path / "out")
    step.export(tmp_path / "out", values=["out"])


def test_weights_can_be_written_where_a_program_cannot(tmp_path):
    exported = make(user("Branching")).export(tmp_path / "out", format="weights")
    assert exported.program is None
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["export.json", "net.safetensors"]


def test_an_older_export_is_replaced_as_a_whole(tmp_path):
    step = make(layers(AVERAGE))
    step.export(tmp_path / "out")
    (tmp_path / ".out-0123abcd.old").mkdir()
    step.export(tmp_path / "out", format="program")
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["export.json", "small-net.pt2"]
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("other", ["notes.txt", "export.json"])
def test_a_folder_with_anything_else_is_left_alone(tmp_path, other):
    step = make(layers())
    step.export(tmp_path)
    (tmp_path / other).write_text('{"mine": 1}')
    kept = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.raises(SpecError, match=r"GS234\]: cannot write .* what is no part of an export"):
        step.export(tmp_path)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == kept


def test_the_listing_says_what_every_file_is(tmp_path):
    step = make(layers(AVERAGE))
    step.export(tmp_path / "out", origin={"run": "runs/here"})
    listing = json.loads((tmp_path / "out" / "export.json").read_text())
    assert (listing["name"], listing["run"], listing["step"]) == ("small net", "runs/here", 3)
    for part in (*listing["weights"].values(), listing["program"]):
        content = (tmp_path / "out" / part["file"]).read_bytes()
        assert (part["bytes"], part["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    shapes = {key: tuple(each["shape"]) for key, each in listing["weights"]["net"]["tensors"].items()}
    assert shapes == {key: tuple(value.shape) for key, value in plain_net().state_dict().items()}


def test_draws_are_listed_with_how_the_step_makes_them(tmp_path):
    make(DRAWS).export(tmp_path / "out")
    inputs = json.loads((tmp_path / "out" / "export.json").read_text())["program"]["inputs"]
    drawn = {"shape": ["batch", 3], "dtype": "float32", "random": "normal", "args": {"std": 0.2}}
    assert inputs["noise"] == drawn
    assert inputs["chosen"] == {"shape": ["batch"], "dtype": "int64", "random": "permutation", "args": {}}
    assert "y" not in inputs


def test_a_model_that_cannot_be_copied_is_told(tmp_path):
    given = exporters.Linear()
    step = build(compile_step(load(HEAD + user("Linear"))), device="cpu", models={"net": given})
    given.lock = copy
    with pytest.raises(SpecError, match="mode eval cannot be exported: its models cannot be copied"):
        step.export(tmp_path / "out")


PAGES = {"GS265": {}, "GS266": {"mode": "infer"}}


@pytest.mark.parametrize(("code", "how"), PAGES.items())
def test_the_page_of_the_error_shows_the_message_of_its_spec(tmp_path, code, how):
    page = (Path(__file__).resolve().parents[3] / "docs" / "errors" / f"{code}.md").read_text()
    spec, shown = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL)[1] for kind in ("yaml", "text"))
    step = build(compile_step(load(spec)), device="cpu")
    with pytest.raises(SpecError) as raised:
        step.export(tmp_path / "out", **how)
    assert str(raised.value) == f"{shown}\n1 error, 0 warnings"
