"""Building looks at user classes and compiles again with the truth."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from compiler.types.dimension import TensorType
from graphspec import SpecError
from runtime import build
from runtime.engine.observe import find_types
from tests.backends.torch.specs import ADAM, OPS, batch_of, build_of, plan_of, user

WITHOUT = "no recomputed forwards"


def traits_of(kind: str) -> str:
    """Return what was noted about a class."""
    return next(note for note in build_of(user(kind)).notes if note.startswith("observed of 'net'"))


def test_a_plain_class_has_none_of_what_was_assumed():
    assert traits_of("Plain") == f"observed of 'net': no buffers, no random draws, no coupled samples, {WITHOUT}"


def test_batch_statistics_and_dropout_are_seen():
    assert traits_of("Stateful") == "observed of 'net': buffers, random draws, coupled samples, no recomputed forwards"


def test_a_forward_that_draws_nothing_is_no_longer_keyed():
    plan = plan_of(user("Plain"))
    assert "random.forked" in build_of(user("Stateful")).source
    assert "assumed of 'net'" in plan.notes[0]
    step = build_of(user("Plain"))
    assert "random.forked" not in step.source
    assert step.plan.notes == ()
    assert "the plan was compiled again with what was observed, and changed" in step.notes


@pytest.mark.parametrize(("dropout", "seen"), [(0.0, "no random draws"), (0.5, "random draws")])
def test_attention_draws_where_it_has_dropout(dropout, seen):
    notes = build_of(user("Attentive", f", args: {{dropout: {dropout}}}")).notes
    assert f"observed of 'net': no buffers, {seen}, no coupled samples, {WITHOUT}" in notes


@pytest.mark.parametrize("trait", ["buffers", "rng", "batch_coupled"])
def test_a_declared_trait_that_is_false_is_an_error_at_its_place(trait):
    with pytest.raises(SpecError, match=rf"GS206.*declares `{trait}: false`") as raised:
        build_of(user("Stateful", f", traits: {{{trait}: false}}"))
    assert raised.value.diagnostics[0].span is not None


def test_a_trait_that_promises_too_much_is_kept():
    step = build_of(user("Plain", ", traits: {rng: true}"))
    assert "random.forked" in step.source
    assert f"observed of 'net': no buffers, random draws (declared), no coupled samples, {WITHOUT}" in step.notes


def test_a_called_method_nobody_could_watch_is_still_assumed_to_draw():
    ops = OPS.replace("{forward: net, inputs: x}", "{forward: net, inputs: x, method: encode, outputs: [y, h]}")
    assert "random draws (assumed)" in next(note for note in build_of(user("Plain"), ops).notes if "observed" in note)


def test_layers_behind_a_class_get_their_sizes():
    others = "\n  head: {layers: [{linear: 8}, relu, {linear: 3}], optimizer: adam}"
    ops = OPS.replace("{forward: net, inputs: x}", "{forward: head, inputs: h}") + "  h: {forward: net, inputs: x}\n"
    step = build_of(user("Plain"), ops.replace("update: net", "update: [net, head]"), others)
    assert step.models["head"].get_parameter("0.weight").shape == (8, 3)
    assert step(batch_of())["loss"].shape == ()


def test_a_model_given_by_hand_is_trained_itself():
    given = nn.Linear(4, 3)
    before = given.weight.detach().clone()
    step = build_of("{layers: [{linear: 3}], optimizer: adam}")
    assert step.models["net"] is not given
    step = build_of(user("Plain"), models={"net": given})
    step(batch_of())
    assert not torch.equal(before, given.weight)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"nett": nn.Linear(4, 3)}, "did you mean 'net'"), ({"net": 3}, "given as int, expected a torch.nn.Module")],
)
def test_given_models_must_fit_the_spec(given, message):
    with pytest.raises(SpecError, match=message):
        build_of(user("Plain"), models=given)


def test_a_tie_nobody_declared_is_an_error():
    others = f"\n  other: {user('Plain')}"
    ops = OPS + "  z: {forward: other, inputs: x}\n  more: {loss: mse, inputs: [z, t]}\n"
    ops += "  second: {update: other, loss: more}\n"
    one, other = nn.Linear(4, 3), nn.Linear(4, 3)
    other.weight = one.weight
    with pytest.raises(SpecError, match="models 'net' and 'other' share the parameter 'weight'"):
        build_of(user("Plain"), ops, others, models={"net": one, "other": other})


def test_results_by_name_and_inner_layers_reach_the_ops():
    named = OPS.replace("{forward: net, inputs: x}", "{forward: net, inputs: x, outputs: [first, second]}")
    step = build_of(user("Named"), named.replace("[y, t]", "[first, t]"), outputs="[loss, second]")
    batch = batch_of()
    assert torch.equal(step(batch)["second"], torch.from_numpy(batch["x"]))
    tapped = OPS.replace("{forward: net, inputs: x}", "{forward: net, inputs: x, outputs: [y, {h: {tap: inner}}]}")
    assert build_of(user("Tapped"), tapped, outputs="[loss, h]")(batch)["h"].shape == (6, 5)


@pytest.mark.parametrize("path", ["iner", "inner.body", "2"])
def test_a_layer_that_a_class_does_not_have_is_an_error_at_its_place(path):
    tapped = OPS.replace(
        "{forward: net, inputs: x}", f"{{forward: net, inputs: x, outputs: [y, {{h: {{tap: '{path}'}}}}]}}"
    )
    with pytest.raises(SpecError, match=f"GS115.*model 'net' has no layer '{path}'") as raised:
        build_of(user("Tapped"), tapped, outputs="[loss, h]")
    assert raised.value.diagnostics[0].span is not None


def test_a_loss_of_ones_own_may_be_a_sum_and_a_count():
    ops = OPS.replace("loss: mse", "loss: 'tests.backends.torch.users:half_squared'")
    loss = build_of(user("Plain"), ops)(batch_of())["loss"]
    assert torch.allclose(loss * 2, build_of(user("Plain"))(batch_of())["loss"])


def test_sizes_that_grow_with_the_batch_are_named_by_how_they_do():
    seen = {
        2: {"a": ((2, 5), "float32"), "b": ((8,), "float32"), "c": ((2,), "int64")},
        3: {"a": ((3, 5), "float32"), "b": ((12,), "float32"), "c": ((3, 1), "int64")},
    }
    assert find_types(seen, "batch") == {
        "a": TensorType(("batch", 5), "float32"),
        "b": TensorType(("4*batch",), "float32"),
    }


class Counting(nn.Module):
    """Counts its calls in a buffer, whatever mode it is in, and has a layer that is lazy or not."""

    def __init__(self, layer: nn.Module, *, closed: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.register_buffer("calls", torch.zeros(()))
        self.count = (lambda: self.calls.add_(1)) if closed else self.plus

    def plus(self):
        return self.calls.add_(1)

    def forward(self, x):
        with torch.no_grad():
            self.count()
        return self.layer(x)


COUNTERS = {
    "plain": lambda: Counting(nn.Linear(4, 3)),
    "lazy": lambda: Counting(nn.LazyLinear(3)),
    "a copy that writes into its original": lambda: Counting(nn.Linear(4, 3), closed=True),
}


@pytest.mark.parametrize("name", COUNTERS)
def test_build_leaves_the_buffers_of_a_given_model_as_they_were(name):
    model = COUNTERS[name]()
    step = build_of(user("Plain"), models={"net": model})
    assert model.calls == 0
    step(batch_of())
    assert model.calls == 1


def narrow(dtype: str) -> nn.Module:
    """Return a layer with parameters of a type."""
    return nn.Linear(4, 3).to(getattr(torch, dtype))


@pytest.mark.parametrize(
    ("dtype", "remedy"),
    [("bfloat16", "precision: {compute: bfloat16}"), ("float64", 'build(..., dtype="float64")'), ("float32", None)],
)
def test_a_class_with_parameters_of_another_type_is_converted_and_the_notes_say_so(dtype, remedy):
    net = f"{{class: 'tests.backends.torch.test_observed_traits:narrow', {ADAM}, args: {{dtype: {dtype}}}}}"
    step = build(plan_of(net), device="cpu", allow=["tests"])
    assert {each.dtype for each in step.models["net"].parameters()} == {torch.float32}
    found = [note for note in step.notes if "they become float32" in note]
    assert [remedy in note for note in found] == ([] if remedy is None else [True])
