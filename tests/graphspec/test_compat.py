"""`compat` writes the defaults of another library where options are left out, and does nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphspec import SpecError, load
from graphspec.declare.compat import PROFILES
from graphspec.declare.graph import GraphSpec
from graphspec.declare.layers import LAYERS
from graphspec.declare.library import FUNCTIONS
from graphspec.declare.ops import ClipSpec
from graphspec.declare.optimizers import OPTIMIZERS
from graphspec.declare.options import accepts, find_option
from graphspec.read.scalars import resolve
from graphspec.read.source import read_document
from graphspec.write.render import render

ROOT = Path(__file__).parents[2]
HEAD = """graphspec: 1
name: ported
COMPAT
inputs: {x: {shape: [batch, 8]}, y: {shape: [batch], dtype: int64}}
"""
SHORT = """
models:
  net:
    layers: [{linear: 8}, batch_norm, {residual: [layer_norm, leaky_relu]}, {group_norm: 2}, {linear: 3}]
    optimizer: {1: {name: sgd, momentum: 0.9}, 3: adam, 5: sgd}
  head: {class: "zoo:Head", optimizer: {class: "zoo:Rule", lr: 0.5}}
ops:
  out: {forward: net, inputs: x}
  judged: {forward: head, inputs: out}
  loss: {loss: cross_entropy, inputs: [judged, y]}
  own: {loss: "zoo:loss", inputs: [judged, y]}
  slopes: {gradient: own, wrt: head}
  clipped: {transform: clip_norm, inputs: slopes, args: {norm: 1.0}}
  fit: {update: net, loss: loss, clip: {norm: 1.0}}
  fit_head: {update: head, gradients: clipped, optimizer: {name: adamw, lr: 0.1}}
"""
KERAS = {
    "batch_norm,": "{batch_norm: {eps: 1e-3, momentum: 0.01}},",
    "[layer_norm, leaky_relu]": "[{layer_norm: 1e-3}, {leaky_relu: 0.3}]",
    "{group_norm: 2}": "{group_norm: {groups: 2, eps: 1e-3}}",
    "momentum: 0.9}, 3: adam, 5: sgd": "lr: 0.01, momentum: 0.9, momentum_form: lr_inside}, "
    "3: {name: adam, eps: 1e-7}, 5: {name: sgd, lr: 0.01}",
    "[judged, y]}\n  own": "[judged, y], args: {axis: -1}}\n  own",
    "name: adamw, lr: 0.1": "name: adamw, lr: 0.1, eps: 1e-7, weight_decay: 0.004",
}
TORCH = {"args: {norm: 1.0}": "args: {norm: 1.0, eps: 1e-6}", "clip: {norm: 1.0}": "clip: {norm: 1.0, eps: 1e-6}"}
WRITTEN = {"tf_keras": KERAS, "torch": TORCH}


def text(compat: str | None, body: str = SHORT) -> str:
    return HEAD.replace("COMPAT", "" if compat is None else f"compat: {compat}") + body


def write_out(*profiles: str) -> str:
    """Return the body of the spec with all that the profiles mean written by hand."""
    body = SHORT
    for compat in profiles:
        for short, long in WRITTEN[compat].items():
            assert body.count(short) == 1
            body = body.replace(short, long)
    return body


@pytest.mark.parametrize("compat", PROFILES)
def test_a_spec_under_compat_is_the_spec_with_the_options_written(compat):
    ported, written = load(text(compat)), load(text(None, write_out(compat)))
    assert ported != load(text(None))
    assert ported.model_copy(update={"compat": None}).model_dump() == written.model_dump()
    assert render(ported) == render(written)


@pytest.mark.parametrize("compat", PROFILES)
def test_what_is_written_wins(compat):
    everything = write_out(*PROFILES)
    assert render(load(text(compat, everything))) == render(load(text(None, everything)))


@pytest.mark.parametrize("compat", PROFILES)
def test_render_writes_everything_out_and_says_the_same_once_more(compat):
    rendered = render(load(text(compat)))
    assert "compat" not in rendered
    assert render(load(rendered)) == rendered


def test_a_spec_that_is_built_in_python_is_filled_too():
    document = read_document(text("tf_keras")).data
    assert GraphSpec.model_validate(document) == GraphSpec(**document) == load(text("tf_keras"))


def test_a_momentum_form_is_only_taken_over_where_it_means_something():
    for options in ("", ", momentum: 0.0", ", momentum: 0.9, dampening: 0.1"):
        optimizer = load(text("tf_keras"), [f"models.net.optimizer={{name: sgd{options}}}"]).models["net"].optimizer
        assert optimizer.resolved()["momentum_form"] == "lr_outside"
        assert optimizer.resolved()["lr"] == 0.01


def test_an_unknown_library_is_refused_with_those_that_there_are(find):
    found = find(text("«keras»"))
    assert found.codes == ("GS043",)
    assert found.places == found.marks
    assert found.diagnostics[0].label == "did you mean 'tf_keras'?"
    assert found.diagnostics[0].help == "write 'tf_keras' or 'torch'"


@pytest.mark.parametrize(
    ("override", "default"),
    [("models.net.layers.1={batch_norm: {eps: -1}}", "0.001"), ("ops.loss.args={axis: a}", "-1"),
     ("models.net.optimizer={name: rmsprop, alpha: 2}", "0.9"), ("compat=torch", "")],
)  # fmt: skip
def test_messages_tell_the_default_of_the_library(override, default):
    more = ["ops.clipped.args={norm: 1.0, eps: -1}"] if not default else []
    with pytest.raises(SpecError, match=rf"\(default {default or '1e-06'}\)"):
        load(text("tf_keras"), [override, *more])


def test_profiles_name_options_and_values_that_there_are():
    tables = {"optimizer": OPTIMIZERS, "layer": LAYERS, "clip": {}}
    tables |= {family: {name: one.options for name, one in known.items()} for family, known in FUNCTIONS.items()}
    for place, name, option, value in list_defaults():
        if place == "clip":
            assert option in ClipSpec.model_fields
            continue
        known = find_option(tables[place][name], option)
        assert known is not None
        assert accepts(known, value)
        assert known.default != value


def list_defaults(*profiles: str):
    for profile in profiles or PROFILES:
        for place, named in PROFILES[profile].items():
            for name, defaults in named.items():
                yield from ((place, name, option, value) for option, value in defaults.items())


@pytest.mark.parametrize("compat", PROFILES)
def test_the_reference_has_every_default_of_a_profile(compat):
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    section = page.partition(f"| `compat: {compat}` |")[2].partition("\n\n")[0]
    shown = set()
    for place, name, options in re.findall(r"^\| (\w+) `(\w+)` \| (.+) \|$", section, re.MULTILINE):
        shown |= {(place, name, key, resolve(value)) for key, value in re.findall(r"`(\w+) = ([^`]+)`", options)}
    assert shown == set(list_defaults(compat))
